package scenario

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// Of four routers the leader is taken out for good while streams run through it: the
// fourth gets its vote, its streams run to their end, it stops, and nobody misses it.
// The next two to leave are not replaced; the last router goes on with all facts.
func TestRoutersLeaveForGood(t *testing.T) {
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		b.Within(15*time.Second, "three voters", voting(b, 3))
		l, _ := waitLeader(b, 5*time.Second)
		index, _ := setTarget(t, l, 4)
		b.Within(2*time.Second, "facts", sameFacts(b, index))

		at := slices.Index(b.Routers(), l)
		s := b.Open(at, streamed(chat(words("long", 300), "Go on and on.", 600)).Body())
		if !s.Next() {
			t.Fatal(s)
		}
		leave(t, l)
		if err := voting(b, 3, l)(); err != nil {
			t.Error(err)
		}
		for i, r := range b.Routers() {
			if r != l {
				ok(t, b.Chat(i, chat(words("meanwhile", 100), "And?", 5)))
			}
		}
		for s.Next() {
		}
		ok(t, s.Reply)
		if err := l.Ended(time.Minute); err != nil {
			t.Fatal(err)
		}
		b.Settle(time.Minute) // longer than it takes to replace a dead voter
		if err := voting(b, 3)(); err != nil {
			t.Error(err)
		}
		for _, r := range b.Alive() {
			if w := warnings(t, r); w != "" {
				t.Errorf("%s warns: %s", r.Name, w)
			}
		}

		for len(b.Alive()) > 1 {
			r := b.Alive()[0]
			leave(t, r)
			if err := r.Ended(time.Minute); err != nil {
				t.Fatal(err)
			}
			b.Within(5*time.Second, "one voter", voting(b, 1))
		}
		last := b.Alive()[0]
		if index, status := setTarget(t, last, 3); status != http.StatusOK || index == 0 {
			t.Errorf("a write at the last one: status %d", status)
		}

		// One that has left comes back as any other.
		l.Restart()
		b.Within(15*time.Second, "it has the facts", func() error {
			if f := l.Node().View().Facts; f.Index != last.Node().View().Facts.Index {
				return fmt.Errorf("facts at %d", f.Index)
			}
			return nil
		})
	})
}

// leave takes a router out.
func leave(t *testing.T, r *harness.Router) {
	t.Helper()
	var done console.Done
	if status, err := r.Admin("POST", "/admin/v1/leave", nil, &done); err != nil || status != http.StatusOK || done.Message == "" {
		t.Fatalf("%s leaves: status %d, %v, %+v", r.Name, status, err, done)
	}
}

// voting checks that there are so many voters, all live, and none of some routers.
func voting(b *harness.Bubble, n int, but ...*harness.Router) func() error {
	return func() error {
		l := leader(b)
		if l == nil {
			return fmt.Errorf("no leader")
		}
		v := l.Node().Info().Raft.Voters
		if len(v) != n {
			return fmt.Errorf("%d voters", len(v))
		}
		for _, r := range but {
			if r.Running() && slices.Contains(v, string(r.ID())) {
				return fmt.Errorf("%s votes", r.Name)
			}
		}
		return nil
	}
}
