package actuator

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hearsay-llm/hearsay/state"
)

// maxRecords bounds what a DryRun remembers.
const maxRecords = 256

// DryRun records what would be done. Safe for concurrent use.
type DryRun struct {
	mu      sync.Mutex
	fence   fence           // guarded by mu
	records []state.Desired // guarded by mu; oldest first
}

// NewDryRun returns one without records.
func NewDryRun() *DryRun { return &DryRun{} }

// List says that there is nothing and never will be.
func (d *DryRun) List(context.Context, state.TargetKey) (state.Actual, error) {
	return state.Actual{DryRun: true}, nil
}

// Ensure records w once per decision.
func (d *DryRun) Ensure(_ context.Context, w state.Desired) (state.Actual, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fence.pass(&w); err != nil {
		return state.Actual{DryRun: true}, err
	}
	if n := len(d.records); n == 0 || d.records[n-1].ID != w.ID || d.records[n-1].Want != w.Want {
		if n >= maxRecords {
			d.records = slices.Delete(d.records, 0, 1)
		}
		d.records = append(d.records, w)
	}
	return state.Actual{DryRun: true}, nil
}

// Records are the last wishes, oldest first.
func (d *DryRun) Records() []state.Desired {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.records)
}

// fence remembers the highest term, and the highest decision about each target,
// that have been seen.
type fence struct {
	Epoch     uint64            `json:"epoch"`
	Decisions map[string]uint64 `json:"decisions"`
}

func (f *fence) pass(d *state.Desired) error {
	k := d.Target.Pool + "/" + string(d.Target.Role)
	if d.Epoch < f.Epoch || d.Decision < f.Decisions[k] {
		return fmt.Errorf("epoch %d, decision %d: %w", d.Epoch, d.Decision, state.ErrFenced)
	}
	f.Epoch = d.Epoch
	if f.Decisions == nil {
		f.Decisions = map[string]uint64{}
	}
	f.Decisions[k] = d.Decision
	return nil
}
