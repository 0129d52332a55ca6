package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/test/enginesim"
	"github.com/hearsay-llm/hearsay/test/harness"
	"github.com/hearsay-llm/hearsay/test/netns"
)

// scaledModel is the model of the pool that decisions resize.
const scaledModel = "sim-scaled"

// engine is what the routers' process actuator starts: a simulated engine that listens on one loopback port in the
// namespaces of all routers at once, as one on a machine that the routers share would. It ends with the process
// parent, however that ends.
func engine(ctx context.Context, o *options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for harness.Alive(o.parent) && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond)
		}
		cancel()
	}()
	b, err := os.ReadFile(o.spaces)
	if err != nil {
		return err
	}
	cfg := enginesim.DefaultConfig()
	cfg.Model, cfg.Speed = scaledModel, 10
	doors := &doors{conns: make(chan net.Conn), closed: make(chan struct{})}
	for _, path := range strings.Fields(string(b)) {
		ln, err := listenIn(path, fmt.Sprintf("127.0.0.1:%d", o.enginePort))
		if err != nil {
			return err
		}
		doors.add(ln)
	}
	return enginesim.New(cfg).Serve(ctx, doors)
}

// doors is several listeners as one. They end with the process.
type doors struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func (d *doors) add(ln net.Listener) {
	d.addr = ln.Addr()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			select {
			case d.conns <- c:
			case <-d.closed:
				_ = c.Close()
				return
			}
		}
	}()
}

// Accept waits for a connection at any of them.
func (d *doors) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (d *doors) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr is the address of one of them.
func (d *doors) Addr() net.Addr { return d.addr }

// listenIn listens on an address within a namespace.
func listenIn(path, address string) (ln net.Listener, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	err = netns.In(int(f.Fd()), func() (err error) {
		ln, err = net.Listen("tcp4", address)
		return err
	})
	return ln, err
}
