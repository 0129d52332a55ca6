package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/deploy/kube"
	"github.com/hearsay-llm/hearsay/state"
)

// Bounds of what a Kubernetes asks of an API server.
const (
	listWait   = 4 * time.Second  // for a List
	ensureWait = 8 * time.Second  // for an Ensure
	maxTries   = 5                // of an Ensure, when others change the object meanwhile
	ownersAge  = 10 * time.Second // autoscalers are looked for again after it, and before every write
	holdFirst  = time.Second      // a server that failed is left alone so long, then longer
	holdMost   = 30 * time.Second
	noteAge    = 30 * time.Minute // what happened is told so long, with the decision that met it
)

// KubernetesConfig is what a Kubernetes needs.
type KubernetesConfig struct {
	Resource  string                // see ParseResource; empty: deployments.apps
	Namespace string                // empty: the account's own
	Names     map[state.Role]string // of the object that a role's replicas are Pods of

	Kubeconfig string // file; empty: the Pod's service account
	Context    string // of the kubeconfig; empty: its current one
	Getenv     func(string) string
	Account    string // directory of the service account; empty: kube.ServiceAccount
	Dial       func(ctx context.Context, network, addr string) (net.Conn, error)

	Log zerolog.Logger
}

// Kubernetes sizes objects of a Kubernetes cluster by their scale subresource. Their
// Pods are its replicas, by UID, as discovery names them. What it writes is fenced by
// an annotation of the object. Safe for concurrent use.
type Kubernetes struct {
	cfg      KubernetesConfig
	resource Resource
	access   *kube.Access
	log      zerolog.Logger

	mu      sync.Mutex
	targets map[state.TargetKey]*kubeTarget // guarded by mu, with what they hold
	hold    hold                            // guarded by mu
}

// NewKubernetes checks the configuration. The server need not answer yet.
func NewKubernetes(cfg KubernetesConfig) (*Kubernetes, error) {
	res, err := ParseResource(cmp.Or(cfg.Resource, "deployments.apps"))
	if err != nil {
		return nil, fmt.Errorf("kubernetes actuator: %w", err)
	}
	k := &Kubernetes{
		cfg: cfg, resource: res, targets: map[state.TargetKey]*kubeTarget{},
		log: cfg.Log.With().Str("component", "actuator").Logger(),
	}
	k.access, err = kube.New(kube.Config{Kubeconfig: cfg.Kubeconfig, Context: cfg.Context, Getenv: cfg.Getenv, Account: cfg.Account, Dial: cfg.Dial})
	if err != nil {
		return nil, fmt.Errorf("kubernetes actuator: %w", err)
	}
	if k.cfg.Namespace = cmp.Or(cfg.Namespace, k.access.Namespace()); k.cfg.Namespace == "" {
		return nil, errors.New("kubernetes actuator: namespace is missing: neither the configuration nor the account names one")
	}
	return k, nil
}

// Close ends connections that nobody uses.
func (k *Kubernetes) Close() { k.access.Close() }

// kubeTarget is one object, and what is remembered of it. All of it may be forgotten:
// that costs a few reads.
type kubeTarget struct {
	name  string // of the object
	where string // for people

	kind    kubeObject           // the object when it was read last; empty: never
	listed  *look                // what List saw, until an Ensure has used it
	owner   string               // of an autoscaler that sizes it; empty: none
	ownerAt time.Time            // when that was looked for
	unready map[string]time.Time // since when Pods that were ready are not, by UID
	epoch   uint64               // with decision: what the object's fence is known to say
	last    kubeFence            // the object's, as of epoch and decision
	names   map[string]string    // of the Pods there were at the last step down, by UID
	said    string               // the note
	saidAt  time.Time
	saidOf  uint64 // the decision that met what it says; 0: none did yet
}

// target finds the object that a role's replicas are Pods of.
func (k *Kubernetes) target(key state.TargetKey) (*kubeTarget, error) {
	role := cmp.Or(key.Role, state.RoleBoth)
	name := k.cfg.Names[role]
	if name == "" {
		return nil, fmt.Errorf("no %s is named for replicas of role %s", k.resource, role)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.targets[key]
	if t == nil {
		t = &kubeTarget{name: name, where: fmt.Sprintf("%s %s/%s", k.resource, k.cfg.Namespace, name), unready: map[string]time.Time{}}
		k.targets[key] = t
	}
	return t, nil
}

// List says which Pods there are.
func (k *Kubernetes) List(ctx context.Context, key state.TargetKey) (a state.Actual, err error) {
	t, err := k.target(key)
	if err != nil {
		return a, err
	}
	err = k.ask(ctx, listWait, t, func(ctx context.Context) error {
		l, err := k.read(ctx, t, false)
		if err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		t.listed = l
		k.notice(t, l)
		a = k.actual(t, l, key, t.last.Decision)
		return nil
	})
	return a, err
}

// Ensure brings the object's replicas to d, as far as Pods that are drained are those
// that would go.
func (k *Kubernetes) Ensure(ctx context.Context, d state.Desired) (a state.Actual, err error) {
	t, err := k.target(d.Target)
	if err != nil {
		return a, err
	}
	if d.Cluster == "" {
		return a, errors.New("the routers' cluster has no id yet")
	}
	err = k.ask(ctx, ensureWait, t, func(ctx context.Context) error {
		l, err := k.reach(ctx, t, &d)
		if l != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			t.saidOf = cmp.Or(t.saidOf, d.Decision)
			a = k.actual(t, l, d.Target, d.Decision)
		}
		return err
	})
	return a, err
}

// reach takes the step that is due, if one is. Between its look and its write others
// may write: then it looks again.
func (k *Kubernetes) reach(ctx context.Context, t *kubeTarget, d *state.Desired) (*look, error) {
	k.mu.Lock()
	l := t.listed
	t.listed = nil
	settled := l != nil && t.epoch == d.Epoch && t.last.Decision == d.Decision
	k.mu.Unlock()
	if settled {
		if s := plan(l, d); !s.writes(l) {
			l.explain(&s, d)
			return l, nil
		}
	}
	var err error
	for range maxTries {
		if l, err = k.read(ctx, t, true); err != nil {
			return nil, err
		}
		if err = k.act(ctx, t, l, d); !kube.Is(err, http.StatusConflict) {
			return l, err
		}
	}
	return l, fmt.Errorf("others changed it %d times while it was to be changed: %w", maxTries, err)
}

// hold keeps calls from a server that just failed.
type hold struct {
	until time.Time
	err   error // of the last failure
	fails int
}

// ask runs calls that may take so long in all. While the server is held to be away
// they fail at once, so that a loop over many pools is not slowed by each.
func (k *Kubernetes) ask(ctx context.Context, most time.Duration, t *kubeTarget, f func(context.Context) error) error {
	k.mu.Lock()
	h := k.hold
	k.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.err
	}
	inner, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := f(inner)
	if err != nil {
		err = fmt.Errorf("%s: %w", t.where, err)
	}
	if ctx.Err() != nil {
		return err // the term is over: that says nothing of the server
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	wait, trouble := troubled(err)
	if !trouble {
		k.hold = hold{}
		return err
	}
	wait = max(wait, min(holdFirst<<min(k.hold.fails, 10), holdMost))
	k.hold = hold{until: time.Now().Add(wait), err: err, fails: k.hold.fails + 1}
	return err
}

// troubled reports whether an error is one of the server as a whole, and how long it
// asks to be left alone.
func troubled(err error) (wait time.Duration, trouble bool) {
	var said *kube.Error
	var silent *kube.Unreachable
	switch {
	case errors.As(err, &said):
		return said.RetryAfter, said.Code == http.StatusTooManyRequests || said.Code >= http.StatusInternalServerError
	case errors.As(err, &silent):
		return 0, true
	}
	return 0, false
}

// notice compares what is seen with what was done. The caller holds mu.
func (k *Kubernetes) notice(t *kubeTarget, l *look) {
	now := time.Now()
	seen := map[string]time.Time{}
	for _, p := range l.pods {
		if p.state() == unready {
			seen[p.Metadata.UID] = now
			if at, ok := t.unready[p.Metadata.UID]; ok {
				seen[p.Metadata.UID] = at
			}
		}
	}
	t.unready = seen
	if t.epoch == 0 {
		return // nothing was done yet by this leader
	}
	if n := l.scale.Spec.Replicas; n != t.last.To {
		k.somebody(t, t.last.To, n)
		t.last.To, t.last.Victims = n, nil
	}
	if t.last.wronged(l) {
		k.wrong(t, l, &t.last)
		t.last.Victims = nil
	}
}

// somebody notes that the replicas were changed. The caller holds mu.
func (k *Kubernetes) somebody(t *kubeTarget, from, to int) {
	k.say(t, fmt.Sprintf("somebody else set %s from %d to %d replicas", t.name, from, to))
}

// wrong notes that another Pod went than was to go. The caller holds mu.
func (k *Kubernetes) wrong(t *kubeTarget, l *look, f *kubeFence) {
	k.say(t, fmt.Sprintf("%s went instead of %s, which takes requests again", t.missing(l), f.alive(l)))
}

// say notes what befell a target. The caller holds mu.
func (k *Kubernetes) say(t *kubeTarget, text string) {
	k.log.Warn().Str("object", t.where).Str("decision", t.last.ID).Str("reason", text).Msg("replicas changed otherwise than decided")
	t.said, t.saidAt, t.saidOf = text, time.Now(), 0
}

// actual is a look as the autoscaler has it, under a decision. What befell the replicas
// is told with the decision that met it, not with later ones. The caller holds mu.
func (k *Kubernetes) actual(t *kubeTarget, l *look, key state.TargetKey, decision uint64) state.Actual {
	now := time.Now()
	a := state.Actual{Discovered: true, Asked: l.scale.Spec.Replicas, Note: l.trouble}
	if t.said != "" && (t.saidOf == 0 || t.saidOf == decision) && now.Sub(t.saidAt) < noteAge {
		a.Note = t.said
	}
	for _, p := range l.pods {
		a.Instances = append(a.Instances, state.Instance{
			Replica: state.Replica{
				ID: state.ReplicaID(p.Metadata.UID), Name: p.Metadata.Name, Pool: key.Pool,
				Role: cmp.Or(key.Role, state.RoleBoth), Source: state.SourceDiscovery,
			},
			Ready: p.ready() && !p.ending(), Stopping: p.ending(), Problem: p.problem(), Turn: l.turn(p, now.Sub(t.unready[p.Metadata.UID])),
		})
	}
	slices.SortFunc(a.Instances, func(x, y state.Instance) int { return cmp.Compare(x.Replica.ID, y.Replica.ID) })
	return a
}
