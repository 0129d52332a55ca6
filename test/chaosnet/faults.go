package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/netns"
)

// fault is one thing that goes wrong.
type fault struct {
	name, what string
	begin      func(ctx context.Context, w *world) (*broken, error)
	lasts      time.Duration // 0: as long as is asked for
}

// broken says what is to be expected while a fault lasts.
type broken struct {
	majority []*harness.Proc // must agree among themselves within agreeWithin; nil: nothing is promised
	writer   *harness.Proc   // takes a write; nil: none is tried
	minority []*harness.Proc // may take none
	hit      map[string]bool // routers and replicas at which requests may fail
	over     bool            // it is over already: the time it lasts is begin's
	end      func(ctx context.Context) error
}

// mended is a fault of the network alone.
func mended(w *world, b *broken) (*broken, error) {
	b.end = func(context.Context) error {
		w.net.Heal()
		return nil
	}
	return b, nil
}

// faults are all of them, in the order they are caused in.
var faults = []fault{
	{name: "minority", what: "two followers are cut off from the other routers", begin: func(ctx context.Context, w *world) (*broken, error) {
		_, others, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return w.split(others[:w.o.routers/2])
	}},
	{name: "leader+1", what: "the leader and a follower are cut off from the other routers", begin: func(ctx context.Context, w *world) (*broken, error) {
		lead, others, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return w.split(append([]*harness.Proc{lead}, others[:w.o.routers/2-1]...))
	}},
	{name: "leader alone", what: "the leader is cut off from all other routers", begin: func(ctx context.Context, w *world) (*broken, error) {
		lead, _, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return w.split([]*harness.Proc{lead})
	}},
	{name: "mute leader", what: "nothing that the leader sends reaches another router; it hears them", begin: func(ctx context.Context, w *world) (*broken, error) {
		lead, others, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range others {
			w.net.Set(lead.Name, r.Name, netns.Link{Cut: true})
		}
		return mended(w, &broken{majority: others, writer: others[0], minority: []*harness.Proc{lead}})
	}},
	{name: "one way", what: "nothing that one follower sends reaches another one", begin: func(ctx context.Context, w *world) (*broken, error) {
		_, others, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		w.net.Set(others[0].Name, others[1].Name, netns.Link{Cut: true})
		return mended(w, &broken{writer: others[0]})
	}},
	{name: "loss", what: "20 % of all packets between routers are lost", begin: func(_ context.Context, w *world) (*broken, error) {
		w.links(w.Routers, w.Routers, netns.Link{Loss: 0.2})
		return mended(w, &broken{writer: w.Routers[0]})
	}},
	{name: "delay", what: "packets between routers take 200-300 ms one way", begin: func(_ context.Context, w *world) (*broken, error) {
		w.links(w.Routers, w.Routers, netns.Link{Delay: 200 * time.Millisecond, Jitter: 100 * time.Millisecond})
		return mended(w, &broken{writer: w.Routers[0]})
	}},
	{name: "no UDP", what: "datagrams between routers are lost", begin: func(_ context.Context, w *world) (*broken, error) {
		w.links(w.Routers, w.Routers, netns.Link{NoUDP: true})
		return mended(w, &broken{writer: w.Routers[0]})
	}},
	{name: "no TCP", what: "streams between the leader and a follower are blocked, datagrams pass", begin: func(ctx context.Context, w *world) (*broken, error) {
		lead, others, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		w.net.SetBoth(lead.Name, others[0].Name, netns.Link{NoTCP: true})
		return mended(w, &broken{writer: others[1]})
	}},
	{name: "kill router", what: "kill -9 of a follower, started again on its disk", begin: func(ctx context.Context, w *world) (*broken, error) {
		_, others, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return w.kill(ctx, others[0])
	}},
	{name: "kill leader", what: "kill -9 of the leader right after a decision, started again on its disk", begin: func(ctx context.Context, w *world) (*broken, error) {
		lead, _, err := w.leader(ctx)
		if err != nil {
			return nil, err
		}
		return w.kill(ctx, lead)
	}},
	{name: "kill replica", what: "kill -9 of an engine, started again", begin: func(_ context.Context, w *world) (*broken, error) {
		e := w.Engines[0]
		e.Kill()
		return &broken{
			hit: map[string]bool{replicaOf(e): true}, majority: w.Routers, writer: w.Routers[0],
			end: func(ctx context.Context) error { return w.again(ctx, e) },
		}, nil
	}},
	{name: "replica gone", lasts: 35 * time.Second, what: "an engine's machine vanishes: all its packets are lost, and no connection is closed", begin: func(_ context.Context, w *world) (*broken, error) {
		e := w.Engines[1]
		w.links(w.Routers, []*harness.Proc{e}, netns.Link{Cut: true})
		return mended(w, &broken{hit: map[string]bool{replicaOf(e): true}, majority: w.Routers, writer: w.Routers[0]})
	}},
	{name: "rolling restart", what: "SIGTERM of every router in turn, each started again once it has ended, behind a balancer", begin: func(ctx context.Context, w *world) (*broken, error) {
		w.clients.balanced.Store(true)
		for _, r := range w.Routers {
			if err := r.Signal(syscall.SIGTERM); err != nil {
				return nil, err
			}
			if err := r.Wait(time.Minute); err != nil {
				return nil, fmt.Errorf("%s did not end in order: %w", r.Name, err)
			}
			if err := w.again(ctx, r); err != nil {
				return nil, err
			}
			// The balancer takes it back, and it is one of them, before the next one goes.
			if _, err := w.agree(ctx, w.Routers, settleWithin); err != nil {
				return nil, err
			}
		}
		return &broken{over: true, end: func(context.Context) error {
			w.clients.balanced.Store(false)
			return nil
		}}, nil
	}},
}

// split cuts routers off from all others.
func (w *world) split(minority []*harness.Proc) (*broken, error) {
	rest := w.without(minority...)
	w.links(minority, rest, netns.Link{Cut: true})
	return mended(w, &broken{majority: rest, writer: rest[0], minority: minority})
}

// kill ends a router as kill -9 does.
func (w *world) kill(_ context.Context, r *harness.Proc) (*broken, error) {
	r.Kill()
	rest := w.without(r)
	return &broken{
		hit: map[string]bool{r.Name: true}, majority: rest, writer: rest[0],
		end: func(ctx context.Context) error { return w.again(ctx, r) },
	}, nil
}

// again starts a process that has ended, and waits until it is ready.
func (w *world) again(ctx context.Context, p *harness.Proc) error {
	if err := w.Start(p); err != nil {
		return err
	}
	return p.WaitReady(ctx, 30*time.Second)
}

// without are the routers but for some.
func (w *world) without(some ...*harness.Proc) (rest []*harness.Proc) {
next:
	for _, r := range w.Routers {
		for _, s := range some {
			if r == s {
				continue next
			}
		}
		rest = append(rest, r)
	}
	return rest
}

// replicaOf is the id by which routers know an engine.
func replicaOf(e *harness.Proc) string { return strings.TrimPrefix(e.API, "http://") }
