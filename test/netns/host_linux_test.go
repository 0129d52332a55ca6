package netns

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Two hosts talk over real sockets, and a cut stops them; run as root only.
func TestHostsTalk(t *testing.T) {
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	n, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	a, err := n.Host("a")
	if err != nil {
		t.Skipf("namespaces can't be made here: %v", err)
	}
	b, err := n.Host("b")
	if err != nil {
		t.Fatal(err)
	}
	var ln net.Listener
	if err := b.Do(func() (err error) {
		ln, err = net.Listen("tcp4", b.IP.String()+":80")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })}
	go func() { _ = srv.Serve(ln) }()
	defer func() { _ = srv.Close() }()
	client := &http.Client{Transport: &http.Transport{DialContext: a.DialContext, DisableKeepAlives: true}}
	get := func(bound time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.IP.String(), nil)
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	body, err := get(10 * time.Second)
	if host, _, _ := net.SplitHostPort(body); err != nil || host != a.IP.String() {
		t.Fatalf("b saw %q: %v", body, err)
	}
	n.Set("b", "a", Link{Cut: true})
	if body, err := get(300 * time.Millisecond); err == nil {
		t.Errorf("across a cut: %q", body)
	}
	n.Heal()
	if _, err := get(10 * time.Second); err != nil {
		t.Errorf("healed: %v", err)
	}
}
