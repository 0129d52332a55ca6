package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/hearsay-llm/hearsay/state"
)

// The registers are targets of pools. A write sets one unconditionally (an
// operator's); a compare-and-set is a refused or granted scale decision, whose
// answer tells what the target was not, or was.
type regInput struct {
	pool     string
	cas      bool
	from, to int
}

type regOutput struct{ ok, unknown bool }

var registers = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		m := map[string][]porcupine.Operation{}
		for _, o := range h {
			p := o.Input.(regInput).pool
			m[p] = append(m[p], o)
		}
		var r [][]porcupine.Operation
		for _, v := range m {
			r = append(r, v)
		}
		return r
	},
	Init: func() any { return 0 },
	Step: func(s, i, o any) (bool, any) {
		in, out := i.(regInput), o.(regOutput)
		if !in.cas {
			return true, in.to
		}
		match := s.(int) == in.from
		switch {
		case out.unknown && match:
			return true, in.to
		case out.unknown:
			return true, s
		case out.ok:
			return match, in.to
		default:
			return !match, s
		}
	},
}

func history(t *testing.T, seed uint64) (h []porcupine.Operation, unknown, granted int) {
	bubble(t, func(t *testing.T, f *fleet) {
		for _, id := range names(3) {
			f.start(id, func(c *Config) { c.ApplyTimeout = minApplyTimeout })
		}
		f.waitVoters(3)
		for _, p := range []string{"p0", "p1"} { // a target that is not there matches anything
			d := &state.Decision{ID: "first " + p, Pool: p, By: state.ByOperator}
			must(t, f.waitLeader(), state.Command{Kind: state.CommandSetTarget, Decision: d})
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		t0 := time.Now()
		stop := t0.Add(30 * time.Second)
		wg.Go(func() { // cuts one router off, now and then
			r := rand.New(rand.NewPCG(seed, 1))
			for time.Now().Before(stop) {
				time.Sleep(time.Duration(1000+r.IntN(3000)) * time.Millisecond)
				v := names(3)[r.IntN(3)]
				rest := slicesWithout(names(3), v)
				f.cut(true, []state.RouterID{v}, rest)
				time.Sleep(time.Duration(500+r.IntN(9000)) * time.Millisecond)
				f.cut(false, []state.RouterID{v}, rest)
			}
		})
		for c := range 4 {
			r := rand.New(rand.NewPCG(seed, uint64(c)+10))
			wg.Go(func() {
				for n := 0; time.Now().Before(stop); n++ {
					time.Sleep(time.Duration(20+r.IntN(300)) * time.Millisecond)
					m := f.member(names(3)[r.IntN(3)])
					in := regInput{pool: fmt.Sprint("p", r.IntN(2)), cas: r.IntN(2) == 0, from: r.IntN(4), to: r.IntN(4)}
					d := &state.Decision{ID: fmt.Sprintf("c%d-%d", c, n), Pool: in.pool, From: in.from, To: in.to, By: state.ByOperator}
					cmd := state.Command{Kind: state.CommandSetTarget, Decision: d}
					if in.cas {
						// Unless refused for its epoch or an open decision, which says
						// nothing, it is granted if and only if From matches.
						d.By, cmd.Epoch = "r1", m.Facts().Epoch
					}
					call := time.Since(t0)
					_, err := m.Apply(context.Background(), cmd)
					ret := time.Since(t0)
					var ref *state.Refusal
					out := regOutput{ok: err == nil}
					switch {
					case errors.Is(err, ErrNoLeader):
						continue // surely nothing happened
					case errors.As(err, &ref) && ref.Code != state.RefusedChanged:
						continue // says nothing about the register
					case errors.Is(err, ErrOutcomeUnknown):
						out.unknown, ret = true, time.Hour
					}
					mu.Lock()
					id := c
					if out.unknown {
						unknown++
						id = 1000 + len(h)
					}
					if in.cas && out.ok {
						granted++
					}
					h = append(h, porcupine.Operation{ClientId: id, Input: in, Output: out, Call: call.Nanoseconds(), Return: ret.Nanoseconds() + 1})
					mu.Unlock()
					if err == nil {
						// Open decisions would refuse the next one for another reason.
						m.Apply(context.Background(), state.Command{Kind: state.CommandSettle, Settles: d.ID, Outcome: state.OutcomeDone})
					}
				}
			})
		}
		wg.Wait()
	})
	return h, unknown, granted
}

func TestCommittedWritesAreLinearisableUnderPartitions(t *testing.T) {
	for seed := range uint64(3) {
		h, unknown, granted := history(t, seed)
		t.Logf("seed %d: %d operations, %d unknown, %d granted comparisons", seed, len(h), unknown, granted)
		if len(h) < 50 || granted == 0 {
			t.Errorf("seed %d: too little happened", seed)
		}
		if r := porcupine.CheckOperationsTimeout(registers, h, 20*time.Second); r != porcupine.Ok {
			t.Errorf("seed %d: %s", seed, r)
		}
	}
}
