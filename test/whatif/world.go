package whatif

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/test/enginesim"
)

// world is a cluster in virtual time. It belongs to one goroutine.
type world struct {
	cfg      Config
	work     *Workload
	epoch    time.Time
	now      time.Duration // since the epoch
	events   events
	count    uint64 // of events so far: what was planned first comes first
	routers  []*router
	replicas []*replica
	byID     map[state.ReplicaID]*replica
	learned  learned

	flights []flight         // by request
	waiting map[int][]func() // by request: the turns that reply to it and are due
	left    int              // requests that have not ended
	came    int              // requests that were due
	flying  int              // requests that were sent and have not ended
	quiet   time.Duration    // when the last one ended
	err     error
}

// flight is one request on its way.
type flight struct {
	item      *Item
	i         int
	job       *proxy.Job
	sink      api.AnswerSink
	from      *router
	sent      time.Duration
	first     time.Duration
	done      time.Duration
	cached    int
	predicted time.Duration // time to first token
	failed    bool
	ended     bool
}

type event struct {
	at time.Duration
	n  uint64
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}

// time is the virtual instant, as the parts take it.
func (w *world) time() time.Time { return w.epoch.Add(w.now) }

// at plans something.
func (w *world) at(when time.Duration, do func()) {
	w.count++
	heap.Push(&w.events, event{max(when, w.now), w.count, do})
}

// every plans something at once and again and again while requests are left, but not for
// a time in which nothing happens.
func (w *world) every(d time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		if w.left > 0 {
			w.at(w.now+d+w.pause()/d*d, again)
		}
	}
	w.at(w.now, again)
}

// pause is how long from now on nothing is to be done: all is told and read that has
// happened, and the next request is not due. A trace may have gaps of days.
func (w *world) pause() time.Duration {
	settled := max(settle, 2*w.cfg.Delay)
	if w.flying > 0 || w.came == len(w.work.Items) || w.now < w.quiet+settled {
		return 0
	}
	return max(0, w.work.Items[w.came].At-settled-w.now)
}

const (
	// rowsEvery is how often a router repeats its rows, as gossip does.
	rowsEvery = time.Second
	// sweepEvery is how often a sketch is swept, as in cmd/node.
	sweepEvery = 30 * time.Second
	// startUp is how long routers know each other before the first request.
	startUp = time.Second
	// settle is how long after the last answer, and before the next request, what is done
	// at intervals goes on.
	settle = 10 * time.Second
)

func newWorld(cfg Config, work *Workload) (*world, error) {
	timing, err := enginesim.NewTiming(cfg.Profile)
	if err != nil {
		return nil, err
	}
	w := &world{
		cfg: cfg, work: work, epoch: time.Unix(1_700_000_000, 0), byID: map[state.ReplicaID]*replica{},
		learned: learned{routing.NewCalibration(), prefix.NewRatios(1024)},
		flights: make([]flight, len(work.Items)), waiting: map[int][]func(){}, left: len(work.Items),
	}
	var listed []state.Replica
	for i := range cfg.Replicas {
		r := newReplica(state.ReplicaID(fmt.Sprintf("http://e%03d:8000", i)), timing, &cfg)
		w.replicas, w.byID[r.id] = append(w.replicas, r), r
		listed = append(listed, state.Replica{ID: r.id, Pool: Pool, URL: string(r.id), Role: state.RoleBoth, Engine: state.EngineVLLM})
	}
	for i := range cfg.Routers {
		r, err := newRouter(w, i, listed)
		if err != nil {
			return nil, fmt.Errorf("router %d: %w", i, err)
		}
		w.routers = append(w.routers, r)
	}
	return w, nil
}

// run goes through all requests, until the last one's end or ctx's.
func (w *world) run(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, 0x726f75746572)) // as test/bench/sim draws routers
	for i, it := range w.work.Items {
		r := w.routers[rng.IntN(len(w.routers))]
		w.at(startUp+it.At, func() { w.due(i, r) })
	}
	w.every(w.cfg.ReadEvery, w.read)
	w.every(rowsEvery, func() {
		for _, r := range w.routers {
			w.tell(r)
		}
	})
	w.every(sweepEvery, func() {
		for _, r := range w.routers {
			r.index.Sweep(w.time())
		}
	})
	for n := 0; w.left > 0 && len(w.events) > 0 && w.err == nil; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	return w.err
}

// due sends request i through a router, once the turn it replies to has been answered.
func (w *world) due(i int, r *router) {
	w.came++
	if p := w.work.Items[i].Prev; p >= 0 && !w.flights[p].ended {
		w.waiting[p] = append(w.waiting[p], func() { w.send(i, r) })
		return
	}
	w.send(i, r)
}

// send picks a replica and hands the request to it, as the proxy's handler does.
func (w *world) send(i int, r *router) {
	f := &w.flights[i]
	*f = flight{item: w.work.Items[i], i: i, from: r, sent: w.now}
	w.flying++
	job, err := r.core.Admit(&proxy.Ask{Request: &f.item.Request, Body: f.item.Body, Session: f.item.Session})
	if err != nil {
		w.end(f, true)
		return
	}
	f.job = job
	view, err := job.Next()
	if err != nil {
		w.end(f, true)
		return
	}
	f.predicted = job.Pick().TTFT
	w.changed(r)
	x := w.byID[view.ID]
	w.step(x)
	if err := x.submit(w.now, f); err != nil {
		job.End(&proxy.Result{Outcome: proxy.OutcomeFailed})
		w.end(f, true)
		return
	}
	w.arm(x)
}

// arm plans the replica's next step.
func (w *world) arm(x *replica) {
	at, ok := x.core.Next()
	if !ok || x.due == at && at > w.now {
		return
	}
	at = max(at, w.now)
	x.due = at
	w.at(at, func() {
		if x.due == at { // else it was planned anew
			x.due = 0
			w.step(x)
			w.arm(x)
		}
	})
}

// step brings a replica up to the present.
func (w *world) step(x *replica) {
	for _, ev := range x.core.Step(w.now) {
		if ev.Tokens != 1 && !ev.Finished {
			continue
		}
		f := ev.Seq.Owner.(*flight)
		if f.first == 0 {
			f.first, f.cached = ev.At, ev.Seq.CachedTokens()
			f.job.First()
			f.sink = f.job.Answer()
			w.changed(f.from)
		}
		if ev.Finished {
			f.done = ev.At
			w.answered(f)
		}
	}
}

// answered accounts for a request that has been served.
func (w *world) answered(f *flight) {
	if f.sink != nil {
		f.sink.AnswerText(f.item.Text)
	}
	f.job.End(&proxy.Result{
		Outcome: proxy.OutcomeServed, HasUsage: true, Streamed: true, Whole: f.sink != nil, Last: w.epoch.Add(f.done),
		Usage: api.Usage{
			InputTotal: len(f.item.Prompt.Tokens), InputCached: f.cached, CachedKnown: true,
			Output: f.item.Answer.Tokens(), Source: api.Reported,
		},
	})
	w.changed(f.from)
	w.end(f, false)
}

// end closes a request and sends the turns that waited for it.
func (w *world) end(f *flight, failed bool) {
	if f.job != nil {
		f.job.Release()
		f.job = nil
	}
	f.failed, f.ended = failed, true
	w.left--
	w.flying--
	w.quiet = w.now
	for _, next := range w.waiting[f.i] {
		w.at(w.now, next)
	}
	delete(w.waiting, f.i)
}

// changed plans that the others hear of what a router did. What happens meanwhile goes
// with it.
func (w *world) changed(r *router) {
	if r.due || len(w.routers) == 1 {
		return
	}
	r.due = true
	w.at(w.now+w.cfg.Delay/2, func() {
		r.due = false
		w.tell(r)
	})
}

// tell sends what changed at a router to all others.
func (w *world) tell(r *router) {
	n := r.tell(w.time())
	w.at(w.now+w.cfg.Delay/2, func() {
		for _, other := range w.routers {
			if other != r {
				other.hear(n, w.time())
			}
		}
	})
}

// read reads every replica for all routers.
func (w *world) read() {
	for _, x := range w.replicas {
		w.step(x)
		w.arm(x)
	}
	for _, r := range w.routers {
		r.store.Batch(func() {
			for _, x := range w.replicas {
				r.store.ApplyReading(x.reading(r.clock.Stamp(w.time()), w.epoch, w.cfg.KVTokens))
			}
		})
	}
}
