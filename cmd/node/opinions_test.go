package node

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

func TestQuestionsTravelWhole(t *testing.T) {
	mark := rapid.Custom(func(t *rapid.T) prefix.Mark {
		return prefix.Mark{
			Hash: rapid.Uint64().Draw(t, "hash"), ASCII: rapid.Uint32().Draw(t, "ascii"),
			Wide: rapid.Uint32().Draw(t, "wide"), Exact: rapid.Uint32().Draw(t, "exact"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		q := proxy.Question{
			Pool: rapid.String().Draw(t, "pool"), Marks: rapid.SliceOfN(mark, 0, 200).Draw(t, "marks"), Total: mark.Draw(t, "total"),
			MaxTokens: rapid.IntRange(0, 1<<31-1).Draw(t, "bound"),
		}
		if len(q.Marks) == 0 {
			q.Marks = nil
		}
		id := state.ReplicaID(rapid.String().Draw(t, "replica"))
		got, gotID, err := parseQuestion(appendQuestion(nil, &q, id))
		if err != nil || gotID != id || !reflect.DeepEqual(got, q) {
			t.Fatalf("%v %q %v", got, gotID, err)
		}
	})
}

func FuzzParseQuestion(f *testing.F) {
	f.Add(appendQuestion(nil, &proxy.Question{Pool: "chat", Marks: []prefix.Mark{{Hash: 1, ASCII: 256}}, MaxTokens: 5}, "r1:8000"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		q, id, err := parseQuestion(b)
		if err != nil {
			return
		}
		again, sameID, err := parseQuestion(appendQuestion(nil, &q, id))
		if err != nil || sameID != id || !reflect.DeepEqual(again, q) {
			t.Fatalf("%v, then %v %v", q, again, err)
		}
	})
}

// What another router thinks of a pick is counted by its own scores.
func TestOpinionsAreCounted(t *testing.T) {
	o := newOpinions(prometheus.NewPedanticRegistry())
	o.peers = func() []state.RouterID { return []state.RouterID{"b"} }
	o.judge = func(*proxy.Question, state.ReplicaID) (proxy.Opinion, error) { return proxy.Opinion{Best: "r1"}, nil }
	ask := func(theirs proxy.Opinion, err error) {
		o.call = func(_ context.Context, to state.RouterID, method string, payload []byte) ([]byte, error) {
			if q, id, bad := parseQuestion(payload); to != "b" || method != callPick || bad != nil || q.Pool != "chat" || id != "r1" {
				t.Errorf("asked %s %s: %v about %s", to, method, q, id)
			}
			b, _ := json.Marshal(theirs)
			return b, err
		}
		o.ask(t.Context(), &proxy.Question{Pool: "chat", Marks: make([]prefix.Mark, 3)})
	}
	for range 19 {
		ask(proxy.Opinion{Best: "r1", BestScore: 80, Score: 80, Eligible: true}, nil)
	}
	ask(proxy.Opinion{Best: "r2", BestScore: 80, Score: 120, Eligible: true}, nil)
	ask(proxy.Opinion{Best: "r2", BestScore: 80}, nil)
	ask(proxy.Opinion{}, errors.New("no stream"))
	for result, want := range map[string]float64{opinionSame: 19, opinionOther: 1, opinionExcluded: 1, opinionFailed: 1} {
		if got := testutil.ToFloat64(o.results.WithLabelValues(result)); got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
	if n, same, p95 := o.summary(); n != 20 || same != 0.95 || p95 != 0 {
		t.Errorf("%d opinions, %v alike, p95 %v", n, same, p95)
	}
	ask(proxy.Opinion{Best: "r2", BestScore: 80, Score: 120, Eligible: true}, nil)
	if _, _, p95 := o.summary(); p95 != 40*time.Millisecond {
		t.Errorf("p95 %v, want 40 ms", p95)
	}
}
