package main

import (
	"fmt"
	"strings"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// target is a pool's target for people, or those of its roles, - where none is committed;
// where holds are told, with who holds it.
func target(p *console.Pool, holds bool) string {
	one := func(n int, set, held bool) string {
		switch {
		case held && holds:
			return fmt.Sprintf("%d (held)", n)
		case set || n > 0 || held:
			return fmt.Sprint(n)
		}
		return "-"
	}
	if len(p.Targets) == 0 {
		return one(p.Target, p.TargetSet, p.Held)
	}
	var parts []string
	for _, r := range p.Targets {
		parts = append(parts, r.Role+" "+one(r.Target, r.TargetSet, r.Held))
	}
	return strings.Join(parts, ", ")
}
