package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// BenchmarkApplyRows is one peer's delta of 4 changed replicas, published, as it
// comes every 10 ms from every router.
func BenchmarkApplyRows(b *testing.B) {
	for _, size := range []struct{ replicas, routers int }{{5, 3}, {64, 32}, {400, 32}, {1000, 10}} {
		b.Run(fmt.Sprintf("replicas=%d/routers=%d", size.replicas, size.routers), func(b *testing.B) {
			s := newStore(size.replicas)
			for r := range size.routers {
				s.ApplyRows(fullRows(r, 1, size.replicas))
			}
			rows := make([]state.Row, 4)
			seq := uint64(1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				seq++
				for k := range rows {
					rows[k] = state.Row{
						Replica: replicaID((i*7 + k*13) % size.replicas),
						Load:    state.Load{InFlight: int64(1 + i%5), Prefill: 1, UncachedTokens: int64(seq)},
					}
				}
				s.ApplyRows(state.Rows{Router: routerID(i % size.routers), Boot: 1, Seq: seq, Rows: rows})
			}
		})
	}
}

// BenchmarkSetReplicas is a whole listing made anew.
func BenchmarkSetReplicas(b *testing.B) {
	s := newStore(1000)
	for r := range 10 {
		s.ApplyRows(fullRows(r, 1, 1000))
	}
	list := replicas(1000)
	b.ReportAllocs()
	for b.Loop() {
		s.SetReplicas(state.SourceStatic, "chat", list)
	}
}

// BenchmarkTicket is one request's life in the load.
func BenchmarkTicket(b *testing.B) {
	s := newStore(1)
	r := s.View().Pools[0].Replicas[0]
	b.ReportAllocs()
	for b.Loop() {
		t := s.Begin(r, 100)
		t.FirstToken()
		t.End()
	}
}

func replicaID(i int) state.ReplicaID { return state.ReplicaID(fmt.Sprintf("r%04d", i)) }
func routerID(i int) state.RouterID   { return state.RouterID(fmt.Sprintf("router%02d", i)) }

func replicas(n int) []state.Replica {
	list := make([]state.Replica, n)
	for i := range list {
		list[i] = state.Replica{ID: replicaID(i), URL: fmt.Sprintf("http://10.0.0.1:%d", 8000+i), Role: state.RoleBoth}
	}
	return list
}

func newStore(n int) *state.Store {
	s := state.NewStore(state.Config{
		Self:  "self",
		Clock: state.NewClock(99, time.Now()),
		Pools: []state.PoolSpec{{Name: "chat", Model: "llama", Aliases: []string{"default"}}},
	})
	s.SetReplicas(state.SourceStatic, "chat", replicas(n))
	return s
}

func fullRows(router int, seq uint64, n int) state.Rows {
	m := state.Rows{Router: routerID(router), Boot: 1, Seq: seq, Full: true}
	for i := range n {
		m.Rows = append(m.Rows, state.Row{Replica: replicaID(i), Load: state.Load{InFlight: 2, Prefill: 1, UncachedTokens: 100}})
	}
	return m
}
