package node

import "testing"

func TestRanksThatCannotBe(t *testing.T) {
	f := func(keys string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: [{name: chat, model: m, "+keys+"}]\n")
		if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	f("dp_ranks: 4")
	f("dp_ranks: 4, engine: sglang, replicas: [{url: \"http://a:1\"}]")
	f("dp_ranks: 1, engine: openai")
	f("dp_ranks: -1", "line 1: pools[0].dp_ranks: is -1: 1 to 1024")
	f("dp_ranks: 2, engine: llamacpp", "line 1: pools[0].dp_ranks: is 2: engine llamacpp has no data-parallel ranks, use 1")
	f("dp_ranks: 2, scale: {actuator: process, command: [e, \"{port}\"]}",
		"line 1: pools[0].dp_ranks: is 2: pools with several ranks behind a URL can't be scaled by the process actuator, use dry_run")
}
