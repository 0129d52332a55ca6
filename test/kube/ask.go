package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// clients' connections to routers.
var clients = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

// answer is a stream that has begun.
type answer struct {
	replica string // that answers
	body    io.ReadCloser
}

// open asks a router for a stream of as many tokens.
func open(ctx context.Context, api, pool, text string, tokens int) (*answer, error) {
	body := fmt.Sprintf(`{"model":"sim-%s","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":true}`, pool, text, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Hearsay-Debug", "1")
	resp, err := clients.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: status %d, %s", api, resp.StatusCode, b)
	}
	return &answer{resp.Header.Get("X-Hearsay-Replica"), resp.Body}, nil
}

// rest reads the stream to its end, which must be that of a whole answer.
func (a *answer) rest() error {
	defer func() { _ = a.body.Close() }()
	last := ""
	lines := bufio.NewScanner(a.body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if last != "data: [DONE]" {
		return fmt.Errorf("a stream of %s was cut off after %q", a.replica, last)
	}
	return nil
}

// ask is a short request, and who answered it.
func ask(ctx context.Context, api, pool, text string) (replica string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a, err := open(ctx, api, pool, text, 4)
	if err != nil {
		return "", err
	}
	return a.replica, a.rest()
}

// burst sends n prompts that nobody has seen to a router at once, and says how many each
// replica answered.
func burst(ctx context.Context, api, pool string, n int) (map[string]int, error) {
	var mu sync.Mutex
	by := map[string]int{}
	var first error
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			replica, err := ask(ctx, api, pool, fmt.Sprintf("%d %d", time.Now().UnixNano(), i)+strings.Repeat(" something new", 200))
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			}
			by[replica]++
		})
	}
	wg.Wait()
	return by, first
}
