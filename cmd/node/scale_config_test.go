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

// A key that has no effect is told of, and so is a bound that can't be reached.
func TestKeysOfOtherActuators(t *testing.T) {
	f := func(scale string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: [{name: chat, model: m, scale: {"+scale+"}}]\n")
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", scale, got, want)
			return
		}
		for i := range want {
			if got[i] != "line 1: pools[0].scale."+want[i] {
				t.Errorf("%s: %q, want %q", scale, got, want)
			}
		}
	}
	const process = `actuator: process, command: [e, "{port}"]`
	f(process + `, dir: /x, max: 256`)
	f(process+`, max: 1000000`, "max: is 1000000: the process actuator runs 256 replicas of a pool at most: lower it")
	f(`max: 1000000`) // on paper
	f(process+`, webhook: {timeout: 1s}`, "webhook: is for scale.actuator webhook, which is process: set scale.actuator to webhook, or leave this out")
	f(`command: [e, "{port}"], dir: /x`,
		"command: is for scale.actuator process, which is dry_run: set scale.actuator to process, or leave this out",
		"dir: is for scale.actuator process, which is dry_run: set scale.actuator to process, or leave this out")
	f(`actuator: dry_run, webhook: {url: "http://h"}, kubernetes: {name: vllm}`,
		"webhook: is for scale.actuator webhook, which is dry_run: set scale.actuator to webhook, or leave this out",
		"kubernetes: is for scale.actuator kubernetes, which is dry_run: set scale.actuator to kubernetes, or leave this out")
	f(`actuator: proces, command: [e]`, `actuator: "proces" is unknown: use dry_run, process, kubernetes, webhook`)
}
