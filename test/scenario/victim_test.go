package scenario

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/receiver"
)

const hookSecret = "a secret of the tests, long enough"

// inHookPool runs three routers whose pool is scaled through a receiver of webhooks: the
// n-th replica that it starts is the n-th engine.
func inHookPool(t *testing.T, engines int, f func(t *testing.T, b *harness.Bubble, r *receiver.Receiver)) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(hookSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := harness.NewBubble(t, harness.BubbleConfig{
			Routers: 3, Engines: engines, Delay: time.Millisecond,
			PoolFile: func(p *node.PoolConfig) {
				p.Replicas = nil
				p.Scale = node.ScaleConfig{Max: engines, Actuator: "webhook", Webhook: node.WebhookConfig{URL: "http://scaler:80/", SecretFile: secret}}
			},
		})
		r := &receiver.Receiver{
			Secret: []byte(hookSecret), StartTime: 5 * time.Second, StopTime: 2 * time.Second,
			URL: func(n int) string { return b.Engine(n - 1).URL() },
		}
		ln, err := b.Net.Host("scaler").Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: r}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(ln)
		}()
		defer func() {
			_ = s.Close()
			<-done
		}()
		waitLeader(b, 20*time.Second)
		f(t, b, r)
	})
}

// scaleTo sets the pool's target by hand and waits until it is reached.
func scaleTo(t *testing.T, b *harness.Bubble, n int) {
	t.Helper()
	if status, err := b.Router(0).Admin("PUT", "/admin/v1/pools/"+harness.Pool+"/target", console.TargetRequest{To: &n}, nil); err != nil || status != 200 {
		t.Fatalf("target: %d %v", status, err)
	}
	b.Within(5*time.Minute, fmt.Sprint(n, " replicas, on the record"), func() error {
		return each(b, func(r *harness.Router) error {
			var list []console.Decision
			if _, err := r.Admin("GET", "/admin/v1/decisions", nil, &list); err != nil {
				return err
			}
			if p := r.Node().View().PoolNamed(harness.Pool); len(p.Replicas) != n || len(list) == 0 || list[0].Outcome != "done" {
				return fmt.Errorf("%d replicas, %+v", len(p.Replicas), list)
			}
			for _, x := range r.Node().View().PoolNamed(harness.Pool).Replicas {
				if !x.Fresh(time.Now()) {
					return fmt.Errorf("%s was not read", x.ID)
				}
			}
			return nil
		})
	})
}

// hookReplica is the id of the n-th replica, from 1, that the receiver started.
func hookReplica(n int) string { return fmt.Sprintf("webhook:%s:i%d", harness.Pool, n) }

// A pool shrinks by the replica whose prefixes another one holds as well, not by the
// one that holds less, but alone.
func TestReplicaWithSharedPrefixesGoes(t *testing.T) {
	inHookPool(t, 3, func(t *testing.T, b *harness.Bubble, r *receiver.Receiver) {
		scaleTo(t, b, 3)
		// warm sends a prompt where it has to go, through one router after the other.
		sent := 0
		warm := func(at int, prompts ...string) {
			t.Helper()
			drain := func(verb string) {
				for n := 1; n <= 3; n++ {
					if n == at {
						continue
					}
					if status, err := b.Router(0).Admin("POST", "/admin/v1/replicas/"+hookReplica(n)+"/"+verb, console.ReasonRequest{}, nil); err != nil || status != 200 {
						t.Fatalf("%s %d: %d %v", verb, n, status, err)
					}
				}
			}
			drain("drain")
			for _, p := range prompts {
				sent++
				ok(t, b.Chat(sent%3, chat(words(p, 4000), "What does it say?", 5)))
			}
			drain("undrain")
		}
		warm(1, "alone")
		warm(2, "handbook", "more")
		warm(3, "handbook")
		b.Settle(5 * time.Second)
		scaleTo(t, b, 2)
		var stopped []string
		for _, c := range r.Calls() {
			if c.Stopped > 0 {
				stopped = append(stopped, c.Wish.Victims...)
			}
		}
		if !slices.Equal(stopped, []string{"i3"}) {
			t.Errorf("%v were stopped, want the third alone", stopped)
		}
		for n, want := range map[int]bool{1: true, 2: true, 3: false} {
			if has := b.Router(1).Node().View().Facts.Replicas; (has[stateID(n)].URL == b.Engine(n-1).URL()) != want {
				t.Errorf("replica %d: %+v", n, has)
			}
		}
	})
}

func stateID(n int) state.ReplicaID { return state.ReplicaID(hookReplica(n)) }
