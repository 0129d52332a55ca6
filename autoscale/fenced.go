package autoscale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// FencedRest is how long a pool is let alone whose actuator has seen a later term or
// decision while this router still leads.
const FencedRest = 30 * time.Second

// stale reports that an error says that another leader's term has begun.
func stale(err error) bool {
	var r *state.Refusal
	return errors.As(err, &r) && r.Code == state.RefusedStaleEpoch
}

// fenced settles what a fence keeps from being carried out, as failed. Such a leader is of
// the past, and then the commit is refused and the error says so; or the numbers
// that the actuator keeps are of another cluster, and only people can mend that.
func (l *Loop) fenced(ctx context.Context, now time.Time) error {
	f := l.cfg.Cluster.View().Facts
	var errs []error
	for _, r := range l.Reports() {
		if d := f.LastDecision(r.Key); r.Fenced && d != nil && d.Open() {
			errs = append(errs, l.settle(ctx, d, state.OutcomeFailed, r.Trouble[:min(len(r.Trouble), maxDetail)], now))
		}
	}
	return errors.Join(errs...)
}

// moved tells of a replica that has another address than the one it was committed with,
// which is kept: all that was learned of an id is of that address.
func moved(f *state.Facts, a *state.Actual) string {
	if a.Discovered {
		return ""
	}
	for _, i := range a.Instances {
		x, known := f.Replicas[i.Replica.ID]
		if known && !i.Stopping && i.Replica.URL != "" && x.URL != i.Replica.URL {
			return fmt.Sprintf("%s: its url changed from %s to %s, which is not used: give it a new id", x.ID, x.URL, i.Replica.URL)
		}
	}
	return ""
}
