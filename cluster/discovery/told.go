package discovery

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// told is what a Pool has of one source.
type told struct {
	source   Source
	replicas []state.Replica // as checked; the last that is believed
	found    []Found         // of which they are made
	unfit    []Refused       // by the source itself
	refused  []Refused
	said     map[Refused]bool // those that the log names; at most maxSaid
	unsaid   int              // the most at a time that it does not
	at       time.Time        // of the last good answer
	since    time.Time        // of the first failure since then
	problem  string           // for people
	failures uint64

	empty time.Time // since when it lists nothing, which is not believed yet
}

// Report takes what a source says, by its place in Config.Sources. It reports whether
// that asks for a Step.
func (p *Pool) Report(source int, x Snapshot, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	t := p.sources[source]
	if n := size(x.Replicas); n > maxFound {
		x = Snapshot{Err: fmt.Errorf("lists %d replicas, %d at most are taken", n, maxFound)}
	}
	problem := ""
	if x.Err != nil {
		t.failures++
		if t.since.IsZero() {
			t.since = now
		}
		if problem = x.Err.Error(); !x.Partial {
			p.complain(t, problem)
			return false
		}
	}
	replicas, refused, err := p.check(x.Replicas)
	if err != nil { // a source that contradicts itself has failed
		t.failures++
		p.complain(t, err.Error())
		return false
	}
	p.refuse(t, slices.Concat(refused, x.Refused))
	first := x.Err == nil && t.at.IsZero()
	if x.Err == nil {
		t.at, t.since = now, time.Time{}
	}
	if len(replicas) == 0 && len(t.replicas) > 1 && t.source.Doubtful() {
		doubt := t.empty.IsZero()
		if doubt {
			t.empty = now
		}
		if now.Sub(t.empty) < p.cfg.Keep {
			if problem == "" {
				problem = "lists no replicas"
			}
			p.complain(t, fmt.Sprintf("%s, where it listed %d replicas: those are kept for %v", problem, len(t.replicas), p.cfg.Keep))
			return doubt // a Step knows when the doubt ends
		}
	}
	t.empty, t.found, t.unfit = time.Time{}, x.Replicas, x.Refused
	p.complain(t, problem)
	if slices.Equal(replicas, t.replicas) {
		return first
	}
	t.replicas = replicas
	return true
}

// settle ends doubts whose time is over, and says when the next one does. The caller
// holds mu.
func (p *Pool) settle(now time.Time) (next time.Duration) {
	next = maxIdle
	for _, t := range p.sources {
		switch left := p.cfg.Keep - now.Sub(t.empty); {
		case t.empty.IsZero():
		case left > 0:
			next = min(next, left)
		default:
			p.log.Warn().Str("source", t.source.Kind()).Str("where", t.source.Where()).Int("replicas", len(t.replicas)).
				Msg("it still lists no replicas: those it had are let go")
			t.empty, t.replicas, t.found = time.Time{}, nil, nil
		}
	}
	return next
}

// complain notes and logs a problem, once while it stays the same, or that there is
// none any more.
func (p *Pool) complain(t *told, problem string) {
	if t.problem == problem {
		return
	}
	t.problem = problem
	if problem == "" {
		p.log.Info().Str("source", t.source.Kind()).Str("where", t.source.Where()).Msg("discovery works again")
		return
	}
	p.log.Warn().Str("source", t.source.Kind()).Str("where", t.source.Where()).Int("kept", len(t.replicas)).
		Str("reason", problem).Msg("discovery fails, what was known stays")
}

// maxSaid bounds the refused replicas of a source that the log names.
const maxSaid = 100

// refuse notes replicas that are not let in. The log has each, with its reason, once.
func (p *Pool) refuse(t *told, list []Refused) {
	t.refused = list
	unsaid := 0
	for _, r := range list {
		switch {
		case t.said[r]:
		case len(t.said) == maxSaid:
			unsaid++
		default:
			if t.said == nil {
				t.said = map[Refused]bool{}
			}
			t.said[r] = true
			p.log.Warn().Str("source", t.source.Kind()).Str("where", t.source.Where()).Str("url", r.URL).Str("reason", r.Why).Msg("discovered replica refused")
		}
	}
	if unsaid > t.unsaid {
		t.unsaid = unsaid
		p.log.Warn().Str("source", t.source.Kind()).Str("where", t.source.Where()).Int("replicas", unsaid).Msg("more discovered replicas refused, which are not named")
	}
}

// check makes replicas of what a source lists, in id order, without those that must
// not be. A list that says two things of one address is wrong as a whole.
func (p *Pool) check(list []Found) (replicas []state.Replica, refused []Refused, err error) {
	byURL, others := map[string]state.Replica{}, p.others()
	for _, f := range list {
		u, err := state.NormalURL(f.URL)
		if err == nil {
			err = p.cfg.Allow.Check(u)
		}
		if err == nil && f.ID != "" && !id.MatchString(string(f.ID)) {
			err = fmt.Errorf("its id %q is not 1 to 128 letters, digits and ._:-", clip(string(f.ID)))
		}
		if err == nil {
			err = p.serves(&f)
		}
		if pool := cmp.Or(others[state.Authority(u)], others[string(f.ID)]); err == nil && pool != "" {
			err = fmt.Errorf("it is a replica of pool %s, and an address or id is one replica of one pool: take it out of one of them", pool)
		}
		if err != nil {
			told := f.URL[strings.LastIndexByte(f.URL, '@')+1:] // before it may be secrets
			refused = append(refused, Refused{clip(told), clip(err.Error())})
			continue
		}
		r := state.Replica{
			ID: cmp.Or(f.ID, state.ReplicaID(state.Authority(u))), Pool: p.cfg.Name, URL: u, Engine: p.cfg.Engine, Name: f.Name,
			Role: cmp.Or(f.Role, state.RoleBoth), BootstrapPort: f.BootstrapPort, Ranks: f.Ranks, Leaving: f.Leaving, Source: state.SourceDiscovery,
		}
		if r.Role == state.RolePrefill && r.BootstrapPort == 0 {
			r.BootstrapPort = state.DefaultBootstrapPort
		}
		a := state.Authority(u)
		switch other, twice := byURL[a]; {
		case !twice || better(&r, &other):
			byURL[a] = r
		case other.ID == r.ID && other != r && other.Leaving == "" && r.Leaving == "":
			return nil, nil, fmt.Errorf("says two things of %s: %s and %s", a, other.Role, r.Role)
		}
	}
	for _, r := range byURL {
		replicas = append(replicas, r)
	}
	slices.SortFunc(replicas, func(a, b state.Replica) int { return cmp.Or(compare(a.ID, b.ID), cmp.Compare(a.URL, b.URL)) })
	for i := 1; i < len(replicas); i++ {
		if replicas[i].ID == replicas[i-1].ID {
			return nil, nil, fmt.Errorf("gives the id %s to %s and to %s", replicas[i].ID, replicas[i-1].URL, replicas[i].URL)
		}
	}
	slices.SortFunc(refused, func(a, b Refused) int { return cmp.Compare(a.URL, b.URL) })
	return replicas, slices.Compact(refused), nil
}

// serves says why the pool's engines can't have a role, or ranks, or nil. It is what
// holds of the configuration's own replicas.
func (p *Pool) serves(f *Found) error {
	leg := f.Role == state.RolePrefill || f.Role == state.RoleDecode
	switch e := p.cfg.Engine; e {
	case state.EngineLlamaCpp, state.EngineOpenAI, state.EngineAnthropic:
		if leg {
			return fmt.Errorf("engine %s can't serve a request in two legs, as role %s asks", e, f.Role)
		}
		if f.Ranks > 1 {
			return fmt.Errorf("engine %s has no data-parallel ranks", e)
		}
	case state.EngineVLLM:
	default:
		if leg && f.Ranks > 1 {
			return fmt.Errorf("with role %s only engine vllm can have several data-parallel ranks", f.Role)
		}
	}
	return nil
}

// size is how many replicas a list makes.
func size(list []Found) (n int) {
	for i := range list {
		n += max(1, list[i].Ranks)
	}
	return n
}

// id is what a replica may be called: ids are parts of paths.
var id = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// better reports whether r is who has an address now, and other is not: one of them
// leaves. Two that stay are told apart by their ids, on all routers alike.
func better(r, other *state.Replica) bool {
	if (r.Leaving == "") != (other.Leaving == "") {
		return r.Leaving == ""
	}
	return r.ID < other.ID
}

func compare(a, b state.ReplicaID) int { return cmp.Compare(a, b) }

// maxText bounds what is kept of foreign text.
const maxText = 200

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "..."
	}
	return s
}

// wanted is what the sources list together, by id. Where two list one address, the
// later source is right. The caller holds mu.
func (p *Pool) wanted() map[state.ReplicaID]state.Replica {
	byURL := map[string]state.Replica{}
	for _, t := range p.sources {
		for _, r := range t.replicas {
			byURL[state.Authority(r.URL)] = r
		}
	}
	want := make(map[state.ReplicaID]state.Replica, len(byURL))
	for _, r := range byURL {
		if other, twice := want[r.ID]; !twice || r.URL < other.URL {
			want[r.ID] = r
		}
	}
	return want
}

func (t *told) status() SourceStatus {
	return SourceStatus{
		Kind: t.source.Kind(), Where: t.source.Where(), Replicas: len(t.replicas), At: t.at, Since: t.since,
		Problem: t.problem, Refused: t.refused, Failures: t.failures,
	}
}
