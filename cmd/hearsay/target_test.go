package main

import (
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func TestTargetIsTold(t *testing.T) {
	f := func(p console.Pool, holds bool, want string) {
		t.Helper()
		if got := target(&p, holds); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(console.Pool{}, true, "-")
	f(console.Pool{TargetSet: true}, true, "0")
	f(console.Pool{Held: true}, true, "0 (held)")
	f(console.Pool{Held: true}, false, "0")
	f(console.Pool{Target: 2, Held: true}, false, "2")
	f(console.Pool{Target: 2}, true, "2")
	f(console.Pool{Targets: []console.RoleTarget{{Role: "prefill"}, {Role: "decode", Target: 3, Held: true}}}, true, "prefill -, decode 3 (held)")
	f(console.Pool{Targets: []console.RoleTarget{{Role: "prefill", TargetSet: true}, {Role: "decode"}}}, true, "prefill 0, decode -")
}
