package balance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Thresholds of Diagnose, beside LongQueue.
const (
	kvIsFull      = 0.95       // share of KV space in use, where requests wait
	slowPace      = 0.6        // of the pool's median rate
	othersQueue   = 0.25       // of the longest queue: what the others have at most where a pool is skewed
	mostOf        = 0.8        // share of the replicas that stands for all
	rising        = 0.01       // seconds of queue per second
	risingFor     = trendShort // a trend that is not that of the burst's own beginning
	servedLately  = 30 * time.Second
	readingMissed = 10 * time.Second // what has no reading by then is not just new
	nearITL       = 0.9              // of the objective
	defaultITL    = 100 * time.Millisecond
)

// look is one replica as Diagnose sees it.
type look struct {
	r       *state.ReplicaView
	w       state.Weight
	is      state.Condition
	streams float64 // past their first token
	itl     float64 // ms, predicted; 0 unknown
	fresh   bool
}

// Diagnose says which problems a pool has at present and which control loop owns
// each, the causes before what follows from them; or that it has none. It is a pure
// function.
func Diagnose(e *Evidence) []Finding {
	d := &diagnosis{Evidence: e, b: e.Weights.Pools[e.Pool.Spec.Name], long: LongQueue(e.Pool.Spec.SLOTTFT)}
	d.survey()
	if len(d.traffic) == 0 {
		return []Finding{d.noReplica()}
	}
	d.deadMetrics()
	d.kvFull()
	d.slow()
	d.coldAdapter()
	d.brokenPrefix()
	d.queues()
	d.bound()
	if len(d.found) == 0 {
		d.found = append(d.found, d.healthy())
	}
	return d.found
}

// diagnosis is one run of Diagnose.
type diagnosis struct {
	*Evidence
	b       state.PoolBalance
	long    float64 // s
	all     []look
	traffic []look // those that take requests
	prefill []look // of these, those that prefill
	decode  []look // and those that decode
	found   []Finding
}

func (d *diagnosis) survey() {
	for _, r := range d.Pool.Replicas {
		w := d.Weights.Of(r.ID)
		x := look{r: r, w: w, is: r.Condition(&d.Pool.Spec, w, d.Now), fresh: r.Fresh(d.Now)}
		x.streams = float64(r.Load().Decode())
		if n, ok := r.Foreign(d.Now); ok {
			x.streams += max(0, float64(n)-max(0, r.Reading.Waiting))
		}
		if d.ITL != nil {
			x.itl = d.ITL(r, x.streams)
		}
		d.all = append(d.all, x)
		switch x.is {
		case state.Draining, state.Ejected, state.HalfOpen, state.Unreachable, state.Loading, state.WrongModel:
			continue
		}
		d.traffic = append(d.traffic, x)
		if r.Role != state.RoleDecode {
			d.prefill = append(d.prefill, x)
		}
		if r.Role != state.RolePrefill {
			d.decode = append(d.decode, x)
		}
	}
}

// add notes a finding about some replicas; of is empty for one of the whole pool.
func (d *diagnosis) add(class, owner string, of []look, text, next string, figures ...Figure) {
	d.found = append(d.found, Finding{Class: class, Owner: owner, Replicas: ids(of), Text: text, Next: next, Evidence: figures})
}

func ids(of []look) (list []string) {
	for _, x := range of {
		list = append(list, string(x.r.ID))
	}
	return list
}

// pick takes those that fit.
func pick(list []look, fits func(*look) bool) (out []look) {
	for i := range list {
		if fits(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

// most is the greatest figure of some replicas.
func most(list []look, of func(*look) float64) (m float64) {
	for i := range list {
		m = max(m, of(&list[i]))
	}
	return m
}

// middle is the median figure of some replicas, 0 of none.
func middle(list []look, of func(*look) float64) float64 {
	all := make([]float64, len(list))
	for i := range list {
		all[i] = of(&list[i])
	}
	return median(all)
}

func queueOf(x *look) float64 { return x.w.Queue }
func itlOf(x *look) float64   { return x.itl }

// subject begins a sentence about replicas.
func subject(of []look, one, many string) string {
	if len(of) == 1 {
		return string(of[0].r.ID) + " " + one
	}
	return fmt.Sprintf("%d replicas %s", len(of), many)
}

func (d *diagnosis) noReplica() Finding {
	count := map[state.Condition]int{}
	for _, x := range d.all {
		count[x.is]++
	}
	f := Finding{
		Class: NoReplica, Owner: OwnerBalance, Text: "No replica of the pool takes requests.",
		Next:     "hearsay replicas says what is wrong with each; start one, or undrain it",
		Evidence: []Figure{{"replicas", float64(len(d.all)), ""}},
	}
	if len(d.all) == 0 {
		f.Owner, f.Next = OwnerScale, "hearsay scale log says what hinders a start; hearsay replica add adds one"
	}
	d.wrongModel(&f)
	for _, c := range state.Conditions() {
		if n := count[c]; n > 0 {
			f.Evidence = append(f.Evidence, Figure{string(c), float64(n), ""})
		}
	}
	return f
}

// wrongModel says, where replicas serve another model than the pool's, which one: they
// run, so that starting them is no help.
func (d *diagnosis) wrongModel(f *Finding) {
	wrong := pick(d.all, func(x *look) bool { return x.is == state.WrongModel })
	if len(wrong) == 0 {
		return
	}
	spec := &d.Pool.Spec
	said := spec.WrongModel(&wrong[0].r.Reading)
	if said == "" {
		said = fmt.Sprintf("does not serve %q", spec.UpstreamName())
	}
	f.Replicas = ids(wrong)
	f.Text = fmt.Sprintf("%s %s. No replica of the pool takes requests.", wrong[0].r.ID, said)
	f.Next = fmt.Sprintf("set the pool's model, or upstream_model, to the name that its engines serve, or start one that serves %q", spec.UpstreamName())
	if len(wrong) < len(d.all) {
		f.Next += "; hearsay replicas says what is wrong with the others"
	}
}

func (d *diagnosis) deadMetrics() {
	since := func(t time.Time) float64 { return d.Now.Sub(t).Seconds() }
	dead := pick(d.traffic, func(x *look) bool {
		read := x.r.ReadingAt
		if read.IsZero() {
			read = x.r.AddedAt
		}
		stale := x.is == state.Unread && d.Now.Sub(read) > readingMissed
		first := x.r.Cell.LastFirstToken()
		return (stale || x.is == state.Unreadable) && d.Now.Sub(first) < servedLately
	})
	if len(dead) == 0 {
		return
	}
	figures := []Figure{{"last first token at most", most(dead, func(x *look) float64 { return since(x.r.Cell.LastFirstToken()) }), "s ago"}}
	if age := most(dead, func(x *look) float64 {
		if x.is != state.Unread || x.r.ReadingAt.IsZero() {
			return 0
		}
		return since(x.r.ReadingAt)
	}); age > 0 {
		figures = append(figures, Figure{"last reading", age, "s ago"})
	}
	d.add(DeadMetrics, OwnerSense, dead, subject(dead, "serves requests, and its load can't be read.", "serve requests, and their load can't be read."),
		"mend the engine's /metrics (hearsay replicas says what was wrong); for a server without any set engine: openai. Until then picks go by what the routers have running there", figures...)
}

func (d *diagnosis) kvFull() {
	full := pick(d.traffic, func(x *look) bool { return x.fresh && x.r.Reading.KVUsage >= kvIsFull && x.r.Reading.Waiting >= 1 })
	if len(full) == 0 {
		return
	}
	owner, next := OwnerBalance, "picks avoid it while it lasts; if it comes back look for long prompts and outputs, which hold KV longest"
	if float64(len(full)) >= mostOf*float64(len(d.traffic)) {
		owner, next = OwnerScale, "add replicas, give the engines more KV memory, or bound max_tokens: long outputs hold it longest"
	}
	d.add(KVFull, owner, full, subject(full, "has no KV space left, and requests wait for it.", "have no KV space left, and requests wait for it."), next,
		Figure{"KV in use", 100 * most(full, func(x *look) float64 { return x.r.Reading.KVUsage }), "%"},
		Figure{"waiting there", most(full, func(x *look) float64 { return x.r.Reading.Waiting }), "requests"},
		Figure{"running there", most(full, func(x *look) float64 { return x.r.Reading.Running }), "requests"})
}

func (d *diagnosis) slow() {
	slow := pick(d.traffic, func(x *look) bool { return x.w.Pace > 0 && x.w.Pace <= slowPace })
	if len(slow) == 0 {
		return
	}
	least := slow[0].w.Pace
	for _, x := range slow {
		least = min(least, x.w.Pace)
	}
	d.add(SlowReplica, OwnerBalance, slow, subject(slow, "is far slower than its pool.", "are far slower than their pool."),
		"picks give it less already; look for other hardware, throttled clocks, or a neighbour on its machine, or drain it",
		Figure{"prefill rate beside the pool's median", 100 * least, "%"},
		Figure{"its queue", most(slow, queueOf), "s"})
}

func (d *diagnosis) coldAdapter() {
	var names []string
	cold := pick(d.traffic, func(x *look) bool {
		rd := &x.r.Reading
		if !x.fresh || rd.AdapterSlots <= 0 || len(rd.AdaptersRunning) < rd.AdapterSlots {
			return false
		}
		waits := false
		for _, a := range rd.AdaptersWaiting {
			if !slices.Contains(rd.AdaptersRunning, a) {
				waits = true
				if !slices.Contains(names, a) {
					names = append(names, a)
				}
			}
		}
		return waits
	})
	if len(cold) == 0 {
		return
	}
	slices.Sort(names)
	shown := strings.Join(names[:min(len(names), 4)], ", ")
	if len(names) > 4 {
		shown += ", ..."
	}
	d.add(ColdAdapter, OwnerRoute, cold, fmt.Sprintf("Requests for %s wait until another adapter's requests end.", shown),
		"give the engines more adapter slots (--max-loras), or add replicas: picks keep an adapter where it is as long as they can",
		Figure{"adapters that wait for a slot", float64(len(names)), ""},
		Figure{"slots of a replica", most(cold, func(x *look) float64 { return float64(x.r.Reading.AdapterSlots) }), ""})
}

func (d *diagnosis) healthy() Finding {
	var running int64
	away := 0
	for _, x := range d.all {
		running += x.r.Load().InFlight
		switch x.is {
		case state.Ejected, state.HalfOpen, state.Unreachable, state.WrongModel:
			away++
		}
	}
	f := Finding{
		Class: Healthy, Owner: OwnerNone, Text: "Nothing is wrong that can be seen here.", Next: "nothing",
		Evidence: []Figure{
			{"replicas in traffic", float64(len(d.traffic)), ""},
			{"in flight", float64(running), "requests"},
			{"mean queue", d.b.Queue, "s"},
			{"longest queue", d.b.QueueMost, "s"},
		},
	}
	if d.b.Picks > 0 {
		f.Evidence = append(f.Evidence, Figure{"prompt tokens held somewhere", 100 * d.b.Sharing, "%"})
	}
	if away > 0 {
		f.Text, f.Next = "Nothing is wrong with the replicas that take requests; others take none.", "hearsay replicas says what is wrong with those"
		f.Evidence = append(f.Evidence, Figure{"ejected, unreachable or of another model", float64(away), ""})
	}
	return f
}
