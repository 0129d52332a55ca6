package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/netns"
)

const (
	model  = "sim-70b"
	scaled = "scaled" // the pool that decisions resize; clients do not ask it
)

// world is a running cluster on its network, under traffic.
type world struct {
	o   *options
	net *netns.Net
	*procs.Cluster
	places  map[string]*harness.Place
	clients *clients
	stop    func() // ends the traffic
}

// bounded dials from a place, for dialWithin at most.
type bounded struct{ place *harness.Place }

// dialError is a connection that was not made.
type dialError struct{ error }

// Unwrap is why it was not made.
func (e *dialError) Unwrap() error { return e.error }

func (b *bounded) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	c, err := b.place.Dial(ctx, network, address)
	if err != nil {
		return nil, &dialError{err}
	}
	return c, nil
}

// start starts network, processes and traffic. On an error nothing is left running.
func start(ctx context.Context, o *options) (w *world, err error) {
	w = &world{o: o, places: map[string]*harness.Place{}, stop: func() {}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.net, err = netns.New(1); err != nil {
		return w, err
	}
	dir, err := os.MkdirTemp("", "hearsay-chaos-")
	if err != nil {
		return w, err
	}
	w.Cluster = &procs.Cluster{Procs: &harness.Procs{}, Dir: dir}
	client, err := w.place("client")
	if err != nil {
		return w, err
	}
	self, err := os.Executable()
	if err != nil {
		return w, err
	}
	spaces := filepath.Join(dir, "spaces")
	// Hosts of routers are made first: the engines that a router starts listen on all of them.
	var paths []string
	for i := range o.routers {
		name := fmt.Sprintf("r%d", i+1)
		h, err := w.host(name)
		if err != nil {
			return w, err
		}
		paths = append(paths, h.Path())
	}
	if err := os.WriteFile(spaces, []byte(strings.Join(paths, "\n")), 0o600); err != nil {
		return w, err
	}
	w.Procs, err = harness.StartProcs(ctx, harness.ProcsConfig{
		Bin: o.bin, Dir: dir, Routers: o.routers, Engines: o.engines, Model: model,
		EngineArgs: []string{"--speed", "10"}, Voters: o.voters, DrainDelay: 2 * time.Second,
		MorePools: fmt.Sprintf("  - name: %s\n    model: %s\n    drain: {deadline: 30s}\n    scale: {min: 1, max: 8, actuator: process, cooldown: 1s, down_window: 1s, dir: %q, command: [%q, -engine, \"{port}\", -spaces, %q, -parent, \"%d\"]}\n",
			scaled, scaledModel, filepath.Join(dir, "engines"), self, spaces, os.Getpid()),
		Place: w.place,
	})
	if err != nil {
		return w, err
	}
	if _, err := w.agree(ctx, w.Routers, time.Minute); err != nil {
		return w, fmt.Errorf("at the start: %w", err)
	}
	w.clients = newClients(w.Routers, client)
	w.traffic(ctx)
	return w, nil
}

// traffic lets the clients begin.
func (w *world) traffic(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.clients.run(ctx, w.o.clients) })
	w.stop = func() {
		cancel()
		wg.Wait()
	}
}

// host makes a host, or finds the one of that name.
func (w *world) host(name string) (*netns.Host, error) {
	h, err := w.net.Host(name)
	if err != nil {
		return nil, err
	}
	w.places[name] = &harness.Place{IP: h.IP.String(), Do: h.Do, Dial: h.DialContext}
	return h, nil
}

func (w *world) place(name string) (*harness.Place, error) {
	if p := w.places[name]; p != nil {
		return p, nil
	}
	if _, err := w.host(name); err != nil {
		return nil, err
	}
	return w.places[name], nil
}

// close ends everything that was started.
func (w *world) close() {
	w.stop()
	if w.Cluster != nil {
		if len(w.Routers) > 0 {
			w.Procs.Close()
		}
		if w.o.keep {
			fmt.Fprintln(os.Stderr, "logs are in", w.Dir)
		} else {
			_ = os.RemoveAll(w.Dir)
		}
	}
	if w.net != nil {
		w.net.Close()
	}
}

// leader is the router that leads, and the others. It waits for one: on a machine that is very busy terms may be short.
func (w *world) leader(ctx context.Context) (lead *harness.Proc, others []*harness.Proc, err error) {
	for began := time.Now(); time.Since(began) < settleWithin && ctx.Err() == nil; time.Sleep(lookEvery) {
		lead, others = nil, nil
		for _, r := range w.Routers {
			s, err := statusOf(ctx, r)
			if err == nil && s.Router.Raft.Leader == s.Router.ID && lead == nil {
				lead = r
			} else {
				others = append(others, r)
			}
		}
		if lead != nil {
			return lead, others, nil
		}
	}
	return nil, nil, errors.Join(errors.New("no router leads"), ctx.Err())
}

// links sets both directions between each router of a and each of b.
func (w *world) links(a, b []*harness.Proc, l netns.Link) {
	for _, x := range a {
		for _, y := range b {
			if x != y {
				w.net.SetBoth(x.Name, y.Name, l)
			}
		}
	}
}
