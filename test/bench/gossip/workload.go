package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// A request's prompt is the prompt and answer before it of the same conversation, or
// none for the first of one, and new marks, the last of which is the answer's. It
// lasts half to one and a half times holdTime and answers after a tenth of it.
const (
	holdTime   = 2 * time.Second
	goesOn     = 0.5 // share of requests that continue a conversation
	markTokens = 300
	pool       = "p"
	model      = "m"
)

// conversation is what the next request of it begins with.
type conversation struct {
	replica state.ReplicaID
	marks   []prefix.Mark
}

// maxConversation bounds its marks.
const maxConversation = 200

// drive sends requests at a steady rate with jitter.
func (r *router) drive(ctx context.Context, c *cell) {
	if c.Rate <= 0 {
		return
	}
	rng := rand.New(rand.NewPCG(uint64(r.clock.Boot()), 1))
	hash := uint64(r.clock.Boot())
	var open []conversation
	t := time.NewTimer(0)
	defer t.Stop()
	for next := time.Now(); ; {
		next = next.Add(time.Duration(rng.ExpFloat64() / c.Rate * float64(time.Second)))
		t.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		v := conversation{replica: replica(rng.IntN(c.Replicas))}
		if len(open) > 0 && rng.Float64() < goesOn {
			i := rng.IntN(len(open))
			v = open[i]
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		old := len(v.marks)
		v.marks = append(make([]prefix.Mark, 0, old+c.Links), v.marks...)
		for range c.Links {
			hash++
			v.marks = append(v.marks, prefix.Mark{Hash: hash * 0x9e3779b97f4a7c15, ASCII: uint32(len(v.marks)+1) * 1200})
		}
		r.request(v, old, time.Duration((0.5+rng.Float64())*float64(holdTime)))
		if len(v.marks) < maxConversation {
			open = append(open, v)
		}
	}
}

// request is one request's course, as proxy.Core makes it.
func (r *router) request(v conversation, old int, lasts time.Duration) {
	tokens := make([]int32, len(v.marks))
	for k := range tokens {
		tokens[k] = int32(k+1) * markTokens
	}
	n := len(v.marks) - 1 // of the prompt
	rv := r.store.View().Replica(v.replica)
	ticket := r.store.Begin(rv, (n-old)*markTokens)
	r.note(rv)
	r.requests.Add(1)
	e := r.engines.begin(v.replica)
	place := r.index.Place(v.replica, v.marks[:n], tokens[:n], time.Now())
	sample := routing.Sample{
		Replica: rv.ID, Slot: rv.Slot, Pool: pool, PromptTokens: n * markTokens, UncachedTokens: (n - old) * markTokens,
		QueueTokens: 1234, Decode: 3, TTFT: lasts / 10, ITL: 31 * time.Millisecond, ITLBatch: 4.3,
	}
	time.AfterFunc(lasts/10, func() {
		ticket.FirstToken()
		r.note(rv)
		place.First(time.Now())
	})
	time.AfterFunc(lasts, func() {
		ticket.End()
		r.note(rv)
		place.Evidence(old*markTokens, n*markTokens, old*markTokens)
		r.lessons.Counted(model, v.marks[n-1], n*markTokens)
		r.lessons.ObserveOutput(pool, 1000, markTokens)
		place.Answer(v.marks, tokens)
		place.End(time.Now())
		r.lessons.Observe(sample)
		e.Add(-1)
	})
}

// engines are the replicas, as far as readings tell of them.
type engines struct {
	began   time.Time
	ageless bool                              // they do not tell when they started
	running map[state.ReplicaID]*atomic.Int64 // not written after newEngines
	taken   atomic.Int64                      // readings
}

func newEngines(n int) *engines {
	e := &engines{began: time.Now(), running: map[state.ReplicaID]*atomic.Int64{}}
	for i := range n {
		e.running[replica(i)] = new(atomic.Int64)
	}
	return e
}

func (e *engines) begin(id state.ReplicaID) *atomic.Int64 {
	c := e.running[id]
	c.Add(1)
	return c
}

// Read implements observe.Reader: it takes some milliseconds, as an HTTP request does.
func (e *engines) Read(ctx context.Context, ranks []state.Replica) []state.Reading {
	t := time.NewTimer(time.Millisecond + rand.N(4*time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	var list []state.Reading
	for i := range ranks {
		n := float64(e.running[ranks[i].ID].Load())
		up := time.Since(e.began) + time.Hour
		x := state.UnknownReading(ranks[i].ID)
		x.OK, x.Kind, x.Version = true, state.EngineVLLM, "0.11.0"
		if !e.ageless {
			x.Started, x.Uptime = 1.764e9+0.37, up
		}
		x.Running, x.Waiting, x.KVUsage = n, 0, 0.12345*n/(1+n)
		x.Capacity, x.BlockSize = 400_000, 16
		x.Queries, x.Hits, x.Processed = 1e5+float64(up.Milliseconds()), 5e4+float64(up.Milliseconds()/2), 1e5+float64(up.Milliseconds())
		list = append(list, x)
		e.taken.Add(1)
	}
	return list
}
