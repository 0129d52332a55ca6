package scenario

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
)

const responsesPath = "/v1/responses"

// response is an answer of Responses as clients see it.
type response struct {
	ID       string
	Previous *string `json:"previous_response_id"`
	Usage    struct {
		Input   int `json:"input_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
}

// respond sends a request of Responses to router i; previous is "" for a first turn.
func respond(t testing.TB, b *harness.Bubble, i int, previous, input string, stream bool) (*harness.Reply, response) {
	t.Helper()
	ask := map[string]any{"model": harness.Model, "input": input, "max_output_tokens": 20}
	if previous != "" {
		ask["previous_response_id"] = previous
	}
	if stream {
		ask["stream"] = true
	}
	body, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	r := b.DoAt(i, "POST", responsesPath, body)
	var out response
	text := string(r.Body)
	if n := len(r.Events); n > 0 {
		var last struct{ Response json.RawMessage }
		_ = json.Unmarshal([]byte(r.Events[n-1].Data), &last)
		text = string(last.Response)
	}
	if r.Status == 200 {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	return r, out
}

// Conversations that a router began go on at any other, always at the replica that keeps
// them, where all that was said is in the cache. That the first router dies changes
// nothing; that the replica restarts is told.
func TestResponsesGoOnAtAnyRouter(t *testing.T) {
	t.Parallel()
	for _, kind := range []enginesim.Kind{enginesim.VLLM, enginesim.SGLang} {
		cfg := harness.BubbleConfig{Routers: 2, Engines: 3, Delay: time.Millisecond}
		cfg.Engine = enginesim.DefaultConfig()
		cfg.Engine.Kind = kind
		t.Run(string(kind), func(t *testing.T) {
			harness.InBubble(t, cfg, func(t *testing.T, b *harness.Bubble) { responsesGoOn(t, b) })
		})
	}
}

func responsesGoOn(t *testing.T, b *harness.Bubble) {
	type talk struct {
		last  response
		owner state.ReplicaID
	}
	talks := make([]talk, 25)
	owners := map[state.ReplicaID]int{}
	for i := range talks {
		r, first := respond(t, b, 0, "", words(fmt.Sprint("talk", i), 600), i%2 == 0)
		talks[i] = talk{first, ok(t, r).Replica}
		owners[r.Replica]++
	}
	if len(owners) < 2 {
		t.Fatalf("all talks are at %v", owners)
	}
	turn := func(router int) {
		t.Helper()
		for i := range talks {
			k := &talks[i]
			r, next := respond(t, b, router, k.last.ID, fmt.Sprintf("And %d?", i), i%3 == 0)
			if ok(t, r).Replica != k.owner {
				t.Fatalf("talk %d of %s went on at %s", i, k.owner, r.Replica)
			}
			if next.Previous == nil || *next.Previous != k.last.ID {
				t.Errorf("talk %d: goes on from %v, was %s", i, next.Previous, k.last.ID)
			}
			if whole := k.last.Usage.Input; next.Usage.Input <= whole || next.Usage.Details.Cached < whole-2*16 {
				t.Errorf("talk %d: %d of %d tokens cached, %d were there", i, next.Usage.Details.Cached, next.Usage.Input, whole)
			}
			k.last = next
		}
	}
	turn(1)
	turn(1) // 50 in all
	turn(0)
	b.Router(0).Kill()
	turn(1)

	// What is kept can be had, there alone.
	for _, k := range talks[:3] {
		r := b.DoAt(1, "GET", responsesPath+"/"+k.last.ID, nil)
		if ok(t, r).Replica != k.owner || !strings.Contains(string(r.Body), `"id":"`+k.last.ID+`"`) {
			t.Errorf("%v", r)
		}
	}
	e := b.Find(talks[0].owner)
	e.Kill()
	time.Sleep(2 * time.Second)
	e.Start()
	time.Sleep(2 * time.Second)
	for i, k := range talks {
		r, _ := respond(t, b, 1, k.last.ID, "And now?", i%2 == 0)
		if k.owner != e.ID {
			if ok(t, r).Replica != k.owner {
				t.Errorf("talk %d of %s went on at %s", i, k.owner, r.Replica)
			}
			continue
		}
		if r.Status != 404 || !strings.Contains(string(r.Body), `"code":"previous_response_not_found"`) || !strings.Contains(string(r.Body), `"param":"previous_response_id"`) {
			t.Errorf("talk %d, whose replica restarted: %v", i, r)
		}
		if r := b.DoAt(1, "GET", responsesPath+"/"+k.last.ID, nil); r.Status != 404 || !strings.Contains(string(r.Body), `"code":"response_not_found"`) {
			t.Errorf("talk %d, whose replica restarted: %v", i, r)
		}
	}
	// A replica that drains keeps its talks until it is stopped; one that is dead does not.
	for _, k := range talks {
		if k.owner == e.ID {
			continue
		}
		if st, err := b.Router(1).Admin("POST", "/admin/v1/replicas/"+string(k.owner)+"/drain?local=true", nil, nil); err != nil || st >= 300 {
			t.Fatalf("drain: %d, %v", st, err)
		}
		if !b.Router(1).Replica(k.owner).Draining {
			t.Fatalf("%s does not drain", k.owner)
		}
		r, _ := respond(t, b, 1, k.last.ID, "And now?", false)
		if ok(t, r).Replica != k.owner {
			t.Errorf("went on at %s", r.Replica)
		}
		b.Find(k.owner).Kill()
		time.Sleep(10 * time.Second)
		if r, _ := respond(t, b, 1, k.last.ID, "And now?", false); r.Status != 404 || !strings.Contains(string(r.Body), "Send the whole input again") {
			t.Errorf("its replica is dead: %v", r)
		}
		break
	}
}
