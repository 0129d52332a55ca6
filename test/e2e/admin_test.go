package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// The types here are the admin API's answers as an operator's script would read
// them: written down once more, so that a renamed field fails a test.

type status struct {
	Router struct {
		ID   string
		Name string
		Raft struct {
			Leader, Role string
			ClusterID    string `json:"cluster_id"`
			Term         uint64
			Voters       []string
		}
	}
	Ready          bool
	Members, Alive int
}

type member struct {
	ID, Name, State string
	Self, Leader    bool
	Voter           bool
}

type replica struct {
	ID, State, URL string
	InFlight       int64   `json:"in_flight"`
	OwnInFlight    int64   `json:"own_in_flight"`
	ReadingAgeMS   float64 `json:"reading_age_ms"`
	Reader         string
}

type pool struct {
	Name            string
	Replicas, Ready int
	Target          int
	Held            bool
}

type decision struct {
	ID, Pool, Reason, By, Outcome, Detail string
	From, To                              int
	Victims                               []string
}

// ask fetches an admin path of a router.
func ask[T any](t *testing.T, r *harness.Proc, path string) T {
	t.Helper()
	var out T
	if err := r.GetAdmin(t.Context(), path, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// idle waits until no router counts a request in flight anywhere.
func idle(t *testing.T, routers []*harness.Proc, bound time.Duration) {
	t.Helper()
	poll(t, bound, "no request in flight on any router", func() (bool, string) {
		for _, r := range routers {
			for _, rep := range ask[[]replica](t, r, "replicas") {
				if rep.InFlight != 0 || rep.OwnInFlight != 0 {
					return false, fmt.Sprintf("%s counts %d (%d own) at %s", r.Name, rep.InFlight, rep.OwnInFlight, rep.ID)
				}
			}
		}
		return true, ""
	})
}

// joined waits until every router sees all others alive, and one leader.
func joined(t *testing.T, routers []*harness.Proc) {
	t.Helper()
	poll(t, patience, "every router sees the others and a leader", func() (bool, string) {
		for _, r := range routers {
			s := ask[status](t, r, "status")
			if s.Alive != len(routers) || s.Router.Raft.Leader == "" {
				return false, fmt.Sprintf("%s sees %d alive, leader %q", r.Name, s.Alive, s.Router.Raft.Leader)
			}
		}
		return true, ""
	})
}

// leader is the router that the given ones take for the leader.
func leader(t *testing.T, routers []*harness.Proc) (lead *harness.Proc, others []*harness.Proc) {
	t.Helper()
	for _, r := range routers {
		s := ask[status](t, r, "status")
		if s.Router.Raft.Leader == s.Router.ID {
			lead = r
		} else {
			others = append(others, r)
		}
	}
	if lead == nil {
		t.Fatal("no router leads")
	}
	return lead, others
}

type explained struct {
	Replica, Policy, Reason string
	PromptTokens            int `json:"prompt_tokens"`
	MatchedTokens           int `json:"matched_tokens"`
	Candidates              []candidate
}

type candidate struct {
	Replica       string
	MatchedTokens int `json:"matched_tokens"`
}

func (e explained) String() string {
	return fmt.Sprintf("%s (%s), %d of %d tokens matched", e.Replica, e.Reason, e.MatchedTokens, e.PromptTokens)
}

// explain asks a router where it would send a chat completion.
func explain(t *testing.T, r *harness.Proc, body string) explained {
	t.Helper()
	resp, answer := whole(t, r.Admin+"/admin/v1/explain", `{"path":"/v1/chat/completions","body":`+body+`}`)
	var e explained
	if err := json.Unmarshal([]byte(answer), &e); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("explain at %s: status %d, %s: %v", r.Name, resp.StatusCode, answer, err)
	}
	return e
}

// setTarget wants a pool to have n replicas.
func setTarget(t *testing.T, r *harness.Proc, pool string, n int) {
	t.Helper()
	resp, body := put(t, r.Admin+"/admin/v1/pools/"+pool+"/target", fmt.Sprintf(`{"to":%d}`, n))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("set target %d at %s: status %d, %s", n, r.Name, resp.StatusCode, body)
	}
}

// put sends a JSON body with PUT and reads the answer.
func put(t *testing.T, url, body string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}
