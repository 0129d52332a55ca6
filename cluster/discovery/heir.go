package discovery

import (
	"github.com/hearsay-llm/hearsay/state"
)

// Succeed takes over what another Pool of the same name knows: its replicas, and what
// was said by the sources that both have. The other one applies nothing more. Replicas
// that no source of p lists go, as ever, once all of these have answered. Call it before
// Run; the other's Run is ended by whoever started it.
func (p *Pool) Succeed(old *Pool) {
	old.step.Lock()
	defer old.step.Unlock()
	old.mu.Lock()
	old.over = true
	members, sources, ready := old.members, old.sources, old.ready
	old.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heir, p.members, p.ready = true, members, ready
	for _, t := range p.sources {
		for _, was := range sources {
			if was.source.Kind() == t.source.Kind() && was.source.Where() == t.source.Where() {
				source := t.source
				*t = *was
				t.source = source
			}
		}
		p.recheck(t)
	}
}

// End has p apply nothing more, and takes its figures out.
func (p *Pool) End() {
	p.step.Lock()
	defer p.step.Unlock()
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.cfg.Metrics.remove(p)
}

// Recheck judges again what the sources list, where that rests on other pools.
func (p *Pool) Recheck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.sources {
		p.recheck(t)
	}
	p.wake()
}

// recheck judges one source's list again. The caller holds mu.
func (p *Pool) recheck(t *told) {
	if t.found == nil {
		return
	}
	if replicas, refused, err := p.check(t.found); err == nil { // it was right in itself, and is
		p.refuse(t, append(refused, t.unfit...))
		t.replicas = replicas
	}
}

// mayBeListed reports whether a replica that no source lists was another Pool's, and a
// source that has not answered yet may list it. The caller holds mu.
func (p *Pool) mayBeListed(r *state.Replica) bool {
	return p.heir && !p.answered() && p.cfg.Allow.Check(r.URL) == nil
}

// others are the replicas of other pools.
func (p *Pool) others() map[string]string {
	if p.cfg.Others == nil {
		return nil
	}
	return p.cfg.Others()
}
