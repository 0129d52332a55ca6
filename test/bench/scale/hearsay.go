package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// hearsay is the real loop, in front of a real store that is fed with what the routers'
// rows and the engines' readings say.
type hearsay struct {
	variant variant
	loop    *autoscale.Loop
	looks   looks
	store   *state.Store
	facts   *state.Facts
	pool    *pool
	clock   time.Time
	seq     uint64
	fence   [2]uint64            // epoch and decision, as the actuator saw them
	cards   []state.Replica      // of all replicas ever launched
	cal     *routing.Calibration // of all routers, which share lessons
	sampled int
	err     error // the first one that no fault of the workload explains
}

const (
	poolName  = "chat"
	leader    = state.RouterID("r0")
	actuator  = "model"
	idPrefix  = "sim:"
	boot      = state.BootID(2)
	lookAfter = 300 * time.Millisecond // age of rows and readings when the loop looks
	dropAfter = 2 * time.Second        // cluster/gossip's bound on silence
)

// clients' routers; the leader has none.
var routers = []state.RouterID{"r1", "r2", "r3"}

var target = state.TargetKey{Pool: poolName, Role: state.RoleBoth}

// spec is the pool's, all else being cmd/node's defaults.
func spec() state.PoolSpec {
	return state.PoolSpec{
		Name: poolName, Model: "m", Engine: state.EngineVLLM,
		SLOTTFT: seconds(sloTTFT), SLOITL: seconds(sloTPOT),
		DrainDeadline: drainTime * time.Second, QueueWait: state.DefaultQueueWait,
		ScaleMin: 1, ScaleMax: mostReplicas, ScaleActuator: actuator,
		ScaleCooldown: time.Minute, ScaleDownWindow: 5 * time.Minute,
	}
}

// newHearsay makes the loop for a pool, whose replicas it finds as if an earlier term
// had started them.
func newHearsay(p *pool, x variant) (*hearsay, error) {
	h := &hearsay{variant: x, pool: p, clock: at(0), cal: routing.NewCalibration()}
	p.manual = true
	h.store = state.NewStore(state.Config{
		Self: leader, Clock: state.NewClock(1, at(-1)), Pools: []state.PoolSpec{spec()}, Now: func() time.Time { return h.clock },
	})
	h.store.OnGone(h.cal.Forget)
	f := state.NewFacts()
	f.Index, f.Epoch = 2, 1
	f.Targets[target] = p.wanted
	f.Decisions = []state.Decision{{
		ID: "d0", Index: 1, Epoch: 1, Pool: poolName, Role: state.RoleBoth, From: p.wanted, To: p.wanted, Outcome: state.OutcomeDone, Seen: at(-hour),
	}}
	for _, r := range p.list {
		r.listed = true
		f.Replicas[h.idOf(r)] = h.card(r)
	}
	h.facts = f
	h.store.SetFacts(f)
	var err error
	cfg := autoscale.Config{
		Self: leader, Cluster: h, Committer: h, Actuators: map[string]autoscale.Actuator{actuator: h},
		Queued: func(string) int { return int(h.pool.heldN) }, Learned: h.learned,
	}
	if x.set != nil {
		x.set(&cfg)
	}
	if h.loop, err = autoscale.New(cfg); err != nil {
		return nil, err
	}
	h.loop.Begin(f.Epoch)
	return h, nil
}

func (h *hearsay) name() string { return "hearsay" }

func (h *hearsay) setting() string {
	return cmp.Or(h.variant.text, "defaults")
}

// act tells the leader what it is told in reality, and lets the loop look.
func (h *hearsay) act(p *pool) {
	if p.now%p.w.look != 0 {
		return
	}
	h.clock = at(p.now)
	if p.w.sees(p.now) {
		h.store.Batch(func() { h.tell(p) })
		h.observe(p)
	}
	h.store.DropSilent(h.clock.Add(-dropAfter))
	h.clock = h.clock.Add(lookAfter)
	if err := h.loop.Step(context.Background(), h.clock); err != nil && h.err == nil {
		h.err = fmt.Errorf("second %d: %w", p.now, err)
	}
	if p.now%minute == 0 {
		h.look(p)
	}
}

// tell gives the store the routers' rows and the engines' readings.
func (h *hearsay) tell(p *pool) {
	h.seq++
	for i, id := range routers {
		m := state.Rows{Router: id, Boot: boot, Seq: h.seq, Full: true, FactsIndex: h.facts.Index, Traffic: []state.Traffic{h.traffic(p, i)}}
		for _, r := range p.list {
			if r.listed && p.up(r) {
				if row := h.row(r, i); row.Load != (state.Load{}) {
					m.Rows = append(m.Rows, row)
				}
			}
		}
		if p.heldN > 0 && i == 0 {
			m.Backlogs = []state.Backlog{{Pool: poolName, Requests: int64(math.Ceil(p.heldN)), Tokens: int64(p.heldT)}}
		}
		h.store.ApplyRows(m)
	}
	for _, r := range p.list {
		if r.listed {
			h.store.ApplyReading(h.reading(r))
		}
	}
}

// row is one router's third of what a replica has; whole requests, and none gets lost.
func (h *hearsay) row(r *replica, router int) state.Row {
	third := func(x float64) int64 {
		n := int64(math.Round(x))
		return (n + int64(router)) / int64(len(routers))
	}
	all := third(r.inFlight())
	return state.Row{Replica: h.idOf(r), Load: state.Load{
		InFlight: all, Prefill: min(all, third(r.waiting+r.filling)), UncachedTokens: third(r.tokens + r.fillingTokens),
	}}
}

// reading is what an engine says of itself.
func (h *hearsay) reading(r *replica) state.Reading {
	p := h.pool
	x := state.UnknownReading(h.idOf(r))
	x.Reader, x.At, x.Kind = routers[0], h.store.Clock().Stamp(h.clock), state.EngineVLLM
	if !p.up(r) || r.unready {
		x.Loading = true
		return x
	}
	all := math.Round(r.inFlight())
	x.OK = true
	x.Uptime = time.Duration(p.now-r.ready+1) * time.Second
	x.Waiting = min(all, math.Round(r.waiting))
	x.Running = all - x.Waiting
	x.KVUsage = min(1, r.streams*p.e.context/kvTokens)
	x.Capacity, x.BlockSize = kvTokens, 16
	x.Processed, x.Queries, x.Hits = r.processed, r.processed, 0
	return x
}

// card is what the facts have of a replica.
func (h *hearsay) card(r *replica) state.Replica {
	for id := len(h.cards); id <= r.id; id++ {
		h.cards = append(h.cards, state.Replica{
			ID: state.ReplicaID(idPrefix + strconv.Itoa(id)), Pool: poolName, Role: state.RoleBoth, URL: fmt.Sprintf("http://h%d:1", id),
		})
	}
	return h.cards[r.id]
}

func (h *hearsay) idOf(r *replica) state.ReplicaID { return h.card(r).ID }

// byID finds a replica of the pool.
func (h *hearsay) byID(id state.ReplicaID) *replica {
	s, _ := strings.CutPrefix(string(id), idPrefix)
	n, err := strconv.Atoi(s)
	if err != nil {
		return nil
	}
	for _, r := range h.pool.list {
		if r.id == n {
			return r
		}
	}
	return nil
}

// View is the leader's. It is the loop's Cluster.
func (h *hearsay) View() *state.View { return h.store.View() }

// Live lists the routers that live.
func (h *hearsay) Live() []state.RouterID { return append([]state.RouterID{leader}, routers...) }
