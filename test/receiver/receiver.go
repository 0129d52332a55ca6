// Package receiver is a reference receiver of the webhook actuator: it verifies what it
// is told, minds the fence, and keeps a set of replicas. Tests run it in the place of
// what people write to their own schedulers. It knows the contract of docs/operate.md
// and nothing of the code that calls it.
package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tolerance is how far a call's time may be from the receiver's.
const tolerance = 5 * time.Minute

// Wish is what a call asks for.
type Wish struct {
	Type       string    `json:"type"`
	Epoch      uint64    `json:"epoch"`
	Decision   uint64    `json:"decision"`
	DecisionID string    `json:"decision_id"`
	Pool       string    `json:"pool"`
	Role       string    `json:"role"`
	Model      string    `json:"model"`
	Engine     string    `json:"engine"`
	Target     int       `json:"target"`
	Victims    []string  `json:"victims"`
	Grace      float64   `json:"grace_seconds"`
	Deadline   time.Time `json:"deadline"`
}

// Instance is one replica, as answers list it.
type Instance struct {
	ID       string    `json:"id"`
	URL      string    `json:"url"`
	Ready    bool      `json:"ready"`
	Stopping bool      `json:"stopping,omitempty"`
	Since    time.Time `json:"since"`
	Problem  string    `json:"problem,omitempty"`
}

// Call is one call that bore a good signature.
type Call struct {
	ID      string // of the call: the decision's
	Wish    Wish   // zero for a GET
	Status  int
	Started int // replicas that it made the receiver start
	Stopped int // and stop
}

// Receiver is an http.Handler. Set the fields before it is served.
type Receiver struct {
	Secret    []byte
	Now       func() time.Time // nil: time.Now
	StartTime time.Duration    // until a replica is ready
	StopTime  time.Duration    // until one that was stopped is gone
	// URL is where the n-th replica, from 1, will answer. Nil: an address nobody has.
	URL func(n int) string
	// Silent answers a POST without a body, so that a GET has to follow.
	Silent bool

	mu      sync.Mutex
	made    int                // guarded by mu
	targets map[string]*target // guarded by mu; by pool and role
	calls   []Call             // guarded by mu
}

// target is what is kept of one pool's role, on disk in a real receiver.
type target struct {
	epoch, decision uint64
	instances       []*Instance
}

// ServeHTTP verifies and answers a call.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err == nil {
		err = verify(r.Secret, req.Header, body, time.Now())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	call := Call{ID: req.Header.Get("webhook-id")}
	q := req.URL.Query()
	pool, role := q.Get("pool"), q.Get("role")
	if req.Method == http.MethodPost {
		if err := json.Unmarshal(body, &call.Wish); err != nil || call.Wish.Type != "scale.desired" {
			http.Error(w, "not a wish", http.StatusBadRequest)
			return
		}
		pool, role = call.Wish.Pool, call.Wish.Role
	}
	t := r.target(pool + "/" + role)
	r.advance(t)
	call.Status = http.StatusOK
	if req.Method == http.MethodPost {
		r.apply(t, &call)
	}
	r.calls = append(r.calls, call)
	if r.Silent && req.Method == http.MethodPost && call.Status == http.StatusOK {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(call.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"epoch": t.epoch, "decision": t.decision, "instances": t.instances})
}

// apply minds the fence, and makes the set what is wished: stating the same again
// changes nothing.
func (r *Receiver) apply(t *target, c *Call) {
	w := &c.Wish
	if w.Epoch < t.epoch || w.Decision < t.decision {
		c.Status = http.StatusConflict
		return
	}
	t.epoch, t.decision = w.Epoch, w.Decision // to be on disk before anything is done
	have := 0
	for _, i := range t.instances {
		switch {
		case i.Stopping:
		case slices.Contains(w.Victims, i.ID):
			i.Ready, i.Stopping, i.Since = false, true, r.now()
			c.Stopped++
		default:
			have++
		}
	}
	for ; have < w.Target; have++ {
		r.made++
		url := fmt.Sprintf("http://10.255.0.%d:8000", r.made)
		if r.URL != nil {
			url = r.URL(r.made)
		}
		t.instances = append(t.instances, &Instance{ID: fmt.Sprintf("i%d", r.made), URL: url, Since: r.now(), Problem: "starting"})
		c.Started++
	}
	r.advance(t)
}

// advance makes replicas ready, and stopped ones gone, when it is time.
func (r *Receiver) advance(t *target) {
	t.instances = slices.DeleteFunc(t.instances, func(i *Instance) bool { return i.Stopping && r.now().Sub(i.Since) >= r.StopTime })
	for _, i := range t.instances {
		if !i.Ready && !i.Stopping && r.now().Sub(i.Since) >= r.StartTime {
			i.Ready, i.Since, i.Problem = true, r.now(), ""
		}
	}
}

func (r *Receiver) target(k string) *target {
	if r.targets == nil {
		r.targets = map[string]*target{}
	}
	if r.targets[k] == nil {
		r.targets[k] = &target{instances: []*Instance{}}
	}
	return r.targets[k]
}

func (r *Receiver) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// Calls are the calls so far that bore a good signature, the oldest first.
func (r *Receiver) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Running counts the replicas of a pool's role that run and are not being stopped.
func (r *Receiver) Running(pool, role string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.target(pool + "/" + role).instances {
		if !i.Stopping {
			n++
		}
	}
	return n
}

// Made counts the replicas that were ever started.
func (r *Receiver) Made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

// verify checks a signature of Standard Webhooks, version 1.
func verify(secret []byte, h http.Header, body []byte, now time.Time) error {
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" {
		return errors.New("not signed")
	}
	if d := now.Sub(time.Unix(seconds, 0)); d.Abs() > tolerance {
		return fmt.Errorf("signed %v ago", d)
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(id + "." + stamp + "."))
	m.Write(body)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(m.Sum(nil)))
	for s := range strings.SplitSeq(h.Get("webhook-signature"), " ") {
		if hmac.Equal([]byte(s), want) {
			return nil
		}
	}
	return errors.New("no signature is good")
}
