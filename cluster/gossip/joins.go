package gossip

import (
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"
)

// JoinFault is a configured peer that can't be joined now.
type JoinFault struct {
	Addr string // as ip:port, or as configured when its name does not resolve
	Why  string // for people
}

// JoinFaults lists the configured peers of which nothing is known but that the last
// attempt to join them failed. Routers that were members once are not among them:
// Members says how they are.
func (g *Gossip) JoinFaults() []JoinFault {
	r := g.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[string]bool{}
	for _, m := range r.members {
		known[m.node.Address()] = true
	}
	var list []JoinFault
	for addr, why := range r.failed {
		if r.asked[addr] && !known[addr] {
			list = append(list, JoinFault{addr, why})
		}
	}
	slices.SortFunc(list, func(a, b JoinFault) int { return strings.Compare(a.Addr, b.Addr) })
	return list
}

// joinResult notes how an attempt to join ended. A configured peer that was never a
// member is warned of: nothing else tells of it.
func (r *roster) joinResult(target string, err error) {
	why := ""
	if err != nil {
		why = joinCause(err)
	}
	r.mu.Lock()
	if r.list == nil {
		r.mu.Unlock()
		return // it failed because membership ends
	}
	if err == nil {
		delete(r.failed, target)
		r.mu.Unlock()
		r.log.Info().Str("addr", target).Msg("joined")
		return
	}
	if r.failed == nil {
		r.failed = map[string]string{}
	}
	if len(r.failed) > maxMembers {
		clear(r.failed)
	}
	r.failed[target] = why
	told := !r.asked[target]
	for _, m := range r.members {
		told = told || m.node.Address() == target
	}
	r.mu.Unlock()
	if told {
		r.log.Debug().Err(err).Str("addr", target).Msg("join attempt")
		return
	}
	r.warn("join "+target+why, func(e *zerolog.Event) {
		e.Str("addr", target).Str("why", why).Msg("can't join a peer, trying on")
	})
}

// failures copies why joins failed, by address, as far as they are not mended.
func (r *roster) failures() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := maps.Clone(r.failed)
	for _, m := range r.members {
		if m.state == Alive {
			delete(list, m.node.Address())
		}
	}
	return list
}

// ask notes which addresses the configured peers have now, and which names have
// none. What is no longer asked for is forgotten.
func (r *roster) ask(addrs []string, unresolved map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = map[string]bool{}
	for _, a := range addrs {
		r.asked[a] = true
	}
	if r.failed == nil {
		r.failed = map[string]string{}
	}
	for _, a := range r.cfg.Join {
		if why, ok := unresolved[a]; ok {
			r.asked[a], r.failed[a] = true, why
		}
	}
}

// SecretsDiffer is why a join fails where both have secrets and none in common.
const SecretsDiffer = "it has another secret than this router (cluster.secret_file)"

// joinCauses are memberlist's words for what goes wrong, and what they mean.
var joinCauses = []struct{ text, why string }{
	{"connection refused", "connection refused"},
	{"remote state is encrypted and encryption is not configured", "it asks for a secret, cluster.secret_file is not set here"},
	{"encryption is configured but remote state is not encrypted", "it has no secret, this router has one (cluster.secret_file)"},
	{"o installed keys could decrypt", SecretsDiffer},
	{"received invalid msgType", "it is no router's cluster address"},
	{"i/o timeout", "it does not answer"},
	{"deadline exceeded", "it does not answer"},
	{"EOF", "it hung up: it has another cluster.name, or is no router's cluster address"},
	{"connection reset", "it hung up: it has another cluster.name, or is no router's cluster address"},
}

// joinCause says why a join failed. memberlist passes causes on as text only.
func joinCause(err error) string {
	text := err.Error()
	for _, c := range joinCauses {
		if strings.Contains(text, c.text) {
			return c.why
		}
	}
	if _, inner, ok := strings.Cut(text, "failed to join "); ok {
		if _, cause, ok := strings.Cut(inner, ": "); ok {
			text = cause
		}
	}
	return strings.Join(strings.Fields(text), " ")
}
