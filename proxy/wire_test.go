package proxy

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/test/simnet"
)

// wire is what a rig runs over: loopback, or simnet in a bubble.
type wire interface {
	listen(host string) net.Listener
	dial(ctx context.Context, from, addr string) (net.Conn, error)
}

type loopback struct{ t testing.TB }

func (w loopback) listen(string) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	return ln
}

func (loopback) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

type sim struct {
	t testing.TB
	n *simnet.Net
}

func (w sim) listen(host string) net.Listener {
	ln, err := w.n.Host(host).Listen("tcp", ":80")
	must(w.t, err)
	return ln
}

func (w sim) dial(ctx context.Context, from, addr string) (net.Conn, error) {
	return w.n.Host(from).DialContext(ctx, "tcp", addr)
}

// over runs a test over loopback and over simnet in a bubble.
func over(t *testing.T, f func(t *testing.T, w wire)) {
	t.Run("loopback", func(t *testing.T) { f(t, loopback{t}) })
	t.Run("bubble", func(t *testing.T) { inBubble(t, f) })
}

func inBubble(t *testing.T, f func(t *testing.T, w wire)) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		n.SetDefault(simnet.Link{Delay: time.Millisecond})
		f(t, sim{t, n})
	})
}

// timed reports whether the time that something takes says something: on loopback a
// busy machine has its share in it.
func (g *rig) timed() bool {
	_, ok := g.w.(sim)
	return ok
}
