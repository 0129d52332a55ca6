package main

import (
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func TestPolicyOfAPoolByCommand(t *testing.T) {
	newRig(t)
	call(t, "pool", "policy", "chat", "auto").wants(t, 0, "pool chat: policy auto, until --release (facts at ")
	call(t, "pool", "policy", "chat", "auto").wants(t, 0, "set already: nothing changed")
	call(t, "status").wants(t, 0, "auto (ttft), file: ttft")
	if p := isJSON[console.Status](t, call(t, "status", "-o", "json")).Pools[0]; p.Policy != "auto" || p.FilePolicy != "ttft" || p.Effective != "ttft" || p.Sharing != -1 {
		t.Errorf("%+v", p)
	}
	call(t, "pool", "policy", "chat", "--release").wants(t, 0, "pool chat: the policy of its configuration again")
	call(t, "pool", "policy", "chat", "--release").wants(t, 0, "has the policy of its configuration, ttft: nothing changed")
	call(t, "pool", "policy", "none", "auto").wants(t, 1, "no pool none: see hearsay status")
	call(t, "pool", "policy", "chat").wants(t, 2, "POLICY is missing")
	call(t, "pool", "policy", "chat", "").wants(t, 2, "POLICY is missing")
	call(t, "pool", "policy", "").wants(t, 2, "POOL is missing")
	call(t, "pool", "policy").wants(t, 2, "POOL is missing")
	call(t, "pool", "policy", "chat", "best").wants(t, 2, `POLICY: "best" is unknown: use ttft, `)
	call(t, "pool", "policy", "chat", "auto", "--release").wants(t, 2, "exclude each other")
	call(t, "pool", "policy", "chat", "auto", "now").wants(t, 2, "one argument too many")
}

func TestDiagnoseByCommand(t *testing.T) {
	newRig(t)
	var r result
	within(t, "a diagnosis of a pool that was read", func() bool {
		r = call(t, "diagnose")
		return strings.Contains(r.out, "pool chat: healthy\n")
	})
	r.wants(t, 0, "replicas in traffic 2; in flight 0 requests")
	call(t, "diagnose", "chat").wants(t, 0, "pool chat: healthy")
	call(t, "diagnose", "none").wants(t, 1, "no pool none: see hearsay status")
	if list := isJSON[[]console.Diagnosis](t, call(t, "diagnose", "-o", "json")); len(list) != 1 || list[0].Effective != "ttft" || len(list[0].Findings) != 1 {
		t.Errorf("%+v", list)
	}
}
