package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// refusalOfID is the record of a refused request.
func (g *rig) refusalOfID(id string) *Pick {
	g.t.Helper()
	list := g.srv.Picks().Of(id)
	if len(list) == 0 || list[len(list)-1].Refused == nil {
		g.t.Fatalf("nothing is kept of the refusal of %s: %+v", id, list)
	}
	return &list[len(list)-1]
}

// Who was refused is told which bound it met, what was estimated and what replicas had.
func TestRefusalsAreRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		g := newRig(t, w, handlers(slow(20*time.Second), slow(20*time.Second)), capped(1, func(s *poolSpec) {
			s.QueueRequests, s.QueueWait = 2, 3*time.Second
		}))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { g.chat(ask) })
		}
		until(t, "both run", func() bool { return g.inFlight() == 2 })
		for i := range 2 {
			wg.Go(func() { g.chat(ask, fmt.Sprint("x-request-id: waited", i)) })
		}
		g.waiting(2)
		f := func(id, reason string, words []string, fields ...string) {
			t.Helper()
			if r := g.chat(ask, append(fields, "x-request-id: "+id)...); id == "full" && r.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s: %d", id, r.StatusCode)
			}
			k := g.refusalOfID(id)
			text := strings.Join(k.Refused.Words, "\n")
			if k.Refused.Reason != reason || k.Refused.Status != http.StatusTooManyRequests || k.Pool != "chat" {
				t.Errorf("%s: %+v", id, k.Refused)
			}
			for _, x := range words {
				if !strings.Contains(text, x) {
					t.Errorf("%s lacks %q:\n%s", id, x, text)
				}
			}
			if len(k.Candidates) != 2 || k.Candidates[0].Had.InFlight != 1 || k.Candidates[0].Had.Cap != 1 || k.Candidates[0].Excluded == "" {
				t.Errorf("%s: candidates %+v", id, k.Candidates)
			}
		}
		f("full", shedQueueFull, []string{"queue.max_requests is 2", "2 requests waited for pool chat", "room after", "queue.max_inflight"})
		p := g.srv.core.Pressure(g.store.View(), g.store.View().Pool("llama"))
		if p.Bands[state.BandNormal] != 2 || p.Refused[shedQueueFull] != 1 || p.Wait <= 0 {
			t.Errorf("pressure %+v", p)
		}
		wg.Wait()
		for i := range 2 {
			k := g.refusalOfID(fmt.Sprint("waited", i))
			if text := strings.Join(k.Refused.Words, "\n"); !strings.Contains(text, "waited 3s") || !strings.Contains(text, "queue.max_wait (3s)") {
				t.Errorf("%q", text)
			}
		}
		p = g.srv.core.Pressure(g.store.View(), g.store.View().Pool("llama"))
		if p.Bands != [state.Bands]int64{} || p.Refused[shedTimeout] != 2 || p.Wait != 0 {
			t.Errorf("afterwards: %+v", p)
		}
		time.Sleep(2 * time.Minute) // in the bubble
		if p := g.srv.core.Pressure(g.store.View(), g.store.View().Pool("llama")); p.Refused != nil {
			t.Errorf("two minutes later: %+v", p)
		}
		g.idle()
	})
}

// A pool without replicas, and one whose replicas are busy themselves, leave a record, too.
func TestOtherRefusalsAreRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, w wire) {
		f := func(reason, word string, candidates, picks int, list ...func(*engine, *incoming) bool) {
			t.Helper()
			g := newRig(t, w, list, func(cfg *Config, _ *poolSpec) { cfg.Core.Picker = nil })
			g.chat(ask, "x-request-id: it")
			k := g.refusalOfID("it")
			if k.Refused.Reason != reason || !strings.Contains(k.Refused.Words[0], word) || len(k.Candidates) != candidates {
				t.Errorf("%s: %+v, %d candidates", reason, k.Refused, len(k.Candidates))
			}
			if n := len(g.srv.Picks().Of("it")); n != picks+1 {
				t.Errorf("%s: %d records", reason, n)
			}
			if len(g.srv.Picks().Latest(10)) != picks {
				t.Errorf("%s: a refusal is among the picks", reason)
			}
			g.stop()
		}
		f("no_replicas", "has no replica", 0, 0)
		f(shedReplicasBusy, "1 attempt)", 1, 1, says(jsonAnswer(429, `{"error":{"message":"busy"}}`)))
	})
}

// A storm of refusals takes no room from picks.
func TestRefusalsAreBounded(t *testing.T) {
	p := newPicks(8)
	p.note(&Pick{RequestID: "picked"}, &routing.Choice{Chosen: -1})
	for i := range 100 {
		p.refused.refuse(&standing{pick: Pick{RequestID: fmt.Sprint(i), Refused: &Refusal{}}})
	}
	if len(p.Of("picked")) != 1 || len(p.Of("99")) != 1 || len(p.Of("97")) != 0 {
		t.Errorf("%d, %d, %d", len(p.Of("picked")), len(p.Of("99")), len(p.Of("97")))
	}
	newPicks(0).refused.refuse(&standing{})
}

func TestTallyOfTheLastMinute(t *testing.T) {
	var c tally
	at := time.Unix(1_700_000_000, 0)
	k := shedKey{"chat", "queue_full"}
	for i := range 120 {
		c.add(k, at.Add(time.Duration(i)*time.Second))
	}
	if n := c.of("chat", at.Add(119*time.Second))["queue_full"]; n < 60 || n > 65 {
		t.Errorf("%d in the last minute of one per second", n)
	}
	if got := c.of("chat", at.Add(10*time.Minute)); got != nil {
		t.Errorf("later: %v", got)
	}
	if got := c.of("other", at); got != nil {
		t.Errorf("another pool: %v", got)
	}
}
