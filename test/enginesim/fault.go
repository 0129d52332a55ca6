package enginesim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// FaultKind names a way to fail.
type FaultKind string

// Faults. Those on requests concern inference paths only; /sim paths never fail.
const (
	FaultStatus        FaultKind = "status"         // answer with Status, do nothing
	FaultReset         FaultKind = "reset"          // TCP RST after AfterEvents stream events
	FaultFin           FaultKind = "fin"            // close without the final chunk after AfterEvents events
	FaultSilence       FaultKind = "silence"        // stop sending after AfterEvents events, socket open
	FaultStreamError   FaultKind = "stream_error"   // an error event after AfterEvents stream events, then the end; no stream: Status
	FaultSlow          FaultKind = "slow"           // steps take Factor times as long
	FaultHangMetrics   FaultKind = "hang_metrics"   // /metrics does not answer
	FaultMetricsStatus FaultKind = "metrics_status" // /metrics answers Status
	FaultHealth        FaultKind = "health"         // /health answers Status (default 503)
	FaultRestart       FaultKind = "restart"        // running requests die, cache and counters start over; then loading for Duration
	FaultWipe          FaultKind = "wipe"           // the cache is cleared, nothing else
	FaultLoading       FaultKind = "loading"        // every path answers 503
	FaultNone          FaultKind = "none"           // ends all faults
)

// Fault is a failure on command. One of each kind may be active; a new one
// replaces it. It ends after Count requests, after Duration, or with FaultNone,
// whichever comes first. Restart and wipe happen once.
type Fault struct {
	Kind        FaultKind
	Status      int           // of status (required), metrics_status and health (default 503), stream_error (default 500)
	RetryAfter  int           // seconds, of status; 0 = no header
	Body        string        // of status; "" = an error body of the engine's kind
	Count       int           // requests it applies to; 0 = no bound
	Duration    time.Duration // 0 = no bound
	AfterEvents int           // events sent before reset, fin, silence; 0 = before the response header; and before stream_error
	Factor      float64       // of slow, > 0
}

// FaultExample is a fault as POST /sim/fault takes it.
const FaultExample = `{"kind":"status","status":503,"count":10}`

// faultWords says what each kind does, in the words of the form that POST
// /sim/fault takes. No other kind is known.
var faultWords = []faultWord{
	{FaultStatus, `answer with "status", "body" and "retry_after_s", and do nothing`},
	{FaultReset, `reset the connection after "after_events" stream events; 0: before the answer`},
	{FaultFin, `close the connection after "after_events" events, the answer unfinished`},
	{FaultSilence, `stop sending after "after_events" events, the connection open`},
	{FaultStreamError, `end a stream with an error of "status", or 500, after "after_events" events`},
	{FaultSlow, `every step takes "factor" times as long`},
	{FaultHangMetrics, `/metrics does not answer`},
	{FaultMetricsStatus, `/metrics answers with "status", or 503`},
	{FaultHealth, `/health answers with "status", or 503`},
	{FaultRestart, `running requests die, cache and counters start over; then loading for "duration_ms"`},
	{FaultWipe, `the cache is cleared`},
	{FaultLoading, `every path answers 503`},
	{FaultNone, `ends all faults`},
}

type faultWord struct {
	kind FaultKind
	does string
}

// FaultHelp lists the kinds of faults and what they do, one a line.
func FaultHelp() string {
	var lines []string
	for _, w := range faultWords {
		lines = append(lines, fmt.Sprintf("  %-14s %s", w.kind, w.does))
	}
	return strings.Join(lines, "\n")
}

func faultNames() string {
	var names []string
	for _, w := range faultWords {
		names = append(names, string(w.kind))
	}
	return strings.Join(names, ", ")
}

type faultJSON struct {
	Kind        FaultKind `json:"kind"`
	Status      int       `json:"status,omitempty"`
	RetryAfter  int       `json:"retry_after_s,omitempty"`
	Body        string    `json:"body,omitempty"`
	Count       int       `json:"count,omitempty"`
	DurationMs  float64   `json:"duration_ms,omitempty"`
	AfterEvents int       `json:"after_events,omitempty"`
	Factor      float64   `json:"factor,omitempty"`
}

// MarshalJSON writes the form POST /sim/fault takes.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(faultJSON{
		f.Kind, f.Status, f.RetryAfter, f.Body, f.Count,
		float64(f.Duration) / float64(time.Millisecond), f.AfterEvents, f.Factor,
	})
}

// UnmarshalJSON reads the form POST /sim/fault takes. An unknown field is an error:
// left out, a bound's misspelling would make a fault that never ends.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var w faultJSON
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return err
	}
	*f = Fault{
		w.Kind, w.Status, w.RetryAfter, w.Body, w.Count,
		time.Duration(w.DurationMs * float64(time.Millisecond)), w.AfterEvents, w.Factor,
	}
	return nil
}

// validate fills defaults and refuses what has no meaning.
func (f *Fault) validate() error {
	if !slices.ContainsFunc(faultWords, func(w faultWord) bool { return w.kind == f.Kind }) {
		return fmt.Errorf("unknown kind of fault %q: the kinds are %s", f.Kind, faultNames())
	}
	if f.Count < 0 || f.Duration < 0 || f.AfterEvents < 0 {
		return fmt.Errorf("fault %q: negative count, duration or after_events", f.Kind)
	}
	switch f.Kind {
	case FaultMetricsStatus, FaultHealth, FaultStatus, FaultStreamError:
		if f.Status == 0 {
			f.Status = map[FaultKind]int{FaultMetricsStatus: 503, FaultHealth: 503, FaultStreamError: 500}[f.Kind]
		}
		if f.Status < 200 || f.Status > 599 {
			return fmt.Errorf("fault %q: status %d is not in 200..599", f.Kind, f.Status)
		}
	case FaultSlow:
		if f.Factor <= 0 {
			return fmt.Errorf("fault slow: factor %v is not positive", f.Factor)
		}
	}
	return nil
}

// beforeAnswer says whether it meets a request before its answer begins.
func (f *Fault) beforeAnswer() bool {
	return f.Kind == FaultStatus || f.AfterEvents == 0 && f.Kind != FaultStreamError
}

// apiError is what a fault with a status says.
func (f *Fault) apiError() *apiError {
	return &apiError{status: f.Status, kind: http.StatusText(f.Status), message: "simulated failure"}
}

// faults holds the active ones. Guarded by Engine.mu.
type faults struct {
	active  map[FaultKind]*activeFault
	changed chan struct{} // closed and replaced at every change
	clears  int           // times all were ended
}

type activeFault struct {
	Fault
	left  int // uses left, with Count > 0
	age   int // faults.clears when it was set
	until time.Time
}

func newFaults() faults {
	return faults{active: map[FaultKind]*activeFault{}, changed: make(chan struct{})}
}

func (f *faults) set(now time.Time, x Fault) {
	a := &activeFault{Fault: x, left: x.Count, age: f.clears}
	if x.Duration > 0 {
		a.until = now.Add(x.Duration)
	}
	f.active[x.Kind] = a
	f.wake()
}

func (f *faults) clear() {
	clear(f.active)
	f.clears++
	f.wake()
}

func (f *faults) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// get returns the active fault of a kind, or nil.
func (f *faults) get(now time.Time, k FaultKind) *activeFault {
	a := f.active[k]
	if a == nil {
		return nil
	}
	if !a.until.IsZero() && !now.Before(a.until) {
		delete(f.active, k)
		return nil
	}
	return a
}

// use is get, and counts one use.
func (f *faults) use(now time.Time, k FaultKind) *activeFault {
	a := f.get(now, k)
	if a != nil && a.Count > 0 {
		if a.left--; a.left == 0 {
			delete(f.active, k)
		}
	}
	return a
}

// list returns the active faults.
func (f *faults) list(now time.Time) []Fault {
	out := []Fault{}
	for k := range f.active {
		if a := f.get(now, k); a != nil {
			out = append(out, a.Fault)
		}
	}
	return out
}
