package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
)

// cell is one size of cluster under one load.
type cell struct {
	Routers, Replicas int
	Rate              float64 // requests a second and router
	Links             int     // new marks of a request
	AllPairs          int     // 0: the default
	Set               string  // what it is for

	span  time.Duration // measured; 0: by the number of routers
	real  bool
	plain bool          // without measuring delays
	told  chan struct{} // gets something for each reading and op that was news; nil: nobody waits
}

// parseCell reads routers:replicas:rate[:links[:all pairs up to]].
func parseCell(s string) (cell, error) {
	c := cell{Links: 10}
	parts := strings.Split(s, ":")
	if len(parts) < 3 || len(parts) > 5 {
		return c, fmt.Errorf("cell %q: want routers:replicas:rate[:links[:all pairs up to]]", s)
	}
	for i, p := range parts {
		v, err := strconv.ParseFloat(p, 64)
		if err != nil {
			return c, fmt.Errorf("cell %q: %w", s, err)
		}
		switch i {
		case 0:
			c.Routers = int(v)
		case 1:
			c.Replicas = int(v)
		case 2:
			c.Rate = v
		case 3:
			c.Links = int(v)
		case 4:
			c.AllPairs = int(v)
		}
	}
	if c.Routers < 2 || c.Replicas < 1 || c.Links < 2 {
		return c, fmt.Errorf("cell %q: at least two routers, one replica and two marks", s)
	}
	return c, nil
}

func (c *cell) String() string {
	s := fmt.Sprintf("%d:%d:%g:%d", c.Routers, c.Replicas, c.Rate, c.Links)
	if c.AllPairs > 0 {
		s += fmt.Sprintf(":%d", c.AllPairs)
	}
	return s
}

// size is the cell as the published formula takes it, at a rate.
func (c *cell) size(rate float64) gossip.Size {
	return gossip.Size{
		Routers: c.Routers, Replicas: c.Replicas, AllPairs: c.AllPairs, Rate: rate, Links: float64(c.Links), Lasting: holdTime,
	}
}

// measure runs one cell, in a bubble unless it is for real.
func (c *cell) measure(t *testing.T) (f figures, err error) {
	if c.span == 0 {
		c.span = c.enough()
		if c.real {
			c.span = min(c.span, 10*time.Second)
		}
	}
	began := time.Now()
	if c.real {
		f, err = c.run(loopback())
	} else {
		t.Run(c.String(), func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				f, err = c.run(simulated())
				time.Sleep(10 * time.Second) // membership's probes end by their time-outs
			})
		})
	}
	f.Took, f.Starts = time.Since(began).Seconds(), 1
	return f, err
}

// add makes f the mean of its starts and one more: rates, and the worst of the
// quantiles. Whether clocks of routers that share processors go off together, and so
// share a wake-up, is settled for long when they start: the same cell's CPU differs
// by a tenth from start to start.
func (f *figures) add(one *figures) {
	n := float64(f.Starts)
	had := *f
	f.Sent = sent{}
	f.Sent.add(had.Sent, n/(n+1))
	f.Sent.add(one.Sent, 1/(n+1))
	for _, x := range []struct {
		to   *float64
		more float64
	}{
		{&f.CPU, one.CPU},
		{&f.Requests, one.Requests},
		{&f.ReadingsTaken, one.ReadingsTaken},
		{&f.Streams, one.Streams},
		{&f.Heap, one.Heap},
		{&f.Stack, one.Stack},
	} {
		*x.to = (n*(*x.to) + x.more) / (n + 1)
	}
	f.RowsP50, f.RowsP99 = max(had.RowsP50, one.RowsP50), max(had.RowsP99, one.RowsP99)
	f.OpsP50, f.OpsP99 = max(had.OpsP50, one.OpsP50), max(had.OpsP99, one.OpsP99)
	f.MostOut = max(had.MostOut, one.MostOut)
	f.Dropped += one.Dropped
	f.Took += one.Took
	f.Starts++
}

// enough is a span in which so much is sent that chance matters little, and not
// much more.
func (c *cell) enough() time.Duration {
	const records = 30_000
	b := gossip.Traffic(c.size(c.Rate))
	seconds := records / float64(c.Routers) / max(1, b.Seals/seal)
	return time.Duration(min(max(seconds, 2), 60) * float64(time.Second))
}

// observe measures over the span.
func (c *cell) observe(cl *cluster) figures {
	n := float64(len(cl.routers))
	before, requests := make([]sent, len(cl.routers)), make([]int64, len(cl.routers))
	for i, r := range cl.routers {
		before[i], requests[i] = r.sent(), r.requests.Load()
		r.delays.start()
	}
	dropped, taken, cpu, began := drops(cl), cl.engines.taken.Load(), processTime(), time.Now()
	time.Sleep(c.span)
	cpu = processTime() - cpu
	seconds := time.Since(began).Seconds()
	f := figures{
		cell: *c, Real: c.real, Seconds: seconds, Dropped: drops(cl) - dropped, CPU: cpu.Seconds() / seconds / n,
		ReadingsTaken: float64(cl.engines.taken.Load()-taken) / seconds / n,
	}
	var rows, ops []time.Duration
	for i, r := range cl.routers {
		s := r.sent()
		s.add(before[i], -1)
		f.Sent.add(s, 1/seconds/n)
		f.MostOut = max(f.MostOut, s.total()/seconds)
		f.Requests += float64(r.requests.Load()-requests[i]) / seconds / n
		r.delays.mu.Lock()
		rows, ops = append(rows, r.delays.rows...), append(ops, r.delays.ops...)
		r.delays.mu.Unlock()
		for _, m := range r.gossip.Members() {
			if m.Stream {
				f.Streams += 1 / n
			}
		}
	}
	f.RowsP50, f.RowsP99 = quantiles(rows)
	f.OpsP50, f.OpsP99 = quantiles(ops)
	f.Heap, f.Stack = memory()
	f.Heap, f.Stack = f.Heap/n, f.Stack/n
	return f
}

// memory is what lives in this process, bytes: objects after a collection, and stacks.
func memory() (heap, stack float64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc), float64(m.StackInuse)
}

// drops sums what was given up.
func drops(cl *cluster) (sum float64) {
	for _, r := range cl.routers {
		families, err := r.reg.Gather()
		if err != nil {
			continue
		}
		for _, f := range families {
			if n := f.GetName(); n != "hearsay_gossip_dropped_total" && n != "hearsay_mesh_dropped_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// processTime is what this process has used of processors.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// figures of one cell; those of rates are per router and second.
type figures struct {
	cell             `json:"cell"`
	Seconds          float64 // measured
	Real             bool
	Starts           int     // clusters started
	Took             float64 // wall-clock seconds of all starts
	Requests         float64
	ReadingsTaken    float64
	Streams          float64 // per router
	Sent             sent
	MostOut          float64 // of the router that sent most
	RowsP50, RowsP99 float64 // ms
	OpsP50, OpsP99   float64 // ms
	Dropped          float64
	CPU              float64 // seconds; with a simulated network its own, too
	Heap, Stack      float64 // bytes
}

// predicted is what the formula says of as many requests as there were.
func (f *figures) predicted() gossip.Bytes { return gossip.Traffic(f.size(f.Requests)) }
