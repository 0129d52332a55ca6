package scenario

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// havePolicy objects unless every running router picks by that policy.
func havePolicy(b *harness.Bubble, want string) func() error {
	return func() error {
		return each(b, func(r *harness.Router) error {
			if p := r.Node().View().PoolNamed(harness.Pool); p.Spec.Policy != want || p.FilePolicy != routing.TTFT {
				return fmt.Errorf("policy %s, the file's %s", p.Spec.Policy, p.FilePolicy)
			}
			return nil
		})
	}
}

// A policy given through one router holds on all, learners too, picks go by it, it
// outlives a restart, and it is given back.
func TestPolicyIsGivenAtRunTime(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 4, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		waitLeader(b, 5*time.Second)
		set := func(i int, policy string) {
			t.Helper()
			status, err := b.Router(i).Admin("PUT", "/admin/v1/pools/"+harness.Pool+"/policy", console.PolicyRequest{Policy: &policy}, nil)
			if err != nil || status != http.StatusOK {
				t.Fatalf("policy %q: %d %v", policy, status, err)
			}
		}
		set(1, routing.RoundRobin)
		b.Within(2*time.Second, "all have it", havePolicy(b, routing.RoundRobin))
		system := words("policy", 1000)
		for i := range 4 {
			r := ok(t, b.Chat(3, streamed(chat(system, fmt.Sprint("Question ", i), 3))))
			if k := b.Router(3).Past(r.ID)[0]; k.Policy != routing.RoundRobin || k.Reason != routing.ReasonTurn {
				t.Errorf("request %d was picked by %s, %s", i, k.Policy, k.Reason)
			}
		}
		if err := b.Router(2).Stop(); err != nil {
			t.Fatal(err)
		}
		b.Router(2).Restart()
		b.WaitReady()
		b.Within(2*time.Second, "the one that was restarted has it", havePolicy(b, routing.RoundRobin))
		set(2, "")
		b.Within(2*time.Second, "all have the file's again", havePolicy(b, routing.TTFT))
	})
}

// Agents put the time at the beginning of their system prompt: the router says so,
// and does not say what else stands there.
func TestDiagnoseFindsABrokenPrefix(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, harness.BubbleConfig{Routers: 2, Engines: 2, Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
		diagnose := func() (list []console.Diagnosis, text string) {
			t.Helper()
			if status, err := b.Router(0).Admin("GET", "/admin/v1/diagnose", nil, &list); err != nil || status != http.StatusOK || len(list) != 1 {
				t.Fatalf("%d %v: %+v", status, err, list)
			}
			return list, fmt.Sprintf("%+v", list)
		}
		manual := words("manual", 2000)
		for i := range 8 { // the same beginning for all: nothing is wrong
			ok(t, b.Chat(0, streamed(chat(manual, fmt.Sprint("Question ", i), 3))))
			time.Sleep(2 * time.Second)
		}
		if list, text := diagnose(); list[0].Findings[0].Class != balance.Healthy || list[0].Sharing < 0.5 {
			t.Errorf("%s", text)
		}
		for i := range 40 {
			ok(t, b.Chat(0, streamed(chat("Today is "+time.Now().UTC().Format(time.RFC3339)+". "+manual, fmt.Sprint("Question ", i), 3))))
			time.Sleep(3 * time.Second)
		}
		list, text := diagnose()
		f := list[0].Findings[0]
		if f.Class != balance.BrokenPrefix || f.Owner != balance.OwnerClients ||
			!strings.Contains(f.Text, "messages[0].content, byte 9") || !strings.Contains(f.Text, "timestamp") {
			t.Errorf("%s", text)
		}
		if strings.Contains(text, "manual-") || strings.Contains(text, "Today") {
			t.Errorf("it tells what prompts say: %s", text)
		}
	})
}
