package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
	"github.com/hearsay-llm/hearsay/cmd/node"
)

// places are the loopback addresses that a demo's routers listen on. They are taken
// when they are chosen, so that two demos started at one instant can't choose the
// same, and handed to the routers as they ask for them.
type places struct {
	streams map[string]net.Listener
	packets map[string]net.PacketConn
}

// routerPlace is where one router listens; the mesh is on the port after cluster.
type routerPlace struct{ api, admin, cluster string }

func newPlaces() *places {
	return &places{streams: map[string]net.Listener{}, packets: map[string]net.PacketConn{}}
}

// tries bounds how many ports are tried, in steps of 100 from the wanted one.
const tries = 50

// router takes a place for router i, from 0, near its usual ports.
func (p *places) router(i int) (r routerPlace, err error) {
	if r.api, err = p.near(8080+10*i, p.takeStream); err != nil {
		return r, err
	}
	if r.admin, err = p.near(8081+10*i, p.takeStream); err != nil {
		return r, err
	}
	r.cluster, err = p.near(7946+10*i, p.takeCluster)
	return r, err
}

func (p *places) near(port int, take func(port int) error) (string, error) {
	for try := range tries {
		if take(port+100*try) == nil {
			return loopback(port + 100*try), nil
		}
	}
	return "", fmt.Errorf("no free port near %d", port)
}

func (p *places) takeStream(port int) error {
	ln, err := net.Listen("tcp", loopback(port))
	if err == nil {
		p.streams[loopback(port)] = ln
	}
	return err
}

// takeCluster takes what a router's cluster address needs: the port for streams and
// packets, and the next one for streams.
func (p *places) takeCluster(port int) error {
	if err := p.takeStream(port); err != nil {
		return err
	}
	err := p.takeStream(port + 1)
	if err == nil {
		var c net.PacketConn
		if c, err = net.ListenPacket("udp", loopback(port)); err == nil {
			p.packets[loopback(port)] = c
			return nil
		}
	}
	for _, at := range []string{loopback(port), loopback(port + 1)} {
		if ln := p.streams[at]; ln != nil {
			_ = ln.Close()
			delete(p.streams, at)
		}
	}
	return err
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// lend gives the routers what was taken for them.
func (p *places) lend(d *node.Deps) {
	d.Listen = func(network, addr string) (net.Listener, error) {
		if ln := p.streams[addr]; ln != nil {
			delete(p.streams, addr)
			return ln, nil
		}
		return net.Listen(network, addr)
	}
	d.ListenPacket = func(network, addr string) (net.PacketConn, error) {
		if c := p.packets[addr]; c != nil {
			delete(p.packets, addr)
			return c, nil
		}
		return net.ListenPacket(network, addr)
	}
}

// close gives back what no router has asked for.
func (p *places) close() {
	for _, ln := range p.streams {
		_ = ln.Close()
	}
	for _, c := range p.packets {
		_ = c.Close()
	}
}

const (
	demoPrefix  = "hearsay-demo-"
	demoPIDFile = "demo.pid"
	// demoGrace is how long a directory without a mark is left alone: its demo may
	// be about to set one.
	demoGrace = time.Minute
)

// claim marks a directory as a living demo's: the mark is a file with its process
// id, locked for as long as the process lives, however that ends.
func claim(dir string) (release func(), err error) {
	path := filepath.Join(dir, demoPIDFile)
	if old, err := os.Open(path); err == nil {
		if syscall.Flock(int(old.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			pid, _ := os.ReadFile(path)
			_ = old.Close()
			return nil, fmt.Errorf("%s is in use by another demo, process %s: choose another --data-dir", dir, strings.TrimSpace(string(pid)))
		}
		defer func() { _ = old.Close() }()
	}
	// Locked before it has its name: nobody sees it unlocked while we live.
	f, err := os.CreateTemp(dir, demoPIDFile+".*")
	if err != nil {
		return nil, err
	}
	fail := func(err error) (func(), error) {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fail(err)
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return fail(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fail(err)
	}
	return func() {
		_ = os.Remove(path)
		_ = f.Close()
	}, nil
}

// sweepDemos removes what killed demos left in the directory for temporary files,
// and says which.
func sweepDemos(tmp string) (removed []string) {
	dirs, _ := filepath.Glob(filepath.Join(tmp, demoPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		mark, err := os.Open(filepath.Join(dir, demoPIDFile))
		switch {
		case errors.Is(err, fs.ErrNotExist) && time.Since(info.ModTime()) > demoGrace:
		case err != nil:
			continue
		case syscall.Flock(int(mark.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil:
			_ = mark.Close()
			continue // its demo lives
		}
		endStray(filepath.Join(dir, "process"))
		if os.RemoveAll(dir) == nil {
			removed = append(removed, dir)
		}
		if mark != nil {
			_ = mark.Close()
		}
	}
	return removed
}

// endStray ends engines of a killed demo that have not ended by themselves.
func endStray(dir string) {
	pools, _ := filepath.Glob(filepath.Join(dir, "*", "processes.json"))
	for _, book := range pools {
		_ = endProcesses(filepath.Dir(book), []string{"{port}"})
	}
}

// endProcesses ends the engines that an actuator with this directory has started.
func endProcesses(dir string, command []string) error {
	p, err := actuator.NewProcess(actuator.ProcessConfig{Dir: dir, Command: command, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.StopAll(ctx, 2*time.Second)
}

// withParent ends a context when the process of that id is no longer this one's
// parent: it died, however, or had died before.
func withParent(ctx context.Context, pid int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if pid == 0 {
		return ctx, cancel
	}
	go func() {
		t := time.NewTicker(200 * time.Millisecond)
		defer t.Stop()
		for os.Getppid() == pid {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}
