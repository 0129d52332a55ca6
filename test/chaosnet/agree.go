package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// lookEvery is how often routers are asked whether they agree.
const lookEvery = 100 * time.Millisecond

// times are how long it took until routers agreed: on who is there, on who leads, on the facts, and on what replicas
// hold. All is when they did so on everything at once.
type times struct{ members, leader, facts, sketches, all time.Duration }

// lesson is a prompt that was sent through one router, and the replica that got it.
type lesson struct {
	seed, replica string
}

func statusOf(ctx context.Context, r *harness.Proc) (s console.Status, err error) {
	err = r.GetAdmin(ctx, "status", &s)
	return s, err
}

// teach sends a prompt that nobody has seen through a router.
func (w *world) teach(r *harness.Proc, seed string) (lesson, error) {
	replica, cause := w.clients.ask(r, chatBody(seed, 600, "What is it?", 4))
	if cause != "" {
		return lesson{}, fmt.Errorf("teach %s: %s", r.Name, cause)
	}
	return lesson{seed, replica}, nil
}

// knows objects unless a router takes the lesson's replica for its holder.
func knows(ctx context.Context, r *harness.Proc, l lesson) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body := `{"path":"/v1/chat/completions","body":` + chatBody(l.seed, 600, "What now?", 4) + `}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Admin+"/admin/v1/explain", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.Client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var x proxy.Explanation
	if err := json.NewDecoder(resp.Body).Decode(&x); err != nil {
		return err
	}
	for _, c := range x.Candidates {
		if string(c.Replica) == l.replica && 2*c.MatchedTokens > x.PromptTokens {
			return nil
		}
	}
	return fmt.Errorf("%s does not know that %s holds %q", r.Name, l.replica, l.seed)
}

// look asks routers once. It returns what they do not agree on.
func look(ctx context.Context, set []*harness.Proc, index uint64, lessons []lesson) (members, leader, facts, sketches error) {
	lead, at := "", uint64(0)
	for i, r := range set {
		s, err := statusOf(ctx, r)
		if err != nil {
			return err, err, err, err
		}
		raft := s.Router.Raft
		if i == 0 {
			lead, at = raft.Leader, raft.Facts
		}
		if raft.Leader == "" || raft.Leader != lead {
			leader = fmt.Errorf("%s takes %q for the leader, another %q", r.Name, raft.Leader, lead)
		}
		if raft.Facts != at || raft.Facts < index {
			facts = fmt.Errorf("%s has facts at %d, another at %d, %d are committed", r.Name, raft.Facts, at, index)
		}
		var list []console.Member
		if err := r.GetAdmin(ctx, "members", &list); err != nil {
			return err, err, err, err
		}
		alive := 0
		for _, m := range list {
			if m.State == "alive" && (m.Self || m.Mesh == "up") {
				alive++
			}
		}
		if s.Alive != len(set) || alive != len(set) {
			members = fmt.Errorf("%s sees %d routers and has streams to %d of %d", r.Name, s.Alive, alive-1, len(set)-1)
		}
		for _, l := range lessons {
			if err := knows(ctx, r, l); err != nil {
				sketches = err
			}
		}
	}
	return members, leader, facts, sketches
}

// agree waits until these routers agree on everything, for bound at most.
func (w *world) agree(ctx context.Context, set []*harness.Proc, bound time.Duration) (times, error) {
	return w.agreeOn(ctx, set, bound, 0, nil)
}

// agreeOn is agree, on facts of an index at least, and on lessons.
func (w *world) agreeOn(ctx context.Context, set []*harness.Proc, bound time.Duration, index uint64, lessons []lesson) (t times, err error) {
	began := time.Now()
	first := func(d *time.Duration, err error) {
		switch {
		case err != nil:
			*d = 0 // they had agreed and do no more
		case *d == 0:
			*d = time.Since(began)
		}
	}
	for {
		members, leader, facts, sketches := look(ctx, set, index, lessons)
		first(&t.members, members)
		first(&t.leader, leader)
		first(&t.facts, facts)
		first(&t.sketches, sketches)
		if err = errors.Join(members, leader, facts, sketches); err == nil {
			t.all = time.Since(began)
			return t, nil
		}
		if time.Since(began) > bound {
			t.all = bound
			return t, fmt.Errorf("no agreement within %v: %w", bound, err)
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}
