package main

// measure counts what became of a run.
type measure struct {
	come, refused, lost, done float64 // requests
	late                      float64 // that missed the TTFT objective, those above included
	replicaSeconds            float64
	resizes, flips, last      int // last: direction of the last resize

	minute struct{ come, late, decoded, slow float64 }
	bad    []bool  // minutes that were violated
	series []point // of minutes
}

// point is a minute in the plots.
type point struct{ Replicas, Serving, Rate float64 }

// begin is called as a second begins with so many requests.
func (m *measure) begin(p *pool, n float64) {
	m.come += n
	m.minute.come += n
	m.replicaSeconds += float64(len(p.list))
}

// end is called when the second is over.
func (m *measure) end(p *pool) {
	if p.now%minute != 0 {
		return
	}
	x := &m.minute
	m.bad = append(m.bad, x.late > sloMissed*x.come || x.slow > sloMissed*x.decoded)
	serving := 0
	for _, r := range p.list {
		if p.serving(r) {
			serving++
		}
	}
	m.series = append(m.series, point{float64(len(p.list)), float64(serving), x.come / minute})
	m.late += x.late
	x.come, x.late, x.decoded, x.slow = 0, 0, 0, 0
}

func (m *measure) missed(n float64)     { m.minute.late += n }
func (m *measure) turnedAway(n float64) { m.refused += n }
func (m *measure) finished(n float64)   { m.done += n }

// cut is for requests that a stopped replica still had.
func (m *measure) cut(n float64) {
	m.lost += n
	m.minute.late += n
}

// decoded is for a second of so many streams.
func (m *measure) decoded(streams float64, slow bool) {
	m.minute.decoded += streams
	if slow {
		m.minute.slow += streams
	}
}

func (m *measure) resized(from, to int) {
	m.resizes++
	direction := 1
	if to < from {
		direction = -1
	}
	if m.last == -direction {
		m.flips++
	}
	m.last = direction
}

// outcome is what is told of a run.
type outcome struct {
	Workload  string
	Rule      string
	Setting   string
	Seed      uint64
	Violated  float64 // minutes
	Hours     float64 // replica-hours
	Resizes   float64
	Longest   float64 // minutes of the longest episode
	FlipsHour float64 // changes of direction an hour
	Late      float64 // share of requests
	Refused   float64 // share of requests, those cut off included
	Series    []point `json:"-"`
}

func (p *pool) outcome(r rule) outcome {
	m := &p.measure
	o := outcome{
		Workload: p.w.name, Rule: r.name(), Setting: r.setting(), Seed: p.seed,
		Hours: m.replicaSeconds / hour, Resizes: float64(m.resizes),
		FlipsHour: float64(m.flips) / (float64(p.now) / hour),
		Late:      m.late / max(1, m.come), Refused: (m.refused + m.lost) / max(1, m.come), Series: m.series,
	}
	since, good := 0, 2
	for i, bad := range m.bad {
		if !bad {
			good++ // a single good minute does not end an episode
			continue
		}
		o.Violated++
		if good > 1 {
			since = i
		}
		good = 0
		o.Longest = max(o.Longest, float64(i+1-since))
	}
	return o
}
