package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// together is how soon a signal that follows the same one belongs to it: timeout(1), for
// one, signals a process and then its group.
const together = 200 * time.Millisecond

// hangups is who takes SIGHUP instead of being stopped by it: a router, which reads its
// configuration again.
type hangups struct {
	to      atomic.Pointer[chan struct{}]
	signals chan<- os.Signal
}

type hangupKey struct{}

// onHangup gives a channel that is told of every SIGHUP from now on, also where it was
// ignored from the start (nohup): it ends nothing any more. nil where ctx is not of
// untilSignal. Several that come before it is read are one.
func onHangup(ctx context.Context) <-chan struct{} {
	h, ok := ctx.Value(hangupKey{}).(*hangups)
	if !ok {
		return nil
	}
	c := make(chan struct{}, 1)
	h.to.Store(&c)
	signal.Notify(h.signals, syscall.SIGHUP)
	return c
}

// tell passes a SIGHUP on; false when nobody takes it.
func (h *hangups) tell() bool {
	c := h.to.Load()
	if c == nil {
		return false
	}
	select {
	case *c <- struct{}{}:
	default:
	}
	return true
}

// untilSignal gives a context that ends at the first SIGINT, SIGTERM, or SIGHUP that
// nobody takes (onHangup): what runs then stops in order. A second SIGINT or SIGTERM calls exit at once; it can't be
// left to the system, for a process that a shell has started in the background would
// ignore it. A terminal that closes sends SIGHUP more than once, and service managers
// send it behind SIGTERM: it never counts as a second one. One that was ignored from the
// start (nohup) stays so while nobody takes it.
func untilSignal(exit func(code int)) (ctx context.Context, stop func()) {
	signals := make(chan os.Signal, 4)
	h := &hangups{signals: signals}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), hangupKey{}, h))
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	var wg sync.WaitGroup
	over := make(chan struct{})
	var first syscall.Signal
	var at time.Time
	wg.Go(func() {
		for {
			select {
			case s := <-signals:
				n, _ := s.(syscall.Signal)
				if n == syscall.SIGHUP && h.tell() {
					continue
				}
				if ctx.Err() != nil && n != syscall.SIGHUP {
					if n == first && time.Since(at) < together {
						continue
					}
					fmt.Fprintln(os.Stderr, "hearsay: told to stop a second time: ended at once")
					exit(128 + int(n))
					return
				}
				if ctx.Err() == nil {
					first, at = n, time.Now()
				}
				cancel()
			case <-over:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(over)
		wg.Wait()
		cancel()
	}
}
