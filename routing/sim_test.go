package routing_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// sim is a small cluster in simulated time: one router, replicas that prefill one
// prompt after the other and decode beside it, caches that evict what was used
// longest ago. The sketch is true; what is tested is the choice.
type sim struct {
	*world
	capacity int // of a replica's cache, tokens
	rnd      *rand.Rand
	replicas []*simReplica
	events   simEvents
	seq      int
	current  *simRequest

	ttft         []float64 // ms, in order of dispatch
	hits, tokens float64
	sent         []int // replica of each request
}

type simReplica struct {
	id       state.ReplicaID
	queue    []*simRequest
	busy     bool
	decoding int
	truth    routing.Params
	cache    map[int]cached // prefix name -> what it holds
	pending  map[int]pendingPrefix
}

type cached struct {
	tokens int
	used   time.Time
}

type pendingPrefix struct {
	tokens int
	at     time.Time
}

// simRequest has a prompt of tokens in all, of which the first shared belong to a
// prefix named by shareName and all belong to its own chat.
type simRequest struct {
	chat, tokens, output int
	shareName, shared    int
	at                   time.Time
	replica              int
	ticket               *state.Ticket
	sample               routing.Sample
	index                int
}

type simEvent struct {
	at  time.Time
	seq int
	do  func()
}

type simEvents []simEvent

func (e simEvents) Len() int { return len(e) }
func (e simEvents) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e simEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

func newSim(t testing.TB, n int, policy string, seed uint64) *sim {
	s := &sim{world: newWorld(t, n, policy), capacity: 60_000, rnd: rand.New(rand.NewPCG(seed, 1))}
	truth := routing.Params{Rate: 5000, Fixed: 30, Slowdown: 0.002, Quadratic: 1e-6, ITL: 25, ITLPerStream: 0.4}
	for i := range n {
		s.replicas = append(s.replicas, &simReplica{id: id(i), truth: truth, cache: map[int]cached{}, pending: map[int]pendingPrefix{}})
	}
	s.pick = routing.NewPicker(routing.Config{Rand: rand.New(rand.NewPCG(seed, 2)).Uint64}, s, s.cal)
	return s
}

// Lookup implements routing.Sketch: the truth about the request being picked.
func (s *sim) Lookup(dst []sketch.Match, _ []prefix.Mark, slots []state.Slot, now time.Time) {
	for i := range slots {
		r := s.replicas[i]
		dst[i] = sketch.Match{Live: s.held(r, s.current) / 256}
		for _, name := range []int{s.current.chat, s.current.shareName} {
			if p, ok := r.pending[name]; ok {
				depth := min(p.tokens, s.current.tokens)
				if name == s.current.shareName {
					depth = min(depth, s.current.shared)
				}
				if depth/256 > max(dst[i].Live, dst[i].Pending) {
					dst[i].Pending, dst[i].PendingAge = depth/256, now.Sub(p.at)
				}
			}
		}
	}
}

// held is the tokens of a prompt that a replica has.
func (s *sim) held(r *simReplica, q *simRequest) int {
	h := 0
	if c, ok := r.cache[q.chat]; ok {
		h = min(c.tokens, q.tokens-1)
	}
	if c, ok := r.cache[q.shareName]; ok && q.shared > 0 {
		h = max(h, min(c.tokens, q.shared))
	}
	return h / 16 * 16
}

func (s *sim) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.events, simEvent{s.now.Add(d), s.seq, do})
}

func (s *sim) run() {
	for len(s.events) > 0 {
		e := heap.Pop(&s.events).(simEvent)
		s.now = e.at
		e.do()
	}
}

func (s *sim) send(q *simRequest) {
	q.at, q.index = s.now, len(s.sent)
	s.current = q
	req := s.prompt(q.tokens)
	for i := range req.Marks {
		if int(req.Tokens[i]) > q.shared {
			req.Marks[i].Hash ^= uint64(q.chat+1) * 0xbf58476d1ce4e5b9
		}
	}
	req.Session = fmt.Sprint(q.chat)
	c := s.one(req)
	q.replica, q.sample = c.Chosen, c.Sample()
	q.ticket = s.store.Begin(c.Replica, c.UncachedTokens)
	s.sent = append(s.sent, c.Chosen)
	s.ttft = append(s.ttft, 0)
	r := s.replicas[c.Chosen]
	r.pending[q.chat] = pendingPrefix{q.tokens, s.now}
	if _, ok := r.pending[q.shareName]; !ok && q.shared > 0 {
		r.pending[q.shareName] = pendingPrefix{q.shared, s.now}
	}
	r.queue = append(r.queue, q)
	s.serve(r)
}

// serve starts the next prefill.
func (s *sim) serve(r *simReplica) {
	if r.busy || len(r.queue) == 0 {
		return
	}
	q := r.queue[0]
	r.queue, r.busy = r.queue[1:], true
	held := s.held(r, q)
	u := float64(q.tokens - held)
	s.hits += float64(held)
	s.tokens += float64(q.tokens)
	ms := r.truth.Fixed + u/r.truth.RateAt(float64(r.decoding))*1000 + r.truth.Quadratic*u*float64(q.tokens)
	s.after(time.Duration(ms*1e6), func() {
		r.busy = false
		r.decoding++
		q.ticket.FirstToken()
		s.keep(r, q, q.tokens)
		delete(r.pending, q.chat)
		delete(r.pending, q.shareName)
		s.ttft[q.index] = float64(s.now.Sub(q.at)) / 1e6
		q.sample.TTFT, q.sample.UncachedTokens = s.now.Sub(q.at), int(u)
		q.sample.ITL, q.sample.ITLBatch = time.Duration(r.truth.ITLAt(float64(r.decoding))*1e6), float64(r.decoding)
		s.cal.Observe(q.sample)
		s.after(time.Duration(q.output)*q.sample.ITL, func() {
			r.decoding--
			q.ticket.End()
			s.keep(r, q, q.tokens+q.output)
			s.cal.ObserveOutput("chat", 0, q.output)
		})
		s.serve(r)
	})
}

// keep puts a prompt into a replica's cache and evicts what was used longest ago.
func (s *sim) keep(r *simReplica, q *simRequest, tokens int) {
	r.cache[q.chat] = cached{tokens, s.now}
	if q.shared > 0 {
		r.cache[q.shareName] = cached{q.shared, s.now}
	}
	for {
		sum, oldest := 0, q.chat
		for name, c := range r.cache {
			sum += c.tokens
			if o := r.cache[oldest]; c.used.Before(o.used) || c.used.Equal(o.used) && name < oldest {
				oldest = name
			}
		}
		if sum <= s.capacity || oldest == q.chat {
			return
		}
		delete(r.cache, oldest)
	}
}

func (s *sim) meanTTFT() float64 {
	sum := 0.0
	for _, x := range s.ttft {
		sum += x
	}
	return sum / float64(len(s.ttft))
}

// chats is traffic of conversations in groups that share a system prompt: each
// request is the next turn of a chat at random.
func (s *sim) chats(n int, rate float64) {
	const groups, system = 6, 1200
	type talk struct{ name, group, tokens int }
	name := 1000
	talks := make([]talk, 48)
	fresh := func(i int) talk {
		name++
		return talk{name, i % groups, system}
	}
	for i := range talks {
		talks[i] = fresh(i)
	}
	at := 0.0
	for range n {
		at += s.rnd.ExpFloat64() / rate
		i := s.rnd.IntN(len(talks))
		if talks[i].tokens > 9000 {
			talks[i] = fresh(i)
		}
		k := &talks[i]
		k.tokens += 200 + s.rnd.IntN(1200)
		q := &simRequest{chat: k.name, tokens: k.tokens, output: 50 + s.rnd.IntN(300), shareName: 1 + k.group, shared: system}
		k.tokens += q.output
		s.after(time.Duration(at*1e9), func() { s.send(q) })
	}
	s.run()
}

func TestTTFTBeatsLoadOnlyPoliciesOnSharedPrefixes(t *testing.T) {
	for seed := range uint64(3) {
		mean, hit := map[string]float64{}, map[string]float64{}
		for _, name := range routing.Policies() {
			s := newSim(t, 8, name, seed)
			s.chats(600, 10)
			mean[name], hit[name] = s.meanTTFT(), s.hits/s.tokens
		}
		t.Logf("seed %d: mean TTFT ms %v, hit rate %v", seed, mean, hit)
		for _, other := range []string{routing.RoundRobin, routing.LeastOutstanding, routing.Random, routing.PowerOfTwo} {
			if mean[routing.TTFT] > 0.6*mean[other] {
				t.Errorf("seed %d: ttft %.0f ms, %s %.0f ms; want it far below", seed, mean[routing.TTFT], other, mean[other])
			}
		}
		for name, m := range mean {
			if mean[routing.TTFT] > 1.05*m {
				t.Errorf("seed %d: ttft %.0f ms, %s %.0f ms; want it the best or within 5 %% of that", seed, mean[routing.TTFT], name, m)
			}
		}
	}
}

// K07: one universal prefix in every request, rising rate.
func TestAHotPrefixSpreadsWithItsLoad(t *testing.T) {
	for seed := range uint64(3) {
		s := newSim(t, 16, routing.TTFT, seed)
		for _, r := range s.replicas {
			r.truth = routing.DefaultParams()
		}
		at, n := 0.0, 0
		send := func(count int, rate float64) {
			for range count {
				at += s.rnd.ExpFloat64() / rate
				n++
				q := &simRequest{chat: 1000 + n, tokens: 6000 + 100 + s.rnd.IntN(400), output: 100 + s.rnd.IntN(200), shareName: 1, shared: 6000}
				s.after(time.Duration(at*1e9), func() { s.send(q) })
			}
		}
		for rate := 2.0; rate < 80; rate *= 1.6 {
			send(int(6*rate), rate)
		}
		send(1400, 80)
		s.run()
		holders := 0
		for _, r := range s.replicas {
			if _, ok := r.cache[1]; ok {
				holders++
			}
		}
		counts := make([]int, 16)
		last := s.sent[len(s.sent)-1000:]
		for _, r := range last {
			counts[r]++
		}
		hit := s.hits / s.tokens
		spread := float64(slices.Max(counts)) / (float64(len(last)) / 16)
		first := map[int]bool{}
		for _, r := range s.sent[:100] {
			first[r] = true
		}
		t.Logf("seed %d: %d holders (%d while idle), spread %.2f, hit rate %.3f, mean TTFT %.0f ms", seed, holders, len(first), spread, hit, s.meanTTFT())
		if holders < 16 || spread > 1.3 || hit < 0.9 {
			t.Errorf("seed %d: %d of 16 hold it, spread %.2f, hit rate %.3f: %v", seed, holders, spread, hit, counts)
		}
	}
}

// K06: a burst of one cold prefix is no slower than all on one.
func TestABurstIsNoSlowerThanAllOnOne(t *testing.T) {
	burst := func(n int) (mean, worst float64, used int) {
		s := newSim(t, n, routing.TTFT, 1)
		for i := range 32 {
			q := &simRequest{chat: 1000 + i, tokens: 8192 + 300, output: 50, shareName: 1, shared: 8192}
			s.after(time.Duration(i)*150*time.Microsecond, func() { s.send(q) })
		}
		s.run()
		seen := map[int]bool{}
		for _, r := range s.sent {
			seen[r] = true
		}
		return s.meanTTFT(), slices.Max(s.ttft), len(seen)
	}
	oneMean, oneWorst, _ := burst(1)
	mean, worst, used := burst(16)
	t.Logf("on one: mean %.0f, worst %.0f ms; free choice: mean %.0f, worst %.0f ms on %d", oneMean, oneWorst, mean, worst, used)
	if mean > oneMean || worst > oneWorst || used < 2 || used > 6 {
		t.Errorf("mean %.0f (one: %.0f), worst %.0f (one: %.0f), %d replicas", mean, oneMean, worst, oneWorst, used)
	}
}

// K12, C25: one replica four times slower, cold prompts, nothing known of speeds at
// first, and enough of them to need it.
func TestASlowReplicaIsFoundOut(t *testing.T) {
	for seed := range uint64(3) {
		s := newSim(t, 4, routing.TTFT, seed)
		slow := &s.replicas[0].truth
		slow.Rate, slow.Fixed, slow.ITL, slow.ITLPerStream = slow.Rate/4, slow.Fixed*4, slow.ITL*4, slow.ITLPerStream*4
		at := 0.0
		for i := range 1500 {
			at += s.rnd.ExpFloat64() / 8.2
			q := &simRequest{chat: 1000 + i, tokens: 1000 + s.rnd.IntN(1500), output: 50 + s.rnd.IntN(100)}
			s.after(time.Duration(at*1e9), func() { s.send(q) })
		}
		s.run()
		counts := make([]int, 4)
		for _, r := range s.sent[500:] {
			counts[r]++
		}
		fast := float64(counts[1]+counts[2]+counts[3]) / 3
		share := float64(counts[0]) / fast
		late := slices.Sorted(slices.Values(s.ttft[500:]))
		t.Logf("seed %d: %v, slow one's share %.2f, TTFT p99 %.0f ms", seed, counts, share, late[len(late)*99/100])
		if share < 0.15 || share > 0.4 {
			t.Errorf("seed %d: the slow one gets %.2f of a fast one's requests: %v", seed, share, counts)
		}
	}
}
