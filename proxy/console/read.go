package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	info, members := s.node.Info(), s.node.Members()
	known := namesOf(members)
	info.Raft.LeaderName, info.Raft.VoterNames = known.of(info.Raft.Leader), known.all(info.Raft.Voters)
	out := Status{Router: info, UptimeS: info.Uptime.Seconds(), Pools: s.poolList(), Figures: s.node.Figures(), Refused: s.node.Refused()}
	out.Ready, out.Reasons = s.node.Ready()
	for _, m := range members {
		if m.State != "left" { // it is missed by nobody
			out.Members++
		}
		if m.State == "alive" {
			out.Alive++
		}
		switch {
		case m.Degraded != "":
			out.Warn = append(out.Warn, fmt.Sprintf("router %s: %s", known.of(m.ID), cmp.Or(m.Trouble, m.Degraded)))
		case m.State == "dead":
			out.Warn = append(out.Warn, fmt.Sprintf("router %s is dead%s%s", known.of(m.ID), lastHeard(m.HeardMS), more(m.Trouble)))
		}
	}
	if out.Alive < 2 {
		out.Figures.RowsAgeMS = -1 // nobody's
	}
	if !slices.ContainsFunc(out.Pools, func(p Pool) bool { return p.Replicas > 0 }) {
		out.Figures.ReadingAgeMS = -1
	}
	out.Warn = append(out.Warn, awayVoters(&info.Raft, members, known)...)
	out.Warn = append(out.Warn, info.Warnings...)
	switch {
	case info.Raft.Forming:
	case info.Raft.ClusterID == "":
		out.Warn = append(out.Warn, "the cluster is not founded yet: requests are served, edits get 503")
	case len(info.Raft.Voters) == 1 && out.Alive > 1:
		out.Warn = append(out.Warn, "one voter: while it is away edits get 503 (requests flow); three routers make three voters")
	}
	if info.Raft.Leader == "" && info.Raft.ClusterID != "" && !info.Raft.Forming {
		out.Warn = append(out.Warn, "no leader: requests flow, targets are frozen, writes get 503; if it lasts see docs/operate.md, section Without a leader")
	}
	out.Warn = append(out.Warn, s.belowTarget()...)
	for _, p := range out.Pools {
		if legs := map[string]string{"both": "prefill and decode"}; p.Missing != "" && p.Replicas > 0 {
			out.Warn = append(out.Warn, fmt.Sprintf("pool %s lacks replicas that %s", p.Name, cmp.Or(legs[p.Missing], p.Missing)))
		}
	}
	for _, r := range s.replicasOf("") {
		if state.Condition(r.State).TakesRequests() {
			continue
		}
		warn := fmt.Sprintf("replica %s is %s", r.ID, r.State)
		if r.Trouble != "" {
			warn += ": " + r.Trouble
		}
		out.Warn = append(out.Warn, warn)
	}
	respond(w, http.StatusOK, out)
}

// awayVoters warns of voters that were stopped in order, or that this router has not
// met: unlike dead ones they are missed by nobody else, but the next loss of a voter
// may be the one that stops edits. Without a leader voters can't be removed.
func awayVoters(raft *Raft, members []Member, known names) (list []string) {
	for _, id := range raft.Voters {
		how := "has left"
		switch i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id }); {
		case i < 0:
			how = "is not among the members"
		case members[i].State != "left":
			continue
		}
		name := known.of(id)
		if raft.Leader == "" {
			list = append(list, fmt.Sprintf("voter %s %s, and there is no leader: start it again; if too few voters can be started, see docs/operate.md, section A quorum that is lost for good", name, how))
			continue
		}
		list = append(list, fmt.Sprintf("voter %s %s: until another router takes its place, fewer losses are borne. Start it again, or: hearsay member remove %s", name, how, name))
	}
	return list
}

func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// lastHeard says when something last came of a router, if that is known.
func lastHeard(ms float64) string {
	if ms < 0 {
		return ""
	}
	return fmt.Sprintf(": nothing was heard of it for %v", (time.Duration(ms) * time.Millisecond).Round(time.Second))
}

// more goes on with what else is known, if anything is.
func more(text string) string {
	if text == "" {
		return ""
	}
	return "; " + text
}

func (s *Server) members(w http.ResponseWriter, _ *http.Request) {
	list := s.node.Members()
	slices.SortFunc(list, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	respond(w, http.StatusOK, list)
}

func (s *Server) pools(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, s.poolList())
}

func (s *Server) poolList() []Pool {
	v := s.node.View()
	out := []Pool{}
	now := time.Now()
	for _, p := range v.Pools {
		k := state.TargetKey{Pool: p.Spec.Name, Role: state.RoleBoth}
		b := v.Weights.Pools[p.Spec.Name]
		q := s.node.Queue(v, p)
		row := Pool{
			Name: p.Spec.Name, Model: p.Spec.Model, Aliases: p.Spec.Aliases, Policy: p.Spec.Policy,
			FilePolicy: p.FilePolicy, Effective: routing.Effective(p.Spec.Policy, b),
			Replicas: len(p.Replicas), Skew: b.Skew, Sharing: sharing(&b), HotShare: b.HotShare(),
			Held: v.Facts.Holds[k],
			Min:  p.Spec.ScaleMin, Max: p.Spec.ScaleMax, Actuator: p.Spec.ScaleActuator,
			Waiting: v.Backlog(p).Requests, Here: q.Here, WaitMS: q.WaitMS, Refused: q.Refused,
		}
		row.Target, row.TargetSet = v.Facts.Targets[k]
		for _, r := range p.Replicas {
			if r.Condition(&p.Spec, v.Weights.Of(r.ID), now).TakesRequests() {
				row.Ready++
			}
			l := r.Load()
			row.InFlight += l.InFlight
			row.Queued += l.UncachedTokens
		}
		if l := p.Legs(v.Weights, now); p.Split {
			row.Prefill, row.Decode, row.Missing = &l.Prefill, &l.Decode, l.Missing()
			row.Targets = targetsOf(v, p)
		}
		out = append(out, row)
	}
	return out
}

func (s *Server) replicas(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("pool")
	if name != "" && s.pool(name) == nil {
		unknownPool(w, name)
		return
	}
	respond(w, http.StatusOK, s.replicasOf(name))
}

// pool finds a pool by its own name, or nil.
func (s *Server) pool(name string) *state.PoolView {
	for _, p := range s.node.View().Pools {
		if p.Spec.Name == name {
			return p
		}
	}
	return nil
}

func unknownPool(w http.ResponseWriter, name string) {
	fail(w, http.StatusNotFound, "unknown", "no pool "+name+": see hearsay status")
}

func (s *Server) replicasOf(pool string) []Replica {
	v, now := s.node.View(), time.Now()
	known := namesOf(s.node.Members())
	out := []Replica{}
	for _, p := range v.Pools {
		if pool != "" && p.Spec.Name != pool {
			continue
		}
		for _, r := range p.Replicas {
			own, all := r.Cell.Load(), r.Load()
			row := Replica{
				ID: string(r.ID), Name: r.Name, Pool: r.Pool, URL: r.URL, Role: string(r.Role),
				Engine: string(r.Engine), Source: string(r.Source),
				InFlight: all.InFlight, Own: own.InFlight, Queued: all.UncachedTokens, Foreign: -1,
				Running: r.Reading.Running, Waiting: r.Reading.Waiting, KVUsage: r.Reading.KVUsage,
				Capacity: r.Reading.Capacity, ReadingMS: -1,
				Reader: string(r.Reading.Reader), ReaderName: known.of(string(r.Reading.Reader)),
				Sketch: s.node.Sketch(r.ID), Speed: s.node.Speed(r.ID), Adapters: r.Adapters, Loaded: r.Loaded,
			}
			if r.Reading.Kind != "" {
				row.Engine = string(r.Reading.Kind)
			}
			if n, ok := r.Foreign(now); ok {
				row.Foreign = n
			}
			if !r.ReadingAt.IsZero() {
				row.ReadingMS = float64(now.Sub(r.ReadingAt).Microseconds()) / 1e3
			}
			is, reason, words := condition(v, p, r, now)
			row.State, row.Reason, row.Trouble = string(is), reason, words
			out = append(out, row)
		}
	}
	return out
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	out := []Model{}
	v := s.node.View()
	for _, p := range v.Pools {
		out = append(out, Model{Name: p.Spec.Model, Pool: p.Spec.Name})
		for _, a := range p.Spec.Aliases {
			out = append(out, Model{Name: a, Pool: p.Spec.Name, Alias: true})
		}
	}
	for _, p := range v.Pools {
		for _, a := range p.Adapters() {
			if of, adapter := v.Resolve(a); of == p && adapter != "" {
				out = append(out, Model{Name: a, Pool: p.Spec.Name, Parent: p.Spec.Model})
			}
		}
	}
	respond(w, http.StatusOK, out)
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, s.node.Config())
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ok, missing := s.node.Ready()
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	out := Readiness{Ready: ok, Reasons: map[string]string{}}
	for _, m := range missing {
		out.Reasons[m] = "waiting"
	}
	if r.URL.Query().Has("verbose") {
		out.Pools = s.poolList()
	}
	respond(w, status, out)
}
