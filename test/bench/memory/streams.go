package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// streams is what open streams take: differences to the idle router, per stream,
// bytes. Live is heap and stacks after a collection; RSS is as it stood without one.
type streams struct {
	State      string  `json:"state"`
	BodyBytes  int     `json:"body_bytes"`
	Streams    int     `json:"streams"`
	Live       float64 `json:"live_per_stream"`
	Stack      float64 `json:"stack_per_stream"` // part of live
	RSS        float64 `json:"rss_per_stream"`
	RSSSettled float64 `json:"rss_after_collection_per_stream"`
	Goroutines float64 `json:"goroutines_per_stream"`
	Left       float64 `json:"live_left_after_end"` // of all streams together
}

func measureStreams(ctx context.Context, o *options, res *result) error {
	for _, size := range []int{400, 400_000} {
		for _, state := range []string{sayHold, sayHead, sayMid} {
			s, idle, err := openStreams(ctx, o, size, state)
			if err != nil {
				return fmt.Errorf("%d streams %s of %d bytes: %w", o.streams, state, size, err)
			}
			if res.Idle == nil {
				res.Idle = &idle
			}
			res.Streams = append(res.Streams, *s)
			fmt.Fprintf(o.progress, "%d streams %s, bodies of %d bytes: %s KB each\n", o.streams, state, size, kb(s.Live))
		}
	}
	return nil
}

// openStreams opens streams through one fresh router, measures, and lets them end.
func openStreams(ctx context.Context, o *options, size int, state string) (*streams, usage, error) {
	p, up, done, err := cluster(ctx, o, 1, 4)
	if err != nil {
		return nil, usage{}, err
	}
	defer done()
	r := p.Routers[0]
	idle, err := settled(ctx, r)
	if err != nil {
		return nil, idle, err
	}
	body := chatBody(state+strings.Repeat(" word", max(0, size-120)/5), true)
	open, err := dialAll(ctx, r, up, o.streams, body, state)
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	if err != nil {
		return nil, idle, err
	}
	if err := wait(ctx, time.Second); err != nil {
		return nil, idle, err
	}
	raw, err := read(ctx, r)
	if err != nil {
		return nil, idle, err
	}
	with, err := settled(ctx, r)
	if err != nil {
		return nil, idle, err
	}
	name := map[string]string{sayHold: "waiting", sayHead: "head-sent", sayMid: "mid-stream"}[state]
	if err := profile(ctx, o, r, fmt.Sprintf("%s_%d", name, size)); err != nil {
		return nil, idle, err
	}
	up.let()
	if err := drain(open); err != nil {
		return nil, idle, err
	}
	for _, c := range open {
		_ = c.Close()
	}
	if err := wait(ctx, time.Second); err != nil {
		return nil, idle, err
	}
	after, err := settled(ctx, r)
	if err != nil {
		return nil, idle, err
	}
	n := float64(o.streams)
	return &streams{
		State: name, BodyBytes: len(body), Streams: o.streams,
		Live: (with.live() - idle.live()) / n, Stack: (with.Stack - idle.Stack) / n,
		RSS: (raw.RSS - idle.RSS) / n, RSSSettled: (with.RSS - idle.RSS) / n,
		Goroutines: (with.Threads - idle.Threads) / n, Left: after.live() - idle.live(),
	}, idle, nil
}

// conn is a client's connection with one request on it.
type conn struct {
	net.Conn
	in *bufio.Reader
}

// dialAll sends n requests, each on its own connection, and waits until the
// upstreams hold all of them and, in mid-stream, pieces have come through.
func dialAll(ctx context.Context, r *harness.Proc, up *upstreams, n int, body []byte, state string) ([]*conn, error) {
	u, err := url.Parse(r.API)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", u.Host, len(body))
	open := make([]*conn, n)
	errs := make([]error, n)
	slots := make(chan struct{}, 32)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			c, err := net.Dial("tcp", u.Host)
			if err != nil {
				errs[i] = err
				return
			}
			open[i] = &conn{Conn: c, in: bufio.NewReaderSize(c, 1<<10)}
			if _, errs[i] = c.Write(append([]byte(head), body...)); errs[i] != nil || state != sayMid {
				return
			}
			for errs[i] == nil {
				var line string
				if line, errs[i] = open[i].in.ReadString('\n'); strings.Contains(line, "word2") {
					return
				}
			}
		})
	}
	all.Wait()
	var live []*conn
	for i, c := range open {
		if errs[i] != nil && err == nil {
			err = errs[i]
		}
		if c != nil {
			live = append(live, c)
		}
	}
	if err != nil {
		return live, err
	}
	for end := time.Now().Add(time.Minute); up.waiting.Load() < int64(n); {
		if time.Now().After(end) {
			return live, fmt.Errorf("only %d of %d requests reached the upstreams", up.waiting.Load(), n)
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return live, err
		}
	}
	return live, nil
}

// drain reads all answers to their end.
func drain(open []*conn) error {
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			line, err := c.in.ReadString('\n')
			if strings.Contains(line, "[DONE]") {
				break
			}
			if err == io.EOF {
				return fmt.Errorf("a stream ended without its end")
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func chatBody(content string, stream bool) []byte {
	return fmt.Appendf(nil, `{"model":%q,"stream":%v,"max_tokens":4,"messages":[{"role":"user","content":"%s"}]}`, model, stream, content)
}

func (res *result) showStreams(w io.Writer) {
	i := res.Idle
	table.Print(w, "An idle router with four replicas, MB", 0, []string{"RSS", "live heap", "stacks", "goroutines"},
		[][]string{{mb(i.RSS), mb(i.Heap), mb(i.Stack), fmt.Sprint(i.Threads)}})
	var rows [][]string
	for _, s := range res.Streams {
		rows = append(rows, []string{
			s.State, fmt.Sprint(s.BodyBytes), fmt.Sprint(s.Streams), kb(s.Live), kb(s.Stack), kb(s.RSS), kb(s.RSSSettled), table.Num(s.Goroutines), mb(s.Left),
		})
	}
	table.Print(w, "One stream, KB more than the idle router; live: heap and stacks after a collection", 1,
		[]string{"state", "body bytes", "streams", "live KB", "of it stacks", "RSS KB", "RSS collected", "goroutines", "all ended: live MB left"}, rows)
}
