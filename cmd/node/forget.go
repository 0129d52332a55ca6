package node

import (
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// goneGrace is how long the leader lists no such Pod before its drain is forgotten.
	goneGrace = 10 * time.Minute
	goneEvery = 30 * time.Second
)

// podUID are the ids of replicas that are Pods: a UID, with the port where it has
// several, and the rank. Unlike an address, none is ever given to another one.
var podUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:[0-9]+)?(#[0-9]+)?$`)

// goneDrains finds the committed drains of Pods that are no more.
type goneDrains struct {
	since map[state.ReplicaID]time.Time // when they were first missed
}

// step says which drains are to be forgotten now. Where discovery is not sound, nothing
// that it does not list counts as gone.
func (g *goneDrains) step(v *state.View, sound bool, now time.Time) (ids []state.ReplicaID) {
	listed := map[state.ReplicaID]bool{}
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			listed[r.ID], listed[r.Process()] = true, true
		}
	}
	missed := map[state.ReplicaID]time.Time{}
	for id := range v.Facts.Draining {
		if !sound || listed[id] || !podUID.MatchString(string(id)) {
			continue
		}
		missed[id] = now
		if at, ok := g.since[id]; ok {
			missed[id] = at
		}
		if now.Sub(missed[id]) >= goneGrace {
			ids = append(ids, id)
		}
	}
	g.since = missed
	slices.Sort(ids)
	return ids
}

// sound reports whether all that discovers replicas has answered and works.
func (d *discoveries) sound() bool {
	for _, p := range d.list() {
		if !p.Answered() {
			return false
		}
		for _, s := range p.Status() {
			if s.Problem != "" {
				return false
			}
		}
	}
	return true
}

// forgetDrains takes the drains of Pods that are no more out of the facts, while this
// router leads: nothing else would, and there is a new Pod with every roll-out.
func (n *Node) forgetDrains(ctx context.Context, epoch uint64, apply func(context.Context, state.Command) error) {
	tick := time.NewTicker(goneEvery)
	defer tick.Stop()
	var gone goneDrains
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range gone.step(n.store.View(), n.discover.sound(), time.Now()) {
			if err := apply(ctx, state.Command{Kind: state.CommandUndrain, Epoch: epoch, Of: id}); err != nil {
				n.log.Debug().Err(err).Str("replica", string(id)).Msg("drain of a pod that is gone is still kept")
				break // there is another round
			}
			n.log.Info().Str("replica", string(id)).Msg("drain forgotten: the pod is gone")
		}
	}
}
