package whatif

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/traces"
)

// small is a workload of requests that are due at these times.
func small(t *testing.T, at ...time.Duration) *Workload {
	t.Helper()
	var list []*traces.Request
	for i, d := range at {
		list = append(list, &traces.Request{
			At: d, InputTokens: 4096, OutputTokens: 20,
			Messages: []traces.Message{{Role: "user", Parts: []traces.Part{{ID: uint64(i % 3), Tokens: 4096}}}},
		})
	}
	w, err := NewWorkload("small", traces.Slice(list...), 0)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// What a run costs does not depend on how long nothing happens in a trace, and neither
// does what comes of it, but for what routers forget.
func TestGapsCostNothing(t *testing.T) {
	events := func(gap time.Duration) (uint64, Figures) {
		t.Helper()
		var at []time.Duration
		for i := range 30 {
			at = append(at, time.Duration(i)*time.Second+time.Duration(i/10)*gap)
		}
		w, err := newWorld(DefaultConfig(), small(t, at...))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		f := w.figures()
		if f.Failed > 0 || f.Requests != 30 {
			t.Errorf("gaps of %v: %+v", gap, f)
		}
		return w.count, f
	}
	hour, f := events(time.Hour)
	for _, gap := range []time.Duration{24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		n, g := events(gap)
		if n > hour+hour/10 {
			t.Errorf("gaps of %v: %d events, of an hour %d", gap, n, hour)
		}
		if g.TTFTP50 != f.TTFTP50 || g.HitRate < f.HitRate-0.1 {
			t.Errorf("gaps of %v: %+v, of an hour %+v", gap, g, f)
		}
	}
}

// Requests that all come at one time have no rate.
func TestGoodputOfOneInstant(t *testing.T) {
	for _, at := range [][]time.Duration{{0}, {0, 0, 0}, {time.Second, time.Second, time.Second + 10*time.Nanosecond}} {
		f, err := Run(t.Context(), DefaultConfig(), small(t, at...))
		if err != nil || f.Goodput != 0 || f.Span != 0 || f.MetSLO != 1 {
			t.Errorf("%v: %+v, %v", at, f, err)
		}
		var b strings.Builder
		Write(&b, "", []Outcome{{"one", f}, {"two", f}})
		if text := b.String(); !strings.Contains(text, " - ") && !strings.Contains(text, "| -") {
			t.Error(text)
		}
	}
	f, err := Run(t.Context(), DefaultConfig(), small(t, 0, time.Second, 2*time.Second))
	if err != nil || fmt.Sprintf("%.1f", f.Goodput) != "1.5" || f.Span != 2*time.Second {
		t.Errorf("%+v, %v", f, err)
	}
}
