package node

import (
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func TestScaleKubernetesFaults(t *testing.T) {
	f := func(keys string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: [{name: chat, model: m, "+keys+"}]\n")
		if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	const find = `discover: {kubernetes: {selector: "app=vllm"}}, scale: {actuator: kubernetes, kubernetes: `
	const at = "line 1: pools[0].scale.kubernetes"
	f(find + `{name: vllm}}`)
	f(find + `{resource: leaderworkerset.x-k8s.io/v1/leaderworkersets, namespace: llm, name: vllm}}`)
	f(find + `{prefill: p, decode: d, name: b}}`)
	f(find+`{}}`, at+".name: is missing: the object whose Pods are the replicas, or prefill and decode where they have roles")
	f(find+`{resource: rollouts.argoproj.io, name: vllm}}`,
		at+`.resource: "rollouts.argoproj.io" is no resource: use deployments.apps, statefulsets.apps, or group/version/plural such as leaderworkerset.x-k8s.io/v1/leaderworkersets`)
	f(find+`{prefill: p}}`, at+": has one of prefill and decode: name both, or only name")
	f(find+`{prefill: p, decode: p}}`, at+": names p for two roles: each has an object of its own")
	f(find+`{name: vllm, context: x}}`, at+`.context: is "x", of no kubeconfig: name the file`)
	f(`scale: {actuator: kubernetes, kubernetes: {name: vllm}}`, at+": needs discover.kubernetes, which finds the Pods that this makes")
	f(`scale: {kubernetes: {name: vllm}}`, at+": is for scale.actuator kubernetes, which is dry_run: set scale.actuator to kubernetes, or leave this out")
	f(find+`{name: vllm}, max: 5000}`, "line 1: pools[0].scale.max: is 5000: the kubernetes actuator runs 4096 replicas of a pool at most: lower it")
	f(`engine: vllm, dp_ranks: 2, `+find+`{name: vllm}}`, "line 1: pools[0].dp_ranks: is 2: pools with several ranks behind a URL can't be scaled by the kubernetes actuator, use dry_run")
}

func TestTwoPoolsOfOneObject(t *testing.T) {
	pool := func(name, keys string) string {
		return `{name: ` + name + `, model: ` + name + `, discover: {kubernetes: {selector: "app=x"}}, scale: {actuator: kubernetes, kubernetes: {` + keys + `}}}`
	}
	f := func(a, b string, want ...string) {
		t.Helper()
		got := faultsOf(t, "pools: ["+pool("a", a)+", "+pool("b", b)+"]\n")
		if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
			t.Errorf("%s, %s: %q, want %q", a, b, got, want)
		}
	}
	f("name: vllm", "name: vllm", `line 1: pools[1].scale.kubernetes: names deployments.apps vllm, which pool "a" sizes already`)
	f("name: vllm", "name: vllm, resource: statefulsets.apps")
	f("name: vllm", "name: vllm, namespace: other")
}

// What discovery says of the API server holds for scaling, too.
func TestScaleKubernetesFollowsDiscovery(t *testing.T) {
	c, err := load(t, `pools: [{name: c, model: m, discover: {kubernetes: {selector: "app=x", namespace: llm, kubeconfig: /k, context: there}}, scale: {actuator: kubernetes, kubernetes: {prefill: p, decode: d}}}]`)
	if err != nil {
		t.Fatal(err)
	}
	k := c.Pools[0].Scale.Kubernetes
	if k.Namespace != "llm" || k.Kubeconfig != "/k" || k.Context != "there" || k.Resource != "deployments.apps" {
		t.Errorf("%+v", k)
	}
	if n := k.names(); len(n) != 2 || n[state.RolePrefill] != "p" || n[state.RoleDecode] != "d" {
		t.Errorf("%v", n)
	}
	if s := c.Pools[0].Spec(); s.ScaleActuator != "kubernetes" || s.QueueHold == 0 {
		t.Errorf("%+v", s)
	}
}
