package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// picture is what events are made of: two of them differ by what has happened between.
type picture struct {
	out       map[state.ReplicaID]bool // ejected, or on trial
	panics    map[string]bool          // pools whose ejections are ignored
	decisions map[string]state.Outcome
	members   map[string]Member // by id
	leader    string            // its id
}

// look publishes what has changed since it last looked while somebody read events. The
// first look of all tells nothing.
func (s *Server) look(now time.Time) {
	s.looking.Lock()
	defer s.looking.Unlock()
	if !s.events.Read() {
		s.seen = nil
		return
	}
	v, members := s.node.View(), s.node.Members()
	is := &picture{
		out: map[state.ReplicaID]bool{}, panics: map[string]bool{}, decisions: map[string]state.Outcome{}, members: map[string]Member{},
	}
	for _, p := range v.Pools {
		is.panics[p.Spec.Name] = v.Weights.Pools[p.Spec.Name].Panic
		for _, r := range p.Replicas {
			w := v.Weights.Of(r.ID)
			is.out[r.ID] = w.Ejected || w.Trial
		}
	}
	for i := range v.Facts.Decisions {
		is.decisions[v.Facts.Decisions[i].ID] = v.Facts.Decisions[i].Outcome
	}
	for _, m := range members {
		if is.members[m.ID] = m; m.Leader {
			is.leader = m.ID
		}
	}
	was := s.seen
	if s.seen = is; was == nil {
		return
	}
	for _, x := range slices.Concat(was.pools(is, v, now), was.sizes(v, now), was.routers(is, namesOf(members), now)) {
		s.events.Publish(x)
	}
}

// pools are the replicas that were ejected or are back, and the pools that panic.
func (was *picture) pools(is *picture, v *state.View, now time.Time) (list []Event) {
	for _, p := range v.Pools {
		name := p.Spec.Name
		for _, r := range p.Replicas {
			before, known := was.out[r.ID]
			if !known || before == is.out[r.ID] {
				continue
			}
			_, reason, words := condition(v, p, r, now)
			x := Event{At: now, Kind: KindEjection, Pool: name, Replica: string(r.ID), Reason: cmp.Or(v.Weights.Of(r.ID).Reason, reason), Text: words}
			if before {
				x.Kind, x.Reason, x.Text = KindReturn, "", cmp.Or(words, "takes requests again")
			}
			list = append(list, x)
		}
		if before, known := was.panics[name]; known && before != is.panics[name] {
			x := Event{At: now, Kind: KindPanic, Pool: name, From: "off", To: "on", Text: "too many replicas are ejected: ejections are ignored"}
			if before {
				x.From, x.To, x.Text = "on", "off", "ejections count again"
			}
			list = append(list, x)
		}
	}
	return list
}

// sizes are the scale decisions that were made or have come to an end.
func (was *picture) sizes(v *state.View, now time.Time) (list []Event) {
	for i := range v.Facts.Decisions {
		d := &v.Facts.Decisions[i]
		outcome, known := was.decisions[d.ID]
		if known && outcome == d.Outcome {
			continue
		}
		list = append(list, Event{
			At: now, Kind: KindDecision, Decision: d.ID, Pool: d.Pool, Role: string(d.Role), From: strconv.Itoa(d.From), To: strconv.Itoa(d.To),
			Reason: d.Reason, Outcome: string(d.Outcome), Text: d.Detail,
		})
	}
	return list
}

// routers are the members whose state is another one, and who leads.
func (was *picture) routers(is *picture, known names, now time.Time) (list []Event) {
	for id, m := range is.members {
		before, there := was.members[id]
		if there && before.State == m.State {
			continue
		}
		list = append(list, Event{At: now, Kind: KindMember, Member: known.of(id), From: before.State, To: m.State, Text: m.Trouble})
	}
	for id, m := range was.members {
		if _, there := is.members[id]; !there {
			list = append(list, Event{At: now, Kind: KindMember, Member: m.Name, From: m.State, To: "forgotten"})
		}
	}
	slices.SortFunc(list, func(a, b Event) int { return strings.Compare(a.Member, b.Member) })
	if was.leader != is.leader {
		text := "no router leads: edits get 503, requests go on"
		if is.leader != "" {
			text = fmt.Sprintf("%s leads", known.of(is.leader))
		}
		list = append(list, Event{At: now, Kind: KindLeader, Member: known.of(is.leader), From: was.members[was.leader].Name, To: is.members[is.leader].Name, Text: text})
	}
	return list
}
