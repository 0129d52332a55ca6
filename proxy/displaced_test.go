package proxy

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// hooked is a store that calls a function before each change of what waits.
type hooked struct {
	*state.Store
	wait func(requests int64)
}

func (h *hooked) Wait(pool string, requests, tokens int64) {
	if h.wait != nil {
		h.wait(requests)
	}
	h.Store.Wait(pool, requests, tokens)
}

// fickle panics where it is told to.
type fickle struct {
	Picker
	panics bool
}

func (f *fickle) Pick(c *routing.Choice, req *routing.Request, v *state.View, now time.Time) error {
	if f.panics {
		panic("pick")
	}
	return f.Picker.Pick(c, req, v, now)
}

// fullCore is a core of one pool with one replica that has as many requests as it may,
// and room for one request that waits.
func fullCore(t *testing.T) (*Core, *hooked, *fickle) {
	t.Helper()
	clock := state.NewClock(1, time.Now())
	spec := state.PoolSpec{Name: "chat", Model: "llama", Engine: state.EngineVLLM, MaxInFlight: 1, QueueRequests: 1}
	store := &hooked{Store: state.NewStore(state.Config{Self: "r1", Clock: clock, Pools: []state.PoolSpec{spec}})}
	store.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "e1", URL: "http://e1", Role: state.RoleBoth}})
	picker := &fickle{Picker: routing.NewPicker(routing.Config{}, nil, routing.NewCalibration())}
	c, err := NewCore(CoreConfig{Store: store, Picker: picker, Ratios: prefix.NewRatios(16)}, prometheus.NewPedanticRegistry())
	must(t, err)
	first := admit(t, c, state.BandNormal)
	_, err = first.first()
	must(t, err)
	t.Cleanup(first.Release)
	return c, store, picker
}

func admit(t *testing.T, c *Core, band state.Band) *Job {
	t.Helper()
	body := []byte(`{"model":"llama","messages":[{"role":"user","content":"hi"}]}`)
	ask, err := api.Parse(api.Chat, body)
	must(t, err)
	j, err := c.Admit(&Ask{ID: "x", Request: &ask, Body: body, Band: band})
	must(t, err)
	return j
}

func queuedJob(t *testing.T, c *Core, band state.Band) (*Job, *place) {
	t.Helper()
	j := admit(t, c, band)
	if _, err := j.first(); err == nil {
		t.Fatal("it need not wait")
	}
	p, err := j.wait(time.Minute, false, time.Now())
	must(t, err)
	return j, p
}

// A request that is displaced may be over, and its job another's, before the newcomer
// has counted it out.
func TestDisplacedIsOverAtOnce(t *testing.T) {
	c, store, _ := fullCore(t)
	old, place := queuedJob(t, c, state.BandLow)
	queue := old.queue
	store.wait = func(int64) {
		store.wait = nil
		<-place.Out
		if _, err := place.outcome(); api.AsError(err).Reason != shedDisplaced {
			t.Errorf("displaced: %v", err)
		}
		old.Release()
	}
	j, newer := queuedJob(t, c, state.BandHigh)
	if b := store.View().PoolNamed("chat").OwnBacklog(); b.Requests != 1 {
		t.Errorf("%d are counted as waiting, not 1", b.Requests)
	}
	if !newer.leave() {
		t.Error("the newcomer did not wait")
	}
	j.Release()
	if b := store.View().PoolNamed("chat").OwnBacklog(); b.Requests != 0 || b.Tokens != 0 || queue.Len() != 0 {
		t.Errorf("left: %+v, %d entries", b, queue.Len())
	}
}

// A panic of a pick for a request that waits ends that request, and not who pumps: the
// loop over all queues would take the process with it.
func TestPanicOfAWaitingPick(t *testing.T) {
	c, store, picker := fullCore(t)
	j, place := queuedJob(t, c, state.BandNormal)
	panics := 0
	c.panicked = func(any) { panics++ }
	picker.panics = true
	c.queues.each(c.pump)
	if !closed(place.Out) {
		t.Fatal("it waits on")
	}
	if _, err := place.outcome(); api.AsError(err).Status != 500 || panics != 1 {
		t.Errorf("got %v after %d panics", err, panics)
	}
	if b := store.View().PoolNamed("chat").OwnBacklog(); b.Requests != 0 || j.queue.Len() != 0 {
		t.Errorf("left: %+v, %d entries", b, j.queue.Len())
	}
	j.Release()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
