package console

import (
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func TestNamedReplica(t *testing.T) {
	f := func(want state.ReplicaID, replicas ...state.Replica) {
		t.Helper()
		v := &state.View{Pools: []*state.PoolView{{}}}
		for _, r := range replicas {
			v.Pools[0].Replicas = append(v.Pools[0].Replicas, &state.ReplicaView{Replica: r})
		}
		var have state.ReplicaID
		if x := named(v, "vllm-0"); x != nil {
			have = x.Process()
		}
		if have != want {
			t.Errorf("%+v: %q, want %q", replicas, have, want)
		}
	}
	old, now := state.Replica{ID: "u1", Name: "vllm-0", Leaving: "stops"}, state.Replica{ID: "u2", Name: "vllm-0"}
	f("")
	f("u2", now)
	f("u1", old)
	f("u2", old, now)
	f("u2", now, old)
	f("", now, state.Replica{ID: "u3", Name: "vllm-0"})
	f("u4", state.Replica{ID: "u4#0", Name: "vllm-0"}, state.Replica{ID: "u4#1", Rank: 1, Name: "vllm-0"})
	f("", state.Replica{ID: "u5", Name: "vllm-1"})
}
