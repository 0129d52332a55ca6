package actuator

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	maxInstances  = 4096
	maxInstanceID = 200 // bytes
	maxProblem    = 500 // bytes of a problem that is passed on
	minWebhookKey = 16  // bytes
)

// WishType is the type of a POST's body.
const WishType = "scale.desired"

// wish is the body of a POST: a desired state, never a difference.
type wish struct {
	Type       string     `json:"type"`
	Epoch      uint64     `json:"epoch"`    // the fence: refuse one below the highest seen
	Decision   uint64     `json:"decision"` // per pool and role the same
	DecisionID string     `json:"decision_id"`
	Pool       string     `json:"pool"`
	Role       state.Role `json:"role"`
	Model      string     `json:"model"`
	Engine     string     `json:"engine"`
	Target     int        `json:"target"`        // replicas to run, victims not counted
	Victims    []string   `json:"victims"`       // drained: to be stopped; others are not
	Grace      float64    `json:"grace_seconds"` // that a victim may take to end
	Deadline   *time.Time `json:"deadline,omitempty"`
}

func (h *Webhook) wish(d *state.Desired) wish {
	w := wish{
		Type: WishType, Epoch: d.Epoch, Decision: d.Decision, DecisionID: d.ID,
		Pool: d.Target.Pool, Role: cmp.Or(d.Target.Role, state.RoleBoth),
		Model: d.Pool.UpstreamName(), Engine: string(d.Pool.Engine),
		Target: d.Want, Victims: []string{}, Grace: d.Grace.Seconds(),
	}
	for _, id := range d.Remove {
		if own, ok := strings.CutPrefix(string(id), h.prefix()); ok {
			w.Victims = append(w.Victims, own)
		}
	}
	if !d.Deadline.IsZero() {
		t := d.Deadline.UTC().Truncate(time.Second)
		w.Deadline = &t
	}
	return w
}

// answer is what a receiver says there is.
type answer struct {
	// The fence as the receiver holds it; 0: it does not say.
	Epoch     uint64      `json:"epoch"`
	Instances *[]instance `json:"instances"` // nil: it does not say
}

// instance is one replica of a receiver's own.
type instance struct {
	ID       string    `json:"id"`
	URL      string    `json:"url"` // may be empty while it is not ready
	Ready    bool      `json:"ready"`
	Stopping bool      `json:"stopping"`
	Since    time.Time `json:"since"`   // when it became what it is; may be left out
	Problem  string    `json:"problem"` // why it is not ready, for people
}

// parseAnswer reads a receiver's answer. One without a body says nothing.
func parseAnswer(text []byte) (*answer, error) {
	var a answer
	if len(bytes.TrimSpace(text)) == 0 {
		return &a, nil
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, plain(err)
	}
	if a.Instances == nil {
		return &a, nil
	}
	if len(*a.Instances) > maxInstances {
		return nil, fmt.Errorf("it lists more than %d instances", maxInstances)
	}
	seen := map[string]bool{}
	for _, i := range *a.Instances {
		switch {
		case i.ID == "" || len(i.ID) > maxInstanceID || strings.ContainsFunc(i.ID, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }):
			return nil, fmt.Errorf("%q is no id: 1 to %d bytes without spaces", shorten(i.ID, 40), maxInstanceID)
		case seen[i.ID]:
			return nil, fmt.Errorf("it lists %s twice", i.ID)
		case i.Ready && i.URL == "":
			return nil, fmt.Errorf("%s is ready and has no url", i.ID)
		}
		seen[i.ID] = true
	}
	return &a, nil
}

// plain says in a receiver's terms why an answer is not what it should be.
func plain(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("it is a JSON %s, and should be an object with instances", kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("its field %s can't be of type %s", shorten(kind.Field, 100), kind.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("it is no JSON, from byte %d on: %w", syntax.Offset, err)
	}
	return err
}

// actual is an answer as the autoscaler reads it. An instance whose URL may not be used
// is there, and never ready.
func (h *Webhook) actual(a *answer, k state.TargetKey) state.Actual {
	out := state.Actual{Prefix: h.prefix()}
	for _, i := range *a.Instances {
		x := state.Instance{
			Replica: state.Replica{
				ID: state.ReplicaID(h.prefix() + i.ID), Pool: k.Pool, Role: k.Role, Engine: h.cfg.Engine, URL: i.URL, Source: state.SourceCommitted,
			},
			Ready: i.Ready && !i.Stopping, Stopping: i.Stopping, Problem: shorten(i.Problem, maxProblem),
		}
		if i.URL != "" {
			u, err := h.cfg.Replica(i.URL)
			if x.Replica.URL = u; err != nil {
				x.Ready, x.Problem = false, fmt.Sprintf("%s: its URL is not used: %v", i.ID, err)
			}
		}
		if !x.Ready && !x.Stopping {
			x.Problem = cmp.Or(x.Problem, "not ready yet")
			if !i.Since.IsZero() {
				x.Problem += ", since " + i.Since.UTC().Format(time.RFC3339)
			}
		}
		out.Instances = append(out.Instances, x)
	}
	slices.SortFunc(out.Instances, func(x, y state.Instance) int { return cmp.Compare(x.Replica.ID, y.Replica.ID) })
	return out
}

// signed gives a call its id, the time, and one signature for each secret.
func signed(req *http.Request, id string, at time.Time, body []byte, secrets [][]byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var list []string
	for _, s := range secrets {
		m := hmac.New(sha256.New, s)
		_, _ = fmt.Fprintf(m, "%s.%s.", id, stamp)
		_, _ = m.Write(body)
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)))
	}
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", stamp)
	req.Header.Set("Webhook-Signature", strings.Join(list, " "))
}

// WebhookKey is the key that a secret stands for: behind whsec_ its base64 form, else
// the text itself.
func WebhookKey(secret []byte) ([]byte, error) {
	key := secret
	if coded, ok := bytes.CutPrefix(secret, []byte("whsec_")); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(string(coded)); err != nil {
			return nil, errors.New("what follows whsec_ is not base64")
		}
	}
	if len(key) < minWebhookKey {
		return nil, fmt.Errorf("the key has fewer than %d bytes", minWebhookKey)
	}
	return key, nil
}

// said quotes what a receiver says of a refusal, on one line.
func said(text []byte) string {
	s := shorten(strings.Join(strings.Fields(string(text)), " "), 200)
	if s == "" {
		return ""
	}
	return fmt.Sprintf(": it says %q", s)
}

// shorten makes a foreign text printable, valid and at most n bytes.
func shorten(s string, n int) string {
	s = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), "?")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
