package node

import (
	"strings"
	"testing"
)

// What is wrong with an actuator is said once, and for its true reason.
func TestActuatorThatCanNotBeIsOneFault(t *testing.T) {
	f := func(keys string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: [{name: chat, model: m, "+keys+"}]\n")
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", keys, got, want)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: %q, want %q", keys, got, want)
			}
		}
	}
	const found = "scale.actuator: is process: replicas found by discovery can't be scaled by it: use kubernetes or dry_run"
	const process = `scale: {actuator: process, command: [e, "{port}"]}`
	f(`discover: {file: x}, `+process, found)
	f(`discover: {file: x}, replicas: [{url: "http://a:1", role: prefill}, {url: "http://b:1", role: decode}], `+process, found)
	f(`discover: {file: x}, scale: {actuator: k8s}`, `scale.actuator: "k8s" is unknown`)
	f(`discover: {kubernetes: {selector: a=b}}, scale: {actuator: k8s, kubernetes: {name: vllm}}`, `scale.actuator: "k8s" is unknown`)
	f(`discover: {file: x}, scale: {min: 0, max: 4, budget: 3}`)
	f(`scale: {max: 4, budget: 3}`) // replicas with roles may be added
}
