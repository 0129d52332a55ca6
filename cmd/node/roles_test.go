package node

import "testing"

func TestRolesInAPool(t *testing.T) {
	f := func(keys string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: [{name: chat, model: m, "+keys+"}]\n")
		if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	const p, d, b = `{url: "http://p:1", role: prefill}`, `{url: "http://d:1", role: decode}`, `{url: "http://b:1"}`
	f(`replicas: [` + p + `, ` + d + `]`)
	f(`engine: sglang, replicas: [{url: "http://p:1", role: prefill, bootstrap_port: 9001}, ` + d + `, ` + b + `]`)
	f(`engine: vllm, kv_connector: mooncake, dp_ranks: 2, replicas: [` + p + `, ` + d + `]`)
	f(`replicas: [`+p+`, `+b+`]`, "line 1: pools[0].replicas: has 1 of role prefill and none of role decode: nobody would answer for them")
	f(`replicas: [`+d+`, `+b+`]`, "line 1: pools[0].replicas: has 1 of role decode and none of role prefill: use role both, or add one that prefills")
	f(`replicas: [{url: "http://p:1", role: fill}]`, `line 1: pools[0].replicas[0].role: "fill" is unknown: use both, prefill, decode`)
	f(`kv_connector: lmcache`, `line 1: pools[0].kv_connector: "lmcache" is unknown: use nixl, mooncake`)
	f(`kv_connector: mooncake, replicas: [`+p+`, `+d+`]`, "line 1: pools[0].kv_connector: is mooncake, which is vLLM's: set engine to vllm")
	f(`replicas: [{url: "http://b:1", bootstrap_port: 1}]`, "line 1: pools[0].replicas[0].bootstrap_port: is for replicas of role prefill alone: those that decode call there")
	f(`replicas: [{url: "http://p:1", role: prefill, bootstrap_port: 70000}, `+d+`]`, "line 1: pools[0].replicas[0].bootstrap_port: is 70000: a port is 1 to 65535")
	f(`engine: llamacpp, replicas: [`+p+`, `+d+`]`,
		"line 1: pools[0].engine: is llamacpp, which can't serve a request in two legs: with roles prefill and decode use vllm, sglang or auto")
	f(`engine: sglang, dp_ranks: 2, replicas: [`+p+`, `+d+`]`, "line 1: pools[0].dp_ranks: is 2: with roles prefill and decode only engine vllm can have several")
	f(`replicas: [`+p+`, `+d+`], scale: {actuator: process, command: [e, "{port}"]}`,
		"line 1: pools[0].scale.actuator: is process: pools with roles prefill and decode can only be scaled by dry_run and kubernetes")
}
