package proxy

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// A replica that names a time with its 429 is not asked before, and is again then.
func TestLimitedReplicasAreLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		limit := func(after string) func(*engine, *incoming) bool {
			return says(jsonAnswer(429, `{"error":{"message":"slow down"}}`, "Retry-After: "+after))
		}
		g := newRig(t, w, handlers(limit("20"), limit("7"), says(jsonAnswer(503, `{"error":{"message":"full"}}`, "Retry-After: 9"))), func(_ *Config, s *poolSpec) { s.RetryAttempts = 3 })
		ask := func(status int, after string, seen ...int) {
			t.Helper()
			if r := g.chat(ask); r.StatusCode != status || r.Header.Get("Retry-After") != after {
				t.Errorf("got %d, Retry-After %q, want %d, %q", r.StatusCode, r.Header.Get("Retry-After"), status, after)
			}
			for i, want := range seen {
				if n, _ := g.engines[i].seen(); n != want {
					t.Errorf("engine %d was asked %d times, want %d", i+1, n, want)
				}
			}
		}
		ask(503, "7", 1, 1, 1)
		time.Sleep(2 * time.Second)
		ask(503, "5", 1, 1, 2) // one that is full may have room any time
		time.Sleep(6 * time.Second)
		ask(503, "7", 1, 2, 3)
		time.Sleep(13 * time.Second)
		ask(503, "7", 2, 3, 4)
	})
}

func TestLimitedForgets(t *testing.T) {
	l, now := &limited{}, time.Now()
	pool := &state.PoolView{Replicas: []*state.ReplicaView{{Replica: state.Replica{ID: "a"}}, {Replica: state.Replica{ID: "b"}}}}
	busy := func(d time.Duration) *Result { return &Result{Outcome: OutcomeBusy, Limited: true, RetryAfter: d} }
	f := func(n int, wait time.Duration, at time.Time) {
		t.Helper()
		if ids, d := l.among(pool, at); len(ids) != n || d != wait {
			t.Errorf("got %v, %v", ids, d)
		}
	}
	f(0, 0, now)
	l.note("a", busy(3*time.Second), now)
	l.note("b", busy(5*time.Second), now)
	l.note("elsewhere", busy(time.Second), now)
	l.note("b", &Result{Outcome: OutcomeRejected}, now)
	f(2, 2*time.Second, now.Add(time.Second))
	l.note("a", &Result{Outcome: OutcomeServed}, now)
	f(1, 4*time.Second, now.Add(time.Second))
	f(0, 0, now.Add(5*time.Second))
	if l.n.Load() != 0 || len(l.m) != 0 {
		t.Errorf("%d are remembered", len(l.m))
	}
	l.note("a", &Result{Outcome: OutcomeBusy, RetryAfter: time.Second}, now) // a 503
	f(0, 0, now)
}

// How long a replica keeps idle connections is found out, and not believed for ever.
func TestKeepIsLearned(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		ps := newConnPools(&Config{Dial: func(context.Context, string) (net.Conn, error) {
			a, b := net.Pipe()
			t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
			return a, nil
		}, Limits: Limits{ReplicaConns: 4}})
		p, err := ps.of("http://e:80")
		must(t, err)
		lie := func(d time.Duration) (reused bool) {
			c, err := p.dial(context.Background())
			must(t, err)
			p.put(c, false)
			time.Sleep(d)
			if c = p.take(); c != nil {
				p.discard(c)
			}
			return c != nil
		}
		if !lie(3 * time.Second) {
			t.Error("a good connection was given up")
		}
		p.learn(&upConn{idled: time.Millisecond}) // a replica that was stopped
		if !lie(3 * time.Second) {
			t.Error("the end of a replica counts as its habit")
		}
		p.learn(&upConn{idled: 2 * time.Second})
		if lie(1100*time.Millisecond) || !lie(900*time.Millisecond) {
			t.Error("not learned")
		}
		time.Sleep(forgetKeep)
		if !lie(3 * time.Second) {
			t.Error("believed for ever")
		}
	})
}
