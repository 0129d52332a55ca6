package main

// rule says how many replicas there should be.
type rule interface {
	name() string
	setting() string
	// act is called once a second, before it passes: the rule may look at the pool as it
	// is, unless it sees nothing (pool.w.sees), and resize it.
	act(p *pool)
}

// play runs a workload under a rule.
func play(p *pool, r rule) outcome {
	for p.now < p.w.length {
		if p.now >= settle || p.manual {
			r.act(p) // the loop is told from the beginning: what it sees is the routers' too
		}
		p.sweep()
		p.tick()
	}
	return p.outcome(r)
}

// trail keeps the last values of something, to ask what they were over a while.
type trail struct {
	values []float64
	next   int
	count  int
}

func newTrail(n int) *trail { return &trail{values: make([]float64, max(1, n))} }

func (t *trail) add(x float64) {
	t.values[t.next] = x
	t.next = (t.next + 1) % len(t.values)
	t.count = min(t.count+1, len(t.values))
}

// last calls f with the newest n values, as far as they were kept.
func (t *trail) last(n int, f func(float64)) {
	for i := 1; i <= min(n, t.count); i++ {
		f(t.values[(t.next+len(t.values)-i)%len(t.values)])
	}
}

func (t *trail) mean(n int) float64 {
	sum := 0.0
	t.last(n, func(x float64) { sum += x })
	return sum / float64(max(1, min(n, t.count)))
}

func (t *trail) most(n int) (m float64) {
	t.last(n, func(x float64) { m = max(m, x) })
	return m
}
