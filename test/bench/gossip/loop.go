package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// loop is what single events cost the processors: seconds of them, in all routers
// together, of routers over loopback sockets in one process. One event is waited
// for everywhere before the next, so that none shares its records; what the routers
// use meanwhile anyway is taken off. So it does not depend on how busy the machine
// is otherwise, but for what that costs its caches.
type loop struct {
	Routers, Replicas int
	Idle              float64 // a second
	Reading           float64 // taken by one router, applied by all; without asking the engine
	Few, Many         float64 // a request of few and of many new marks
}

const (
	loopFew, loopMany = 2, 50
	loopEvents        = 300
)

// measureLoop measures one size of cluster.
func measureLoop(routers, replicas int) (l loop, err error) {
	c := cell{Routers: routers, Replicas: replicas, Links: loopFew, real: true, plain: true, told: make(chan struct{}, 1<<16)}
	l = loop{Routers: routers, Replicas: replicas}
	err = c.with(loopback(), func(_ context.Context, cl *cluster) error {
		time.Sleep(heard)
		cpu, at := processTime(), time.Now()
		time.Sleep(3 * time.Second)
		l.Idle = (processTime() - cpu).Seconds() / time.Since(at).Seconds()
		r, peers := cl.routers[0], routers-1
		run := func(event func(i int) error) (float64, error) {
			runtime.GC()
			cpu, at := processTime(), time.Now()
			for i := range loopEvents {
				if err := event(i); err != nil {
					return 0, err
				}
			}
			used := (processTime() - cpu).Seconds() - l.Idle*time.Since(at).Seconds()
			return max(0, used) / loopEvents, nil
		}
		var err error
		if l.Reading, err = run(func(i int) error {
			x := cl.engines.Read(context.Background(), []state.Replica{{ID: replica(i % replicas)}})[0]
			x.Reader, x.At = r.id, r.clock.Stamp(time.Now())
			r.shared.ApplyReading(x)
			r.gossip.PublishReading(x)
			return c.await(peers)
		}); err != nil {
			return fmt.Errorf("readings: %w", err)
		}
		hash := uint64(1)
		request := func(links int) func(int) error {
			return func(i int) error { return r.turns(&c, replica(i%replicas), links, &hash, peers) }
		}
		if l.Few, err = run(request(loopFew)); err != nil {
			return fmt.Errorf("requests: %w", err)
		}
		if l.Many, err = run(request(loopMany)); err != nil {
			return fmt.Errorf("requests: %w", err)
		}
		return nil
	})
	return l, err
}

// turns is a request's course, of which all is known everywhere before it goes on.
func (r *router) turns(c *cell, id state.ReplicaID, links int, hash *uint64, peers int) error {
	marks, tokens := make([]prefix.Mark, links), make([]int32, links)
	for k := range marks {
		*hash++
		marks[k], tokens[k] = prefix.Mark{Hash: *hash * 0x9e3779b97f4a7c15}, int32(k+1)*markTokens
	}
	ticket := r.store.Begin(r.store.View().Replica(id), 1000)
	place := r.index.Place(id, marks, tokens, time.Now())
	if err := c.await(peers); err != nil {
		return err
	}
	ticket.FirstToken()
	place.First(time.Now())
	if err := c.await(peers); err != nil {
		return err
	}
	ticket.End()
	place.Evidence(0, links*markTokens, 0)
	place.End(time.Now())
	return c.await(peers)
}

// await waits until news was applied so often at other routers.
func (c *cell) await(n int) error {
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	for range n {
		select {
		case <-c.told:
		case <-t.C:
			return errors.New("not known everywhere after 10 s")
		}
	}
	return nil
}

// costs are what a router's parts cost, in seconds of processors.
type costs struct {
	Idle, IdlePeer       float64 // a second
	Reading, ReadingPeer float64 // taken, and told to and heard from one peer
	Request, Mark        float64 // a router's own
	Record, MarkPeer     float64 // sent and received, and a mark in it
}

// costsOf takes apart what two sizes of cluster cost.
func costsOf(small, large loop) (c costs) {
	peers := func(get func(loop) float64) (own, peer float64) {
		a, b := float64(small.Routers-1), float64(large.Routers-1)
		peer = (get(large) - get(small)) / (b - a)
		return get(small) - a*peer, peer
	}
	c.Idle, c.IdlePeer = peers(func(l loop) float64 { return l.Idle / float64(l.Routers) })
	c.Reading, c.ReadingPeer = peers(func(l loop) float64 { return l.Reading })
	c.Mark, c.MarkPeer = peers(func(l loop) float64 { return (l.Many - l.Few) / (loopMany - loopFew) })
	own, peer := peers(func(l loop) float64 { return l.Few })
	c.Request = own - loopFew*c.Mark
	c.Record = (peer - loopFew*c.MarkPeer) / 3
	return c
}

// showLoops tells what single events cost.
func showLoops(w io.Writer, list []loop) {
	var rows [][]string
	us := func(v float64) string { return table.Num(1e6 * v) }
	for _, l := range list {
		rows = append(rows, []string{fmt.Sprint(l.Routers), fmt.Sprint(l.Replicas), us(l.Idle), us(l.Reading), us(l.Few), us(l.Many)})
	}
	table.Print(w, "CPU of single events, in all routers together, us: routers over loopback sockets in one process, one event at a time", 0, []string{
		"routers", "replicas", "idle, a second", "a reading", fmt.Sprintf("a request of %d marks", loopFew), fmt.Sprintf("of %d marks", loopMany),
	}, rows)
	c := costsOf(list[0], list[len(list)-1])
	fmt.Fprintf(w, "\nOne router, us of a processor: %s + %s a peer, a second; a reading %s + %s a peer; a request %s + %s a mark, and on each peer %s a record of rows and ops + %s a mark.\n",
		us(c.Idle), us(c.IdlePeer), us(c.Reading), us(c.ReadingPeer), us(c.Request), us(c.Mark), us(c.Record), us(c.MarkPeer))
}
