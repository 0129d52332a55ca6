package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

func encoded(t interface{ Fatal(...any) }, f *state.Facts) []byte {
	b, err := EncodeFacts(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// logged applies commands as Raft does.
func logged(t interface{ Fatal(...any) }, m *machine, from uint64, list ...state.Command) {
	for i := range list {
		b, err := encodeCommand(&list[i])
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(&raft.Log{Index: from + uint64(i), Data: b})
	}
}

func ledgerOf() (*ledger, *machine) {
	l := newLedger(func(*state.Facts) {})
	var m *machine
	m = newMachine(func(f *state.Facts) { l.offer(f, m.by) })
	return l, m
}

// Whoever is at any index, and gets the suffix from there, has the facts that whoever got
// all of them has.
func TestSuffixesGiveTheSameFacts(t *testing.T) {
	given := 0
	rapid.Check(t, func(t *rapid.T) {
		l, m := ledgerOf()
		var had []*state.Facts
		suffixes := 0
		for i := range rapid.IntRange(1, 60).Draw(t, "commands") {
			had = append(had, l.current())
			logged(t, m, uint64(i+1), anyCommand(t))
		}
		want := encoded(t, l.current())
		for _, f := range had {
			b := l.suffix(f.Index)
			if b == nil || f.Index == 0 {
				continue
			}
			list, sum, err := decodeSuffix(b)
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := advance(f, list, sum)
			if err != nil || !bytes.Equal(encoded(t, g), want) {
				t.Fatalf("from %d: %v, %s, want %s", f.Index, err, encoded(t, g), want)
			}
			suffixes++
		}
		given += suffixes
	})
	if given < 100 {
		t.Errorf("%d suffixes were given", given)
	}
}

// many are replicas, so that the facts as a whole are large.
func many(n int) (list []state.Command) {
	for i := range n {
		list = append(list, replica(i))
	}
	return list
}

func TestSuffixOrWhole(t *testing.T) {
	l, m := ledgerOf()
	logged(t, m, 1, many(100)...)
	n := &Node{ledger: l}
	suffix := func(have uint64) bool {
		t.Helper()
		b := n.NewsAfter(have)
		if len(b) == 0 {
			t.Fatalf("no news after %d", have)
		}
		return b[0] == suffixMark
	}
	if !suffix(99) || !suffix(60) {
		t.Error("what came last is sent as a whole")
	}
	if suffix(0) || suffix(1) {
		t.Error("commands are sent that are longer than the facts, or to somebody who has none")
	}
	if b := n.NewsAfter(100); len(b) != 0 {
		t.Errorf("%s after the last index", b)
	}
	// Facts that came otherwise have no commands before them.
	f := l.current().Clone()
	f.Index = 500
	l.offer(f, nil)
	if suffix(99) {
		t.Error("commands are sent that do not lead to these facts")
	}
	m.facts = l.current()
	logged(t, m, 501, many(1)...)
	if !suffix(500) || suffix(99) {
		t.Error("a suffix is of the commands after the gap")
	}
	for i := range uint64(2 * maxEntries) {
		logged(t, m, 502+i, state.Command{Kind: state.CommandDrain, Of: "replica1", Drain: &state.Drain{Reason: fmt.Sprint(i)}})
	}
	if len(l.entries) != maxEntries || suffix(501) {
		t.Errorf("%d entries are kept", len(l.entries))
	}
	big := state.Command{Kind: state.CommandRestore, Facts: l.current().Clone()}
	big.Facts.ClusterID = "c"
	big.Facts.Policies["p"] = strings.Repeat("x", maxEntryBytes)
	big.Force = true
	at := l.current().Index
	logged(t, m, at+1, big)
	if l.current().Index != at+1 || suffix(at) {
		t.Error("a large command is kept")
	}
	next := l.current().Clone() // by a command that does not follow what is known here
	next.Index = at + 10
	l.offer(next, []entry{{prev: at + 5, index: at + 10, command: []byte("{}")}})
	if suffix(at + 5) {
		t.Error("a command is sent that follows nothing that was here")
	}
}

// What can't be applied here changes nothing.
func TestSuffixThatCannotBeUsed(t *testing.T) {
	l, m := ledgerOf()
	logged(t, m, 1, many(40)...)
	f := func(what string, have *state.Facts, edit func([]byte) []byte) {
		t.Helper()
		n := &Node{ledger: newLedger(func(*state.Facts) {})}
		n.ledger.offer(have, nil)
		if err := n.takeNews(edit(l.suffix(38)), "r2"); err == nil || n.ledger.current().Index != have.Index {
			t.Errorf("%s is taken: %v", what, err)
		}
	}
	same := func(b []byte) []byte { return b }
	at := func(index uint64) *state.Facts {
		l, m := ledgerOf()
		logged(t, m, 1, many(int(index))...)
		return l.current()
	}
	f("a later one", at(37), same)
	other := at(38).Clone()
	other.ClusterID = "another"
	f("one of another cluster", other, same)
	f("one of a release with more kinds", at(38), func(b []byte) []byte { return bytes.Replace(b, []byte("add_replica"), []byte("more"), 1) })
	f("half of one", at(38), func(b []byte) []byte { return b[:len(b)/2] })
	f("one of a later version", at(38), func(b []byte) []byte { return bytes.Replace(b, []byte(`"v":1`), []byte(`"v":2`), 1) })
	n := &Node{ledger: newLedger(func(*state.Facts) {})}
	n.ledger.offer(at(39), nil)
	if err := n.takeNews(l.suffix(38), "r2"); err != nil || !bytes.Equal(encoded(t, n.ledger.current()), encoded(t, l.current())) {
		t.Errorf("one that begins earlier: %v", err)
	}
	if err := n.takeNews(l.suffix(38), "r2"); err != nil {
		t.Errorf("once more: %v", err)
	}
}

func FuzzSuffix(f *testing.F) {
	l, m := ledgerOf()
	logged(f, m, 1, many(40)...)
	f.Add(l.suffix(38))
	f.Add([]byte(`s{"v":1,"after":1,"index":2,"entries":[{"index":2,"command":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, sum, err := decodeSuffix(b)
		if err != nil {
			return
		}
		g := state.NewFacts()
		g.Index = list[0].prev
		if g, _, err := advance(g, list, sum); err == nil && g.Index != list[len(list)-1].index {
			t.Errorf("%s leads to %d", b, g.Index)
		}
	})
}

// carried counts what learners fetch and are told.
type carried struct {
	mu                     sync.Mutex
	fetched, pushed, calls int // bytes, bytes, calls; guarded by mu
}

func (c *carried) config(interval time.Duration) func(*Config) {
	return func(cfg *Config) {
		cfg.FollowInterval = interval
		fetch, push := cfg.Fetch, cfg.Push
		cfg.Fetch = func(ctx context.Context, to state.RouterID, have uint64) ([]byte, error) {
			b, err := fetch(ctx, to, have)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fetched, c.calls = c.fetched+len(b), c.calls+1
			return b, err
		}
		cfg.Push = func(ctx context.Context, to state.RouterID, b []byte) error {
			c.mu.Lock()
			c.pushed += len(b)
			c.mu.Unlock()
			return push(ctx, to, b)
		}
	}
}

func (c *carried) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched, c.pushed, c.calls = 0, 0, 0
}

// Learners follow within a second, and what they fetch is in proportion to what changed.
func TestLearnersFollowByWhatChanged(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.net.SetDefault(simnet.Link{Delay: 5 * time.Millisecond})
		var c carried
		for _, id := range names(6) {
			f.start(id, c.config(0))
		}
		f.waitVoters(3)
		l := f.waitLeader()
		var at Result
		for i := range 200 {
			at = must(t, l, replica(i))
		}
		behind := func(index uint64) func() bool {
			return func() bool {
				for _, m := range f.all() {
					if m.Facts().Index < index {
						return false
					}
				}
				return true
			}
		}
		f.until(5*time.Second, "all have the first ones", behind(at.Index))
		c.clear()
		const changes = 20
		for i := range changes {
			at = must(t, l, replica(200+i))
			if took := f.until(time.Second, "all have it", behind(at.Index)); took > time.Second {
				t.Errorf("it took %v", took)
			}
		}
		whole := len(encoded(t, l.Facts()))
		each := c.fetched / (3 * changes)
		t.Logf("whole facts %d B; fetched per change and learner %d B in %d calls", whole, each, c.calls)
		if each > 600 || whole < 20_000 {
			t.Errorf("a learner fetches %d bytes of %d for a change", each, whole)
		}
		for _, m := range f.all() {
			if !bytes.Equal(encoded(t, m.Facts()), encoded(t, l.Facts())) {
				t.Errorf("%s has other facts", m.id)
			}
		}
	})
}

// What takes something away is at all routers within a second, although learners look
// once in a minute; one that can't be told looks for itself.
func TestWhatIsTakenAwayIsPushed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.net.SetDefault(simnet.Link{Delay: 20 * time.Millisecond})
		var c carried
		const routers = 33
		for _, id := range names(routers) {
			edit := c.config(time.Minute)
			f.start(id, func(cfg *Config) { edit(cfg); cfg.BootstrapExpect = routers })
		}
		f.waitVoters(3)
		l := f.waitLeader()
		first := must(t, l, replica(1))
		all := func(index uint64) func() bool {
			return func() bool {
				for _, m := range f.all() {
					if m.Facts().Index < index {
						return false
					}
				}
				return true
			}
		}
		f.until(2*time.Minute, "all have it", all(first.Index))
		saved := l.Facts().Clone()
		for name, cmd := range map[string]state.Command{
			"drain":   {Kind: state.CommandDrain, Of: "replica1", Drain: &state.Drain{Reason: "x"}},
			"hold":    {Kind: state.CommandHold, Target: chat},
			"removed": {Kind: state.CommandRemoveReplica, Of: "replica1"},
			"restore": {Kind: state.CommandRestore, Facts: saved},
		} {
			c.clear()
			r := must(t, l, cmd)
			took := f.until(200*time.Millisecond, name+" is known to all", all(r.Index))
			if c.pushed == 0 {
				t.Errorf("%s: nothing was pushed", name)
			}
			t.Logf("%s: %v, %d bytes pushed", name, took, c.pushed)
		}
		c.clear()
		must(t, l, replica(2))
		time.Sleep(50 * time.Millisecond)
		if c.pushed != 0 {
			t.Error("what can wait is pushed")
		}
	})
}

func TestPushThatIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		m := f.member("r1")
		was := m.Facts()
		for _, b := range []string{"", "s", "s{}", "{", "x", `s{"v":1,"after":2,"index":1,"entries":[{"index":1,"command":{}}]}`} {
			if err := m.HandlePush("r2", []byte(b)); err == nil {
				t.Errorf("%q is taken", b)
			}
		}
		if m.Facts().Index != was.Index {
			t.Error("it changed the facts")
		}
		if err := m.HandlePush("r2", []byte(`s{"v":1,"after":999998,"index":999999,"entries":[{"index":999999,"command":{}}]}`)); !errors.Is(err, errGap) {
			t.Errorf("%v", err)
		}
	})
}
