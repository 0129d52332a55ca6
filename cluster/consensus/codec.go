package consensus

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Encoded forms are versioned JSON. Unknown fields are skipped, so that a router
// reads what the next release writes; a higher version is refused.
const (
	factsVersion   = 1
	commandVersion = 1
)

// Bounds of what is decoded and of what the facts may hold.
const (
	maxFactsBytes   = 32 << 20
	maxCommandBytes = 256 << 10
	maxTargets      = 1024
	maxReplicas     = 8192
	maxDrains       = 8192
	maxEvidence     = 64
	maxText         = 4096 // bytes of any single text
	maxVictims      = 1024
	maxTarget       = 1 << 20 // replicas wanted of one target
	maxPolicies     = 1024
)

type wireFacts struct {
	V         int            `json:"v"`
	Index     uint64         `json:"index"`
	ClusterID string         `json:"cluster_id,omitempty"`
	Recovered uint64         `json:"recovered,omitempty"`
	Epoch     uint64         `json:"epoch,omitempty"`
	Leader    state.RouterID `json:"leader,omitempty"`
	Targets   []wireTarget   `json:"targets,omitempty"`
	Decisions []wireDecision `json:"decisions,omitempty"`
	Replicas  []wireReplica  `json:"replicas,omitempty"`
	Draining  []wireDrain    `json:"draining,omitempty"`
	Undrained []wireUndrain  `json:"undrained,omitempty"`
	Policies  []wirePolicy   `json:"policies,omitempty"`
	// Config is new: what was written without it has none.
	Config *wireConfig `json:"config,omitempty"`
}

type wireTarget struct {
	Pool string     `json:"pool"`
	Role state.Role `json:"role"`
	N    *int       `json:"n,omitempty"`
	Hold bool       `json:"hold,omitempty"`
}

type wireDecision struct {
	ID       string             `json:"id"`
	Index    uint64             `json:"index,omitempty"`
	Epoch    uint64             `json:"epoch,omitempty"`
	Pool     string             `json:"pool"`
	Role     state.Role         `json:"role"`
	From     int                `json:"from"`
	To       int                `json:"to"`
	Reason   string             `json:"reason,omitempty"`
	Evidence map[string]float64 `json:"evidence,omitempty"`
	By       string             `json:"by,omitempty"`
	At       int64              `json:"at,omitempty"` // Unix nanoseconds
	Victims  []state.ReplicaID  `json:"victims,omitempty"`
	Outcome  state.Outcome      `json:"outcome,omitempty"`
	Detail   string             `json:"detail,omitempty"`
	DoneAt   int64              `json:"done_at,omitempty"`
}

type wireReplica struct {
	ID     state.ReplicaID  `json:"id"`
	Pool   string           `json:"pool"`
	URL    string           `json:"url"`
	Role   state.Role       `json:"role"`
	Engine state.EngineKind `json:"engine,omitempty"`
	Rank   int              `json:"rank,omitempty"`
	Source state.Source     `json:"source,omitempty"`
	// BootstrapPort is new: what was written without it has none.
	BootstrapPort int    `json:"bootstrap_port,omitempty"`
	Name          string `json:"-"` // discovery's alone, as is what follows
	Leaving       string `json:"-"`
	Ranks         int    `json:"-"`
}

type wireDrain struct {
	Of       state.ReplicaID `json:"of"`
	Index    uint64          `json:"index,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	By       string          `json:"by,omitempty"`
	Deadline time.Duration   `json:"deadline_ns,omitempty"`
}

type wireUndrain struct {
	Of    state.ReplicaID `json:"of"`
	Index uint64          `json:"index"`
}

type wirePolicy struct {
	Pool   string `json:"pool"`
	Policy string `json:"policy"`
}

type wireConfig struct {
	Revision uint64            `json:"revision"`
	Pools    map[string]string `json:"pools"`
}

type wireCommand struct {
	V        int               `json:"v"`
	ID       string            `json:"id"`
	Kind     state.CommandKind `json:"kind"`
	Epoch    uint64            `json:"epoch,omitempty"`
	Decision *wireDecision     `json:"decision,omitempty"`
	Hold     bool              `json:"hold,omitempty"`
	Target   *wireTarget       `json:"target,omitempty"`
	Replica  *wireReplica      `json:"replica,omitempty"`
	Settles  string            `json:"settles,omitempty"`
	Outcome  state.Outcome     `json:"outcome,omitempty"`
	Detail   string            `json:"detail,omitempty"`
	At       int64             `json:"at,omitempty"`
	Of       state.ReplicaID   `json:"of,omitempty"`
	Drain    *wireDrain        `json:"drain,omitempty"`
	Cluster  string            `json:"cluster,omitempty"`
	Router   state.RouterID    `json:"router,omitempty"`
	Pool     string            `json:"pool,omitempty"`
	Policy   string            `json:"policy,omitempty"`
	Pools    map[string]string `json:"pools,omitempty"`
	Facts    *wireFacts        `json:"facts,omitempty"`
	Force    bool              `json:"force,omitempty"`
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// EncodeFacts is the travelling form of the facts: equal facts give equal bytes.
func EncodeFacts(f *state.Facts) ([]byte, error) {
	return json.Marshal(toWire(f))
}

func toWire(f *state.Facts) *wireFacts {
	w := &wireFacts{V: factsVersion, Index: f.Index, ClusterID: f.ClusterID, Recovered: f.Recovered, Epoch: f.Epoch, Leader: f.Leader}
	keys := map[state.TargetKey]bool{}
	for k := range f.Targets {
		keys[k] = true
	}
	for k := range f.Holds {
		keys[k] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), compareKeys) {
		t := wireTarget{Pool: k.Pool, Role: k.Role, Hold: f.Holds[k]}
		if n, ok := f.Targets[k]; ok {
			t.N = &n
		}
		w.Targets = append(w.Targets, t)
	}
	for i := range f.Decisions {
		w.Decisions = append(w.Decisions, toWireDecision(&f.Decisions[i]))
	}
	for _, id := range slices.Sorted(maps.Keys(f.Replicas)) {
		w.Replicas = append(w.Replicas, wireReplica(f.Replicas[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(f.Draining)) {
		w.Draining = append(w.Draining, toWireDrain(id, f.Draining[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(f.Undrained)) {
		w.Undrained = append(w.Undrained, wireUndrain{id, f.Undrained[id]})
	}
	for _, pool := range slices.Sorted(maps.Keys(f.Policies)) {
		w.Policies = append(w.Policies, wirePolicy{pool, f.Policies[pool]})
	}
	if f.Config.Revision > 0 {
		w.Config = &wireConfig{f.Config.Revision, f.Config.Pools}
	}
	return w
}

func compareKeys(a, b state.TargetKey) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Role, b.Role))
}

func toWireDrain(id state.ReplicaID, d state.Drain) wireDrain {
	return wireDrain{Of: id, Index: d.Index, Reason: d.Reason, By: d.By, Deadline: d.Deadline}
}

func toWireDecision(d *state.Decision) wireDecision {
	return wireDecision{
		ID: d.ID, Index: d.Index, Epoch: d.Epoch, Pool: d.Pool, Role: d.Role, From: d.From, To: d.To,
		Reason: d.Reason, Evidence: finite(d.Evidence), By: d.By, At: nanos(d.At), Victims: d.Victims,
		Outcome: d.Outcome, Detail: d.Detail, DoneAt: nanos(d.DoneAt),
	}
}

// finite drops what JSON has no word for; unknown evidence is no evidence.
func finite(m map[string]float64) map[string]float64 {
	for _, v := range m {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			m = maps.Clone(m)
			maps.DeleteFunc(m, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
			break
		}
	}
	return m
}

func (d *wireDecision) decision() state.Decision {
	return state.Decision{
		ID: d.ID, Index: d.Index, Epoch: d.Epoch, Pool: d.Pool, Role: d.Role, From: d.From, To: d.To,
		Reason: d.Reason, Evidence: d.Evidence, By: d.By, At: fromNanos(d.At), Victims: d.Victims,
		Outcome: d.Outcome, Detail: d.Detail, DoneAt: fromNanos(d.DoneAt),
	}
}

func (d *wireDrain) drain() state.Drain {
	return state.Drain{Index: d.Index, Reason: d.Reason, By: d.By, Deadline: d.Deadline}
}

// DecodeFacts reads EncodeFacts' bytes. It never panics, and refuses what is
// larger than facts may be.
func DecodeFacts(b []byte) (*state.Facts, error) {
	if len(b) > maxFactsBytes {
		return nil, errors.New("decode facts: too large")
	}
	var w wireFacts
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decode facts: %w", err)
	}
	f, err := w.facts()
	if err != nil {
		return nil, fmt.Errorf("decode facts: %w", err)
	}
	return f, nil
}

func (w *wireFacts) facts() (*state.Facts, error) {
	if w.V < 1 || w.V > factsVersion {
		return nil, fmt.Errorf("version %d is not known here", w.V)
	}
	if len(w.Targets) > maxTargets || len(w.Decisions) > state.MaxDecisions ||
		len(w.Replicas) > maxReplicas || len(w.Draining) > maxDrains || len(w.Undrained) > state.MaxUndrained || len(w.Policies) > maxPolicies {
		return nil, errors.New("more entries than facts may have")
	}
	f := state.NewFacts()
	f.Index, f.ClusterID, f.Recovered, f.Epoch, f.Leader = w.Index, w.ClusterID, w.Recovered, w.Epoch, w.Leader
	for _, t := range w.Targets {
		k := state.TargetKey{Pool: t.Pool, Role: t.Role}
		if t.N != nil {
			f.Targets[k] = *t.N
		}
		if t.Hold {
			f.Holds[k] = true
		}
	}
	for i := range w.Decisions {
		f.Decisions = append(f.Decisions, w.Decisions[i].decision())
	}
	for _, r := range w.Replicas {
		f.Replicas[r.ID] = state.Replica(r)
	}
	for i := range w.Draining {
		f.Draining[w.Draining[i].Of] = w.Draining[i].drain()
	}
	for _, u := range w.Undrained {
		f.Undrained[u.Of] = u.Index
	}
	for _, p := range w.Policies {
		f.Policies[p.Pool] = p.Policy
	}
	if w.Config != nil && w.Config.Revision > 0 {
		if len(w.Config.Pools) > maxPools {
			return nil, errors.New("more entries than facts may have")
		}
		f.Config = state.ConfigMark{Revision: w.Config.Revision, Pools: w.Config.Pools}
	}
	return f, nil
}

// commandBound is how many bytes a command of a kind may have.
func commandBound(k state.CommandKind) int {
	if k == state.CommandRestore {
		return maxRestoreBytes
	}
	return maxCommandBytes
}

// encodeCommand is the form in the log and on the way to the leader.
func encodeCommand(c *state.Command) ([]byte, error) {
	w := wireCommand{
		V: commandVersion, ID: c.ID, Kind: c.Kind, Epoch: c.Epoch, Hold: c.Hold,
		Settles: c.Settles, Outcome: c.Outcome, Detail: c.Detail, At: nanos(c.At), Of: c.Of,
		Cluster: c.Cluster, Router: c.Router, Pool: c.Pool, Policy: c.Policy, Pools: c.Pools, Force: c.Force,
	}
	if c.Facts != nil {
		w.Facts = toWire(c.Facts)
	}
	if c.Decision != nil {
		d := toWireDecision(c.Decision)
		w.Decision = &d
	}
	if c.Target != (state.TargetKey{}) {
		w.Target = &wireTarget{Pool: c.Target.Pool, Role: c.Target.Role}
	}
	if c.Replica != nil {
		r := wireReplica(*c.Replica)
		w.Replica = &r
	}
	if c.Drain != nil {
		d := toWireDrain(c.Of, *c.Drain)
		w.Drain = &d
	}
	b, err := json.Marshal(&w)
	if err == nil && len(b) > commandBound(c.Kind) {
		err = errors.New("too large")
	}
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return b, nil
}

// decodeCommand reads encodeCommand's bytes. It never panics.
func decodeCommand(b []byte) (*state.Command, error) {
	if len(b) > maxRestoreBytes {
		return nil, errors.New("decode command: too large")
	}
	var w wireCommand
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("decode command: %w", err)
	}
	if len(b) > commandBound(w.Kind) {
		return nil, errors.New("decode command: too large")
	}
	if w.V < 1 || w.V > commandVersion {
		return nil, fmt.Errorf("decode command: version %d is not known here", w.V)
	}
	c := &state.Command{
		ID: w.ID, Kind: w.Kind, Epoch: w.Epoch, Hold: w.Hold,
		Settles: w.Settles, Outcome: w.Outcome, Detail: w.Detail, At: fromNanos(w.At), Of: w.Of,
		Cluster: w.Cluster, Router: w.Router, Pool: w.Pool, Policy: w.Policy, Pools: w.Pools, Force: w.Force,
	}
	if w.Facts != nil {
		f, err := w.Facts.facts()
		if err != nil {
			return nil, fmt.Errorf("decode command: %w", err)
		}
		c.Facts = f
	}
	if w.Decision != nil {
		d := w.Decision.decision()
		c.Decision = &d
	}
	if w.Target != nil {
		c.Target = state.TargetKey{Pool: w.Target.Pool, Role: w.Target.Role}
	}
	if w.Replica != nil {
		r := state.Replica(*w.Replica)
		c.Replica = &r
	}
	if w.Drain != nil {
		d := w.Drain.drain()
		c.Drain = &d
	}
	return c, nil
}
