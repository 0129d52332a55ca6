package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/hearsay-llm/hearsay/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A relay that is cut ends what runs through it, refuses what is new, and carries again
// when it is mended.
func TestRelay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, "hello")
			_, _ = io.Copy(io.Discard, c) // until it is cut
			_ = c.Close()
		}
	}()
	r, err := newRelay(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", r.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c, bufio.NewReader(c)
	}
	_, old := dial()
	if line, err := old.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	r.cut()
	if line, err := old.ReadString('\n'); err == nil {
		t.Errorf("%q after the cut", line)
	}
	_, cut := dial()
	if line, err := cut.ReadString('\n'); err == nil {
		t.Errorf("%q while it is cut", line)
	}
	r.mend()
	_, now := dial()
	if line, err := now.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q, %v after it was mended", line, err)
	}
}
