package gossip

import (
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// JoinFault is a configured peer that can't be joined now.
type JoinFault struct {
	Addr string // as ip:port, or as configured when its name does not resolve
	Why  string // for people
}

// failure is why an attempt to join an address failed.
type failure struct {
	why    string // for people
	answer bool   // somebody answered there, whom this router can't be one with
	at     time.Time
}

// staleJoin is the age past which a failure says nothing of the present: every
// address that is still worth it is tried again long before.
const staleJoin = time.Minute

// JoinFaults lists the configured peers of which nothing is known but that the last
// attempt to join them failed. Routers that were members once are not among them:
// Members says how they are. Nor is an address where nobody answers, when another
// one of the same name is a member's or was joined: names have old addresses, and
// of two families.
func (g *Gossip) JoinFaults() []JoinFault {
	r := g.roster
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	known, reached := map[string]bool{}, map[string]bool{}
	for _, m := range r.members {
		known[m.node.Address()] = true
		if from, ok := r.source[m.node.Address()]; ok && m.state == Alive {
			reached[from] = true
		}
	}
	for addr := range r.joined {
		if from, ok := r.source[addr]; ok {
			reached[from] = true
		}
	}
	var list []JoinFault
	for addr, f := range r.failed {
		from, asked := r.source[addr]
		if asked && !known[addr] && now.Sub(f.at) < staleJoin && (f.answer || !reached[from]) {
			list = append(list, JoinFault{addr, f.why})
		}
	}
	slices.SortFunc(list, func(a, b JoinFault) int { return strings.Compare(a.Addr, b.Addr) })
	return list
}

// joinResult notes how an attempt to join ended. A configured peer that was never a
// member is warned of: nothing else tells of it.
func (r *roster) joinResult(target string, err error) {
	now := time.Now()
	var f failure
	if err != nil {
		f = joinCause(err)
		f.at = now
	}
	r.mu.Lock()
	if r.list == nil {
		r.mu.Unlock()
		return // it failed because membership ends
	}
	if err == nil {
		again := r.joined[target] // an address that is no member's own is tried for ever
		refused := r.refusedAt(target, now)
		delete(r.failed, target)
		if len(r.joined) > maxMembers {
			clear(r.joined)
		}
		r.joined[target] = true
		r.mu.Unlock()
		if !again && !refused {
			r.log.Info().Str("addr", target).Msg("joined")
		}
		return
	}
	_, asked := r.source[target]
	told := !asked
	for _, m := range r.members {
		if m.node.Address() != target {
			continue
		}
		if m.state == Alive {
			r.mu.Unlock()
			return // it has joined us meanwhile
		}
		told = true
	}
	if len(r.failed) > maxMembers {
		clear(r.failed)
	}
	r.failed[target] = f
	delete(r.joined, target)
	r.mu.Unlock()
	if told {
		r.log.Debug().Err(err).Str("addr", target).Msg("join attempt")
		return
	}
	r.warn("join "+target+f.why, func(e *zerolog.Event) {
		e.Str("addr", target).Str("why", f.why).Msg("can't join a peer, trying on")
	})
}

// failures copies the causes of which joins fail at present, by address.
func (r *roster) failures(now time.Time) map[string]failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := map[string]failure{}
	for addr, f := range r.failed {
		if now.Sub(f.at) < staleJoin {
			list[addr] = f
		}
	}
	return list
}

// ask notes which addresses the configured peers have now, and which names have
// none. What is no longer asked for is forgotten.
func (r *roster) ask(join []string, source, unresolved map[string]string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
	for _, a := range join {
		if why, ok := unresolved[a]; ok {
			r.source[a], r.failed[a] = a, failure{why: why, at: now}
		} else if source[a] == "" {
			delete(r.failed, a) // its name resolves
		}
	}
}

// SecretsDiffer is why a join fails where both have secrets and none in common.
const SecretsDiffer = "it has another secret than this router (cluster.secret_file)"

const (
	clusterAddress = "no router's cluster address (usually port 7946)"
	hungUp         = "it hung up: it has another cluster.name, or is " + clusterAddress
	// silent is what a server of another protocol is, which waits for a request's end.
	silent = "it takes connections and says nothing: it hangs, or is " + clusterAddress
)

// joinCauses are memberlist's words for what goes wrong, and what they mean.
var joinCauses = []struct {
	text, why string
	answer    bool
}{
	{"connection refused", "connection refused", false},
	{"remote state is encrypted and encryption is not configured", "it asks for a secret, cluster.secret_file is not set here", true},
	{"encryption is configured but remote state is not encrypted", "it has no secret, this router has one (cluster.secret_file)", true},
	{"o installed keys could decrypt", SecretsDiffer, true},
	{"received invalid msgType", "it is " + clusterAddress, true},
	{"i/o timeout", "it does not answer", false},
	{"deadline exceeded", "it does not answer", false},
	{"EOF", hungUp, true},
	{"connection reset", hungUp, true},
}

// joinCause says why a join failed. memberlist passes causes on as text only.
func joinCause(err error) failure {
	text := err.Error()
	if strings.Contains(text, "i/o timeout") && !strings.Contains(text, "dial ") {
		return failure{why: silent}
	}
	for _, c := range joinCauses {
		if strings.Contains(text, c.text) {
			return failure{why: c.why, answer: c.answer}
		}
	}
	if _, inner, ok := strings.Cut(text, "failed to join "); ok {
		if _, cause, ok := strings.Cut(inner, ": "); ok {
			text = cause
		}
	}
	return failure{why: strings.Join(strings.Fields(text), " ")}
}
