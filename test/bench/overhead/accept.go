package main

import (
	"context"
	"errors"
	"net"
	"sync"
)

// serveEach serves every connection in a goroutine of its own until ctx ends. It closes
// what is left then, and leaves nothing behind.
func serveEach(ctx context.Context, ln net.Listener, serve func(net.Conn)) error {
	var mu sync.Mutex
	conns, ended := map[net.Conn]bool{}, false // guarded by mu
	stop := context.AfterFunc(ctx, func() {
		_ = ln.Close()
		mu.Lock()
		defer mu.Unlock()
		ended = true
		for c := range conns {
			_ = c.Close()
		}
	})
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		mu.Lock()
		conns[c] = true
		if ended {
			_ = c.Close()
		}
		mu.Unlock()
		all.Go(func() {
			serve(c)
			_ = c.Close()
			mu.Lock()
			delete(conns, c)
			mu.Unlock()
		})
	}
}
