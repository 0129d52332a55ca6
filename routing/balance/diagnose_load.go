package balance

import (
	"fmt"
	"slices"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// queues tells apart one queue that is long, and all.
func (d *diagnosis) queues() {
	longs := pick(d.prefill, func(x *look) bool { return x.w.Queue >= d.long })
	if len(longs) == 0 {
		return
	}
	if len(d.prefill) > 1 && d.skewed() {
		return
	}
	if float64(len(longs)) < mostOf*float64(len(d.prefill)) {
		return
	}
	b := &d.b
	lasts := b.Queue // if nothing came any more
	if b.TrendShort < -rising {
		lasts = b.Queue / -b.TrendShort
	}
	figures := []Figure{
		{"mean queue", b.Queue, "s"},
		{"trend of the last half minute", b.TrendShort, "s per s"},
		{"trend of three minutes", b.TrendLong, "s per s"},
		{"long for", b.LongFor.Seconds(), "s"},
		{"start of a replica", d.StartUp.Seconds(), "s"},
	}
	if b.TrendShort > rising && b.LongFor >= risingFor || b.LongFor.Seconds()+lasts >= d.StartUp.Seconds() {
		next := fmt.Sprintf("the autoscaler adds replicas within scale.max (%d); hearsay scale log says what it does", d.Pool.Spec.ScaleMax)
		if d.Pool.Spec.ScaleActuator == "" || d.Pool.Spec.ScaleActuator == state.DryRun {
			next = fmt.Sprintf("add replicas (hearsay replica add): the actuator is %s, which starts none", d.Pool.Spec.ScaleActuator)
		}
		d.add(Short, OwnerScale, nil, "All queues are long, and more replicas would be up before that is over.", next, figures...)
		return
	}
	d.add(Spike, OwnerQueue, nil, "All queues are long, and a new replica would come too late to help.",
		"wait; if it comes back often raise scale.min, or have clients spread their bursts", figures...)
}

// skewed notes that one queue is long and the others are not, unless it is known why.
// It reports whether that is so.
func (d *diagnosis) skewed() bool {
	worst := 0
	sum := 0.0
	for i := range d.prefill {
		sum += d.prefill[i].w.Queue
		if d.prefill[i].w.Queue > d.prefill[worst].w.Queue {
			worst = i
		}
	}
	longest := d.prefill[worst].w.Queue
	others := (sum - longest) / float64(len(d.prefill)-1)
	if others > othersQueue*longest || others >= d.long/2 {
		return false
	}
	id := string(d.prefill[worst].r.ID)
	for _, f := range d.found {
		if f.Class != ColdAdapter && slices.Contains(f.Replicas, id) {
			return true // that is why
		}
	}
	figures := []Figure{{"longest queue", longest, "s"}, {"mean of the others", others, "s"}, {"skew", d.b.Skew, ""}}
	next := "it is evened out by the next picks; if it lasts see hearsay explain for a request that went there, and whether a policy of sessions or hashes binds requests to it"
	if s := d.b.HotShare(); s > 0 {
		figures = append(figures, Figure{"share of the hottest prefix", 100 * s, "%"})
	}
	if n, ok := d.prefill[worst].r.Foreign(d.Now); ok && n > 0 {
		figures = append(figures, Figure{"requests there past all routers", float64(n), ""})
		next = "find out who sends requests there past the routers"
	}
	d.add(Skewed, OwnerBalance, d.prefill[worst:worst+1], "One queue is long and the others are not: the pool as a whole has room.", next, figures...)
	return true
}

// bound says which resource is short.
func (d *diagnosis) bound() {
	slo := d.Pool.Spec.SLOITL
	if slo <= 0 {
		slo = defaultITL
	}
	limit := float64(slo.Microseconds()) / 1e3
	queue, itl := middle(d.prefill, queueOf), middle(d.decode, itlOf)
	kv := middle(d.decode, func(x *look) float64 { return x.r.Reading.KVUsage })
	streams := middle(d.decode, func(x *look) float64 { return x.streams })
	full := pick(d.decode, func(x *look) bool {
		rd := &x.r.Reading
		return x.fresh && rd.Waiting >= 1 && rd.KVUsage < kvFullForPicks && x.w.Concurrency > 0 && rd.Running >= nearLimit*x.w.Concurrency
	})
	running, places := d.places()
	switch {
	case itl >= nearITL*limit:
		d.add(DecodeBound, OwnerScale, nil, "So many streams run that the time between tokens is at the pool's objective.",
			"add replicas that decode; bound max_tokens; or, if slower streams will do, raise slo.itl",
			Figure{"time between tokens", itl, "ms"}, Figure{"objective (slo.itl)", limit, "ms"}, Figure{"streams of a replica", streams, ""})
	case queue < d.long/2 && len(full) > 0 && float64(len(full)) >= mostOf*float64(len(d.decode)):
		d.add(DecodeBound, OwnerScale, nil, "The engines run as many requests as they can, and others wait for one to end.",
			"raise the engines' limit of running requests (--max-num-seqs) while the time between tokens allows it; else add replicas",
			Figure{"running at a replica", middle(full, func(x *look) float64 { return x.r.Reading.Running }), "requests"},
			Figure{"waiting at a replica", middle(full, func(x *look) float64 { return x.r.Reading.Waiting }), "requests"},
			Figure{"requests from which others wait", middle(full, func(x *look) float64 { return x.w.Concurrency }), ""},
			Figure{"time between tokens", itl, "ms"})
	case queue < d.long/2 && d.Waiting.Requests > 0 && places > 0 && running >= mostOf*places:
		d.add(DecodeBound, OwnerScale, nil, "The replicas have as many requests as queue.max_inflight allows, and others wait at the routers.",
			"raise queue.max_inflight while the time between tokens allows it; else add replicas",
			Figure{"waiting at the routers", float64(d.Waiting.Requests), "requests"},
			Figure{"in flight", running, "requests"}, Figure{"allowed", places, "requests"},
			Figure{"time between tokens", itl, "ms"})
	case queue >= d.long/2 && itl < limit/2 && kv < kvFullForPicks:
		next := "add replicas; a higher share of prompts found in caches would do as well (hearsay_sharing_ratio)"
		if d.Pool.Split {
			next = "give more of the replicas the role prefill"
		}
		figures := []Figure{
			{"queue of a replica", queue, "s"}, {"time between tokens", itl, "ms"}, {"objective (slo.itl)", limit, "ms"}, {"streams of a replica", streams, ""},
		}
		if d.b.Picks > 0 {
			figures = append(figures, Figure{"prompt tokens held somewhere", 100 * d.b.Sharing, "%"})
		}
		d.add(PrefillBound, OwnerScale, nil, "Requests wait for prefill, while streams have room.", next, figures...)
	}
}

// places is how many requests the replicas in traffic have, and may have; 0, 0 where any
// of them may have any number.
func (d *diagnosis) places() (running, most float64) {
	for _, x := range d.traffic {
		limit := d.Pool.Spec.MaxAt(x.r)
		if limit <= 0 {
			return 0, 0
		}
		running += float64(x.r.Load().InFlight)
		most += float64(limit)
	}
	return running, most
}

const (
	// kvFullForPicks is the KV usage from which picks expect admission to wait.
	kvFullForPicks = 0.9
	// nearLimit is the share of an engine's concurrency that counts as all of it.
	nearLimit = 0.95
)

// Thresholds of a broken prefix.
const (
	partsEarly   = 0.25 // of the prompt
	repeatsLate  = 0.5  // of what is behind
	leastPrompt  = 2048 // bytes
	leastPairs   = 3
	sharesEnough = 0.5 // of prompt tokens: nothing is broken
)

// brokenPrefix looks for prompts that part early and are alike behind that.
func (d *diagnosis) brokenPrefix() {
	if d.b.Picks > 0 && d.b.Sharing >= sharesEnough {
		return
	}
	type place struct{ path, value string }
	groups := map[place][]prefix.Parting{}
	var worst place
	pairs := 0
	for _, p := range d.Partings {
		if p.Prompt < leastPrompt {
			continue
		}
		pairs++
		behind := p.Prompt - p.Shared
		if float64(p.Shared) > partsEarly*float64(p.Prompt) || float64(p.Again) < repeatsLate*float64(behind) {
			continue
		}
		k := place{p.Path, p.Value}
		groups[k] = append(groups[k], p)
		if n, m := len(groups[k]), len(groups[worst]); n > m || n == m && k.path < worst.path {
			worst = k
		}
	}
	list := groups[worst]
	if len(list) < leastPairs || 2*len(list) < pairs {
		return
	}
	at, shared, prompt, again := list[0].Byte, 0, 0, 0
	for _, p := range list {
		at = min(at, p.Byte)
		shared, prompt, again = shared+p.Shared, prompt+p.Prompt, again+p.Again
	}
	n := float64(len(list))
	text := fmt.Sprintf("Prompts that are much alike part at %s, byte %d, where they differ in %s.", worst.path, at, values[worst.value])
	next := "have the clients put what changes behind what stays, at the prompt's end, or leave it out"
	if worst.value == prefix.ValueSalt {
		text = "Prompts that are much alike are kept apart by cache_salt."
		next = "give cache_salt one value for all whose prompts may share a cache"
	}
	figures := []Figure{
		{"pairs of prompts that do", n, fmt.Sprintf("of %d", pairs)},
		{"alike before", float64(shared) / n, "bytes"},
		{"alike behind", float64(again) / n, fmt.Sprintf("of %.0f bytes", float64(prompt-shared)/n)},
	}
	if d.b.Picks > 0 {
		figures = append(figures, Figure{"prompt tokens held somewhere", 100 * d.b.Sharing, "%"})
	}
	d.add(BrokenPrefix, OwnerClients, nil, text, next, figures...)
}

// values are what looks like something, in words.
var values = map[string]string{
	prefix.ValueTimestamp: "what looks like a timestamp",
	prefix.ValueDate:      "what looks like a date",
	prefix.ValueTime:      "what looks like a time",
	prefix.ValueUUID:      "what looks like a UUID",
	prefix.ValueNumber:    "a number, such as a counter",
	prefix.ValueAddress:   "what looks like an address",
	prefix.ValueID:        "what looks like an id",
	prefix.ValueText:      "text",
}
