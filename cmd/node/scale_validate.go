package node

import (
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
)

// validateActuator judges what a pool says of its actuator: its own keys, and that there
// are none of another one's, which would have no effect.
func (p *PoolConfig) validateActuator(v *faults, at string) {
	a := p.Scale.Actuator
	switch {
	case a != "process":
	case len(p.Scale.Command) == 0:
		v.add(at+".command", "is missing: the process actuator needs the command that starts an engine, with {port} in it")
	case !slices.ContainsFunc(p.Scale.Command, func(s string) bool { return strings.Contains(s, "{port}") }):
		v.add(at+".command", "lacks {port}, which stands for the port that the engine is to listen on")
	}
	if a == "webhook" {
		p.Scale.Webhook.validate(v, at+".webhook")
	}
	if p.Discover.any() && (a == "process" || a == "webhook") {
		v.add(at+".actuator", "is %s: replicas found by discovery can't be scaled by it: use kubernetes or dry_run", a)
	}
	p.validateKubernetes(v, at+".kubernetes")
	p.foreignKeys(v, at)
	most := map[string]int{"process": actuator.MaxProcesses, "kubernetes": actuator.MaxPods}[a]
	if n := p.Scale.Max; most > 0 && n > most {
		v.add(at+".max", "is %d: the %s actuator runs %d replicas of a pool at most: lower it", n, a, most)
	}
}

// foreignKeys reports the keys of actuators that a pool does not have.
func (p *PoolConfig) foreignKeys(v *faults, at string) {
	s := &p.Scale
	if !slices.Contains(actuators, s.Actuator) {
		return // which is told of: nobody knows whose keys there may be
	}
	webhook := s.Webhook
	if webhook.Timeout == defaultWebhookTimeout {
		webhook.Timeout = 0
	}
	for _, x := range []struct {
		key, of string
		given   bool
	}{
		{"command", "process", len(s.Command) > 0},
		{"dir", "process", s.Dir != ""},
		{"webhook", "webhook", webhook != WebhookConfig{}},
		{"kubernetes", "kubernetes", s.Kubernetes != ScaleKubernetesConfig{}},
	} {
		if x.given && s.Actuator != x.of {
			v.add(at+"."+x.key, "is for scale.actuator %s, which is %s: set scale.actuator to %s, or leave this out", x.of, s.Actuator, x.of)
		}
	}
}
