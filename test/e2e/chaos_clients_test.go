package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// crowd is clients of all manners.
type crowd struct {
	apis   []string
	seed   uint64
	client *http.Client

	mu     sync.Mutex
	next   int
	counts map[string]int // whole, broken (visibly), refused, vanished
	wrong  []string       // answers that were neither whole nor visibly broken
}

func newCrowd(apis []string, seed uint64) *crowd {
	return &crowd{apis: apis, seed: seed, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, counts: map[string]int{}}
}

// run lets them ask for a while, and waits until all have their answers. It returns
// what became of the requests of this time.
func (c *crowd) run(ctx context.Context, span time.Duration) map[string]int {
	const clients = 12
	before := map[string]int{}
	for k, n := range c.counts {
		before[k] = n
	}
	c.seed++
	var wg sync.WaitGroup
	deadline := time.Now().Add(span)
	for i := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
			for time.Now().Before(deadline) && ctx.Err() == nil {
				// What was asked for is waited for after the end, too.
				c.one(context.WithoutCancel(ctx), rng)
			}
		})
	}
	wg.Wait()
	out := map[string]int{}
	for k, n := range c.counts {
		out[k] = n - before[k]
	}
	return out
}

// one is one request of a random manner.
func (c *crowd) one(ctx context.Context, rng *rand.Rand) {
	c.mu.Lock()
	c.next++
	id := fmt.Sprintf("chaos-%d-%d", c.seed, c.next)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	api := c.apis[rng.IntN(len(c.apis))]
	tokens := 20 + rng.IntN(60)
	prompt := long(fmt.Sprint("subject ", rng.IntN(20)), 50+rng.IntN(100)) + " " + id
	switch manner := rng.IntN(20); {
	case manner < 4:
		c.note(c.plain(ctx, api, prompt, id, tokens))
	case manner < 14:
		c.note(c.stream(ctx, api, prompt, id, tokens))
	case manner < 18: // leaves before the answer, or amid it
		ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
		defer cancel()
		_, _ = c.stream(ctx, api, prompt, id, 10*tokens)
		c.note("vanished", nil)
	default:
		c.note("vanished", c.deaf(api, prompt, id))
	}
}

func (c *crowd) note(outcome string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[outcome]++
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
	}
}

func (c *crowd) ask(ctx context.Context, api, id, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	return c.client.Do(req)
}

func decode(r io.Reader, v any) error { return json.NewDecoder(r).Decode(v) }

// answer is what is looked at of a completion, a chunk of one, or an error.
type answer struct {
	Choices []struct {
		Delta struct {
			Role string `json:"role"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// refused checks an answer that is none.
func refused(id string, resp *http.Response) (string, error) {
	var a answer
	if err := decode(resp.Body, &a); err != nil || a.Error == nil || a.Error.Message == "" {
		return "refused", fmt.Errorf("request %s: status %d without an error in its body: %v", id, resp.StatusCode, err)
	}
	return "refused", nil
}

// plain asks for an answer in one piece.
func (c *crowd) plain(ctx context.Context, api, prompt, id string, tokens int) (string, error) {
	resp, err := c.ask(ctx, api, id, chat(prompt, tokens, false, `,"ignore_eos":true`))
	if err != nil {
		return "broken", nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return refused(id, resp)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "broken", nil
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil || a.Usage == nil || a.Usage.CompletionTokens != tokens || len(a.Choices) != 1 {
		return "", fmt.Errorf("request %s: not a whole answer, and none that is visibly broken: %.300s", id, b)
	}
	return "whole", nil
}

// stream asks for a stream and reads it to its end.
func (c *crowd) stream(ctx context.Context, api, prompt, id string, tokens int) (string, error) {
	resp, err := c.ask(ctx, api, id, chat(prompt, tokens, true, `,"ignore_eos":true,"stream_options":{"include_usage":true}`))
	if err != nil {
		return "broken", nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return refused(id, resp)
	}
	var roles, finished, used int
	var done, failed bool
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadString('\n')
		data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		switch {
		case err != nil && err != io.EOF:
			if done {
				return "", fmt.Errorf("request %s: an end, and then: %w", id, err)
			}
			return "broken", nil
		case err == io.EOF && failed:
			return "broken", nil
		case err == io.EOF:
			if !done || roles != 1 || finished != 1 || used != tokens {
				return "", fmt.Errorf("request %s: a clean end after %d beginnings, %d ends, %d of %d tokens, [DONE] %v", id, roles, finished, used, tokens, done)
			}
			return "whole", nil
		case !ok:
			continue
		case done || failed:
			return "", fmt.Errorf("request %s: more after the end: %s", id, line)
		case data == "[DONE]":
			done = true
			continue
		}
		var a answer
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			return "", fmt.Errorf("request %s: an event that is none: %q", id, line)
		}
		failed = a.Error != nil
		for _, x := range a.Choices {
			if x.Delta.Role != "" {
				roles++
			}
			if x.FinishReason != "" {
				finished++
			}
		}
		if a.Usage != nil {
			used = a.Usage.CompletionTokens
		}
	}
}

// deaf asks for a long answer, reads some of it, then nothing for a while, and goes.
func (c *crowd) deaf(api, prompt, id string) error {
	_, addr, _ := strings.Cut(api, "://")
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	body := chat(prompt, 2000, true, `,"ignore_eos":true`)
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", addr, id, len(body), body)
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.ReadFull(conn, make([]byte, 2048))
	silence := time.NewTimer(time.Second)
	<-silence.C
	return nil
}
