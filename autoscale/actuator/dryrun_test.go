package actuator

import (
	"context"
	"errors"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

func TestDryRunRecordsEachDecisionOnceAndFences(t *testing.T) {
	d := NewDryRun()
	for range 3 {
		if a, err := d.Ensure(context.Background(), want(2, 5, 3)); err != nil || !a.DryRun {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if _, err := d.Ensure(context.Background(), want(1, 6, 9)); !errors.Is(err, state.ErrFenced) {
		t.Errorf("older term: %v", err)
	}
	if r := d.Records(); len(r) != 1 || r[0].Want != 3 {
		t.Errorf("records %+v", r)
	}
	for i := range uint64(2 * maxRecords) {
		if _, err := d.Ensure(context.Background(), want(2, 6+i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.Records()); n != maxRecords {
		t.Errorf("%d records", n)
	}
}
