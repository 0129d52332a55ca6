package consensus

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

func TestDeadVoterIsReplacedByAStableRouter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(5, 3)
		l := f.waitLeader()
		var dead state.RouterID
		for _, v := range l.Status().Voters {
			if v.ID != l.id {
				dead = v.ID
			}
		}
		f.kill(dead)
		time.Sleep(20 * time.Second)
		if v := l.Status().Voters; !slices.ContainsFunc(v, func(v Voter) bool { return v.ID == dead }) {
			t.Errorf("replaced within a restart's time: %v", v)
		}
		f.until(30*time.Second, "it is replaced", func() bool {
			v := l.Status().Voters
			return len(v) == 3 && !slices.ContainsFunc(v, func(v Voter) bool { return v.ID == dead || !v.Live })
		})
		// Back, it is a learner and disturbs nobody.
		term := l.Status().Term
		m := f.start(dead, nil)
		must(t, m, replica(1))
		f.until(5*time.Second, "it follows", func() bool { return m.Facts().Index == l.Facts().Index })
		time.Sleep(time.Minute)
		if s := l.Status(); s.Term != term || s.State != "leader" {
			t.Errorf("it disturbed the leader: %+v", s)
		}
		if s := m.Status(); s.State != "learner" || s.Leader != l.id {
			t.Errorf("back as %+v", s)
		}
	})
}

// The leader's log says of a voter that was removed by hand that it was, and why
// another one goes then, each with the number of voters after it.
func TestRemovalByHandIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		logs := map[state.RouterID]*record{}
		for _, id := range names(3) {
			logs[id] = &record{}
			f.start(id, func(c *Config) {
				c.Log = zerolog.New(logs[id])
				c.Name = func(id state.RouterID) string { return "name of " + string(id) }
			})
		}
		l := f.waitLeader()
		f.until(20*time.Second, "three voters", func() bool { return len(l.Status().Voters) == 3 })
		others := slicesWithout(names(3), l.id)
		f.kill(others[0])
		must(t, l, state.Command{Kind: state.CommandRemoveMember, Router: others[0]})
		before := l.Facts().Index
		f.until(20*time.Second, "one voter", func() bool { return len(l.Status().Voters) == 1 })
		// Should Raft not reach it with that, newer facts tell the other one.
		f.until(time.Second, "newer facts", func() bool { return l.Facts().Index > before })
		f.until(5*time.Second, "a learner", func() bool { s := f.member(others[1]).Status(); return s.State == "learner" && s.Leader == l.id })
		f.stopAllAndForget()
		var got []string
		for line := range strings.Lines(logs[l.id].String()) {
			if strings.Contains(line, `"op":"remove"`) {
				got = append(got, line)
			}
		}
		want := []string{
			fmt.Sprintf(`"peer":"%s","name":"name of %[1]s","why":"by hand","voters":2,"message":"voters changed"`, others[0]),
			fmt.Sprintf(`"peer":"%s","name":"name of %[1]s","why":"an even number of voters is never kept","voters":1,"message":"voters changed"`, others[1]),
		}
		if len(got) != 2 || !strings.Contains(got[0], want[0]) || !strings.Contains(got[1], want[1]) {
			t.Errorf("the log says %q, want %q", got, want)
		}
	})
}

// record is a log to be read while it is written.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

func (f *fleet) readdress(id state.RouterID) (edit func(*Config)) {
	h := f.hosts[id]
	h.Readdress()
	h.Restart()
	return func(c *Config) { c.Addr = h.IP().String() + ":7947" }
}

func TestMovedVoterIsFoundAtItsNewAddress(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		moved := slicesWithout(names(3), l.id)[0]
		f.leave(moved)
		m := f.start(moved, f.readdress(moved))
		must(t, l, replica(1))
		f.until(5*time.Second, "it follows", func() bool { return m.Status().State == "follower" && m.Facts().Index == l.Facts().Index })
		if !slices.ContainsFunc(l.Status().Voters, func(v Voter) bool { return v.ID == moved && v.Addr == m.cfg.Addr }) {
			t.Errorf("voters %v", l.Status().Voters)
		}
	})
}

func TestAllVotersMoveAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		must(t, f.waitLeader(), replica(1))
		for _, id := range names(3) {
			f.leave(id)
		}
		for _, id := range names(3) {
			f.start(id, f.readdress(id))
		}
		must(t, f.waitLeader(), replica(2))
		if n := len(f.leader().Facts().Replicas); n != 2 {
			t.Errorf("%d replicas", n)
		}
	})
}

func TestConnectionForAnotherRouterIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		h := f.net.Host("probe")
		// A request that any router would answer, if it were meant for it.
		ask := func(greetAs state.RouterID) error {
			ln, err := h.Listen("tcp", ":0")
			if err != nil {
				t.Fatal(err)
			}
			s := newStream(NewLayer(ln, func(ctx context.Context, addr string) (net.Conn, error) {
				return h.DialContext(ctx, "tcp", addr)
			}), "probe", "probe:1", noLine, noLine)
			trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
				Stream: s, MaxPool: 1, Timeout: time.Second, Logger: newRaftLog(zerolog.Nop()),
			})
			defer trans.Close()
			req := raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("probe"), Addr: []byte("probe:1")}}
			var resp raft.RequestPreVoteResponse
			return trans.RequestPreVote("r1", serverAddress(greetAs, "r1:7947"), &req, &resp)
		}
		if err := ask("r1"); err != nil {
			t.Errorf("meant for it: %v", err)
		}
		if err := ask("r2"); err == nil {
			t.Error("a request meant for another was answered")
		}
	})
}

func noLine() uint64 { return 0 }

func FuzzGreeting(f *testing.F) {
	prefix := map[uint64][]byte{}
	for _, line := range []uint64{0, 1, 1 << 40} {
		var b bytes.Buffer
		if err := greet(&b, "r1", line); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		prefix[line] = b.Bytes()
	}
	f.Add([]byte{1, 255, 255})
	f.Add([]byte{2, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		if heed(bytes.NewReader(data), "r1", 0) == nil && !bytes.HasPrefix(data, prefix[0]) && !bytes.HasPrefix(data, prefix[1][:5]) {
			t.Errorf("%x taken for a greeting to r1", data)
		}
		if bytes.HasPrefix(data, prefix[0]) && heed(bytes.NewReader(data), "r1", 1) == nil {
			t.Errorf("%x of an older line is taken", data)
		}
	})
}

func server(id string, voter bool) raft.Server {
	s := raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":1")}
	if !voter {
		s.Suffrage = raft.Nonvoter
	}
	return s
}

func TestPlanVoters(t *testing.T) {
	// Letters: voters, staged, live others (all stable and caught up; capitals: leaving),
	// dead servers.
	f := func(name string, want int, voters, staged, live, dead, step string) {
		t.Helper()
		s := &voterState{
			self: "a", want: want, live: map[state.RouterID]Peer{}, stable: map[state.RouterID]bool{},
			dead: map[state.RouterID]bool{}, current: map[state.RouterID]bool{}, leaving: map[state.RouterID]bool{},
		}
		for _, c := range voters {
			s.voters = append(s.voters, server(string(c), true))
		}
		for _, c := range staged {
			s.staged = append(s.staged, server(string(c), false))
			s.current[state.RouterID(c)] = true
		}
		for _, c := range live {
			id := state.RouterID(strings.ToLower(string(c)))
			if s.leaving[id] = unicode.IsUpper(c); id == s.self {
				continue
			}
			s.live[id], s.stable[id] = Peer{ID: id, Addr: string(c) + ":1"}, true
		}
		for _, c := range dead {
			s.dead[state.RouterID(c)] = true
		}
		got := ""
		if x, ok := planVoters(s); ok {
			got = fmt.Sprint(x.op, " ", x.server.ID)
		}
		if got != step {
			t.Errorf("%s: %q, want %q", name, got, step)
		}
	}
	f("alone", 3, "a", "", "", "", "")
	f("a pair", 3, "a", "", "b", "", "")
	f("a third comes", 3, "a", "", "bc", "", "stage b")
	f("staged and caught up", 3, "a", "b", "bc", "", "promote b")
	f("the third", 3, "ab", "", "bc", "", "stage c")
	f("full", 3, "abc", "", "bcde", "", "")
	f("staged but full", 3, "abc", "d", "bcde", "", "remove d")
	f("five wanted, four there", 5, "abc", "", "bcd", "", "")
	f("five wanted, five there", 5, "abc", "", "bcde", "", "stage d")
	f("one away for a moment", 3, "abc", "", "bd", "", "")
	f("one dead, a spare", 3, "abc", "", "bd", "c", "stage d")
	f("one dead, the spare caught up", 3, "abc", "d", "bd", "c", "promote d")
	f("one dead, replaced", 3, "abcd", "", "bd", "c", "remove c")
	f("one dead, no spare", 3, "abc", "", "b", "c", "")
	f("two of five dead, no spare", 5, "abcde", "", "bc", "de", "remove d")
	f("one of five dead, no spare", 5, "abcde", "", "bcd", "e", "")
	f("staged and dead", 3, "abc", "d", "b", "cd", "remove d")
	f("fewer wanted", 3, "abcde", "", "bcde", "", "remove e")
	f("a pair that was to be three", 3, "ab", "", "b", "", "remove b")
	f("no quorum of five", 5, "abcde", "", "b", "cde", "")
	f("no quorum", 3, "abc", "", "", "bc", "")
	f("one leaves, a spare", 3, "abc", "", "bCd", "", "stage d")
	f("one leaves, the spare caught up", 3, "abc", "d", "bCd", "", "promote d")
	f("one leaves, replaced", 3, "abcd", "", "bCd", "", "remove c")
	f("one leaves, no spare", 3, "abc", "", "bC", "", "remove c")
	f("one has left, and lives", 3, "ab", "", "bC", "", "remove b")
	f("one leaves while another is dead", 3, "abc", "", "B", "c", "")
	f("a staged one leaves", 3, "ab", "c", "bC", "", "remove c")
	f("the only voter leaves", 3, "a", "", "Ab", "", "stage b")
	f("the only voter leaves, b caught up", 3, "a", "b", "Ab", "", "promote b")
	f("the leader leaves: it hands over", 3, "abc", "", "Abc", "", "")
}

func TestPlanNeverEndangersTheQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &voterState{
			self: "s0", want: 2*rapid.IntRange(0, 3).Draw(t, "want") + 1, live: map[state.RouterID]Peer{},
			stable: map[state.RouterID]bool{}, dead: map[state.RouterID]bool{}, current: map[state.RouterID]bool{}, leaving: map[state.RouterID]bool{},
		}
		alive := map[state.RouterID]bool{"s0": true}
		s.voters = append(s.voters, server("s0", true))
		for i := 1; i < rapid.IntRange(1, 9).Draw(t, "servers"); i++ {
			id := state.RouterID(fmt.Sprint("s", i))
			switch rapid.IntRange(0, 2).Draw(t, "part") {
			case 0:
				s.voters = append(s.voters, server(string(id), true))
			case 1:
				s.staged = append(s.staged, server(string(id), false))
			}
			if rapid.Bool().Draw(t, "live") {
				alive[id] = true
				s.live[id] = Peer{ID: id, Addr: string(id) + ":1"}
				s.stable[id] = rapid.Bool().Draw(t, "stable")
				s.current[id] = rapid.Bool().Draw(t, "current")
				s.leaving[id] = rapid.IntRange(0, 3).Draw(t, "leaves") == 0
			} else {
				s.dead[id] = rapid.Bool().Draw(t, "dead")
			}
		}
		has := func(voters []raft.Server) bool {
			n := 0
			for _, v := range voters {
				if alive[state.RouterID(v.ID)] {
					n++
				}
			}
			return n >= quorum(len(voters))
		}
		if !has(s.voters) {
			return // none to lose
		}
		x, ok := planVoters(s)
		if !ok {
			return
		}
		after := slices.Clone(s.voters)
		switch x.op {
		case opRemove:
			after = slices.DeleteFunc(after, func(v raft.Server) bool { return v.ID == x.server.ID })
			if x.server.ID == "s0" {
				t.Fatal("the leader removes itself")
			}
		case opPromote:
			after = append(after, x.server)
		}
		if !has(after) {
			t.Fatalf("%s %s leaves no quorum", x.op, x.server.ID)
		}
		if x.why != whyLeaves && len(s.voters) >= minVoters && len(after) < min(minVoters, s.want) {
			t.Fatalf("%s %s leaves %d voters", x.op, x.server.ID, len(after))
		}
	})
}

// A voter that was started again has its vote, also while its log lags behind the
// facts that it got from others and the leader has not called it yet.
func TestVoterThatReturnsIsNoLearner(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.started(3, 3)
		l := f.waitLeader()
		back := slicesWithout(names(3), l.id)[0]
		// Who is heard first, the leader or the others, is chance.
		for i := range 8 {
			f.kill(back)
			time.Sleep(5 * time.Second)
			must(t, l, replica(i))
			m := f.start(back, nil)
			seen := map[string]int{}
			f.until(10*time.Second, "it follows", func() bool {
				s := m.Status()
				seen[s.State]++
				return s.State == "follower" && m.Facts().Index == l.Facts().Index
			})
			t.Log(seen)
			if seen["learner"] > 0 {
				t.Errorf("states %v", seen)
			}
		}
	})
}
