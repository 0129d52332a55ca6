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
	fenceAge   = 10 * time.Second // so is the fence that was written: somebody may have taken it away
	editsApart = 10 * time.Minute // edits of the replicas that are further apart are no row
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
	busy    hold                            // guarded by mu; of all calls, as the server asked for
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
	sureAt  time.Time            // when that was seen there last
	holds   [calls]hold          // of each kind of call
	names   map[string]string    // of the Pods there were at the last step down, by UID
	edits   int                  // by others, in a row
	editAt  time.Time            // the last of them
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
	err = k.ask(ctx, callList, t, func(ctx context.Context) error {
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
	err = k.ask(ctx, callEnsure, t, func(ctx context.Context) error {
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
	rest, sure := k.atRest(t, d)
	if sure {
		return rest, nil
	}
	tries := maxTries
	if rest != nil {
		tries = 1 // there is nothing to do but to look, and the next round looks again
	}
	var l *look
	var err error
	for range tries {
		if l, err = k.read(ctx, t, true); err != nil {
			return nil, err
		}
		if err = k.act(ctx, t, l, d); !kube.Is(err, http.StatusConflict) {
			return l, err
		}
	}
	if rest != nil {
		return rest, nil
	}
	return l, fmt.Errorf("others changed it %d times while it was to be changed: %w", maxTries, err)
}

// atRest is what the last List saw, if nothing is to be done by that; sure says that the
// fence is known to be there as well.
func (k *Kubernetes) atRest(t *kubeTarget, d *state.Desired) (l *look, sure bool) {
	k.mu.Lock()
	l, t.listed = t.listed, nil
	known := l != nil && t.epoch == d.Epoch && t.last.Decision == d.Decision
	sure = time.Since(t.sureAt) < fenceAge
	k.mu.Unlock()
	if !known {
		return nil, false
	}
	s := plan(l, d)
	if s.writes(l) {
		return nil, false
	}
	l.explain(&s, d)
	return l, sure
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

// somebody notes that the replicas were changed. Who does so again and again is no
// person: what to do about that is said, and not each time. The caller holds mu.
func (k *Kubernetes) somebody(t *kubeTarget, from, to int) {
	now := time.Now()
	if now.Sub(t.editAt) > editsApart {
		t.edits = 0
	}
	t.edits, t.editAt = t.edits+1, now
	text, level := fmt.Sprintf("somebody else set %s from %d to %d replicas", t.name, from, to), zerolog.WarnLevel
	if n := t.edits; n > 2 {
		text += fmt.Sprintf(", %d times in a row: take replicas out of the manifest that is applied, and end what else sizes it", n)
		if n > 3 && n&(n-1) != 0 {
			level = zerolog.DebugLevel
		}
	}
	k.say(t, level, text)
}

// wrong notes that another Pod went than was to go. The caller holds mu.
func (k *Kubernetes) wrong(t *kubeTarget, l *look, f *kubeFence) {
	k.say(t, zerolog.WarnLevel, fmt.Sprintf("%s went instead of %s, which takes requests again", t.missing(l), f.alive(l)))
}

// say notes what befell a target. The caller holds mu.
func (k *Kubernetes) say(t *kubeTarget, level zerolog.Level, text string) {
	k.log.WithLevel(level).Str("object", t.where).Str("decision", t.last.ID).Str("reason", text).Msg("replicas changed otherwise than decided")
	t.said, t.saidAt, t.saidOf = text, time.Now(), 0
}

// actual is a look as the autoscaler has it, under a decision. What befell the replicas
// is told with the decision that met it, not with later ones. The caller holds mu.
func (k *Kubernetes) actual(t *kubeTarget, l *look, key state.TargetKey, decision uint64) state.Actual {
	now, top := time.Now(), l.top()
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
			Ready: p.ready() && !p.ending(), Stopping: p.ending(), Problem: p.problem(), Turn: p.turn(top, now.Sub(t.unready[p.Metadata.UID])),
		})
	}
	slices.SortFunc(a.Instances, func(x, y state.Instance) int { return cmp.Compare(x.Replica.ID, y.Replica.ID) })
	return a
}
