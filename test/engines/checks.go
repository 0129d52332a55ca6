package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/proxy/engine"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/harness"
)

// check is one thing that was tried.
type check struct {
	Engine string `json:"engine"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"` // empty: it went well
}

func (c *check) result() string {
	if c.Error != "" {
		return "FAILED: " + c.Error
	}
	return strings.TrimSpace("ok " + c.Detail)
}

// trial is a running cluster that checks are made with.
type trial struct {
	*kind
	dir     string
	cluster *procs.Cluster
}

// checks makes them all, those that end a process last.
func checks(ctx context.Context, o *options, k *kind, cluster *procs.Cluster) (out []check) {
	t := &trial{k, o.dir, cluster}
	for _, c := range []struct {
		name string
		run  func(context.Context) (string, error)
	}{
		{"detection and readings in hearsay replicas", t.replicas},
		{"a stream through a router ends as the engine's", t.sameStream},
		{"no usage for those who did not ask", t.noUsage},
		{"a client that leaves in mid-answer ends the work", t.leaveStream},
		{"a client that leaves before the first token ends the work", t.leavePrefill},
		{"errors for clients' mistakes, and no replica blamed", t.mistakes},
		{"official openai client for Python", t.openai},
		{"kill -9 of an engine: requests are answered by the other", t.kill},
		{"the engine comes back without what it held", t.back},
	} {
		detail, err := c.run(ctx)
		x := check{Engine: k.title, Name: c.name, Detail: detail}
		if err != nil {
			x.Error = strings.Join(strings.Fields(err.Error()), " ")
			x.Error = x.Error[:min(len(x.Error), 300)]
		}
		out = append(out, x)
	}
	return out
}

// list is what the first router says of its replicas, in order of the engines.
func (t *trial) list(ctx context.Context) ([]console.Replica, error) {
	var doc []console.Replica
	if err := t.cluster.Routers[0].GetAdmin(ctx, "replicas", &doc); err != nil {
		return nil, err
	}
	var out []console.Replica
	for _, e := range t.cluster.Engines {
		for _, r := range doc {
			if r.URL == e.API {
				out = append(out, r)
			}
		}
	}
	if len(out) != len(t.cluster.Engines) {
		return nil, fmt.Errorf("%d replicas listed", len(doc))
	}
	return out, nil
}

func (t *trial) replicas(ctx context.Context) (string, error) {
	list, err := t.list(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if r.Engine != string(t.is) || r.State != "ready" {
			return "", fmt.Errorf("%s is taken for %s, %s %s", r.URL, r.Engine, r.State, r.Trouble)
		}
		if t.metrics && (r.Running < 0 || r.Waiting < 0 || r.KVUsage < 0 || r.Capacity <= 0) {
			return "", fmt.Errorf("unread: running %v, waiting %v, KV %v, capacity %v", r.Running, r.Waiting, r.KVUsage, r.Capacity)
		}
	}
	r := list[0]
	return fmt.Sprintf("%s, %.0f running, %.0f waiting, KV %.2f of %.0f tokens", r.Engine, r.Running, r.Waiting, r.KVUsage, r.Capacity), nil
}

// body is a request for a chat of one message.
func (t *trial) body(text string, tokens int, more string) string {
	words, _ := json.Marshal(text)
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}],"max_tokens":%d,"temperature":0,"seed":1%s}`, t.model, words, tokens, more)
}

// answer is what a stream came to.
type answer struct {
	status  int
	head    http.Header
	text    string
	finish  string
	usages  int // chunks with usage
	ended   bool
	pieces  int
	message string // of an error
}

// client makes a connection for each request: llama.cpp's server offers to keep one and
// closes it after a stream all the same.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends a chat and reads its answer, until stop says so.
func ask(ctx context.Context, api, body string, stop func(*answer) bool) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Hearsay-Debug", "1")
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	a.status, a.head = resp.StatusCode, resp.Header
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case !ok:
			a.message += lines.Text()
			continue
		case string(data) == "[DONE]":
			a.ended = true
			continue
		}
		var chunk struct {
			Usage   json.RawMessage `json:"usage"`
			Choices []struct {
				Finish string `json:"finish_reason"`
				Delta  struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return a, fmt.Errorf("chunk %q: %w", data, err)
		}
		if len(chunk.Usage) > 0 && string(chunk.Usage) != "null" {
			a.usages++
		}
		for _, c := range chunk.Choices {
			a.text += c.Delta.Content
			if c.Delta.Content != "" {
				a.pieces++
			}
			if c.Finish != "" {
				a.finish = c.Finish
			}
		}
		if stop != nil && stop(&a) {
			return a, nil
		}
	}
	return a, lines.Err()
}

const stream = `,"stream":true`

func (t *trial) sameStream(ctx context.Context) (string, error) {
	body := t.body("Tell me about the sea.", 24, stream+`,"stream_options":{"include_usage":true}`)
	var got []answer
	for _, api := range []string{t.cluster.Engines[0].API, t.cluster.Routers[0].API, t.cluster.Routers[1].API} {
		a, err := ask(ctx, api, body, nil)
		if err != nil {
			return "", err
		}
		got = append(got, a)
	}
	// What is found in a cache is not computed to the last bit as what is not, so the
	// words may differ.
	words := "the same words"
	for _, a := range got {
		if a.text == "" || a.finish != got[0].finish || !a.ended || a.usages != got[0].usages {
			return "", fmt.Errorf("%+v, directly %+v", a, got[0])
		}
		if a.text != got[0].text {
			words = "other words"
		}
	}
	return fmt.Sprintf("%s, finish %s, usage in %d chunk, [DONE]", words, got[0].finish, got[0].usages), nil
}

func (t *trial) noUsage(ctx context.Context) (string, error) {
	a, err := ask(ctx, t.cluster.Routers[0].API, t.body("Tell me about the sea.", 8, stream), nil)
	if err == nil && (a.usages > 0 || !a.ended || a.finish == "") {
		err = fmt.Errorf("%+v", a)
	}
	return "", err
}

// read reads an engine as a router does.
func (t *trial) read(ctx context.Context, e *harness.Proc) (state.Reading, error) {
	reader := engine.NewReader(http.DefaultClient, func(string) string { return "" })
	r := reader.Read(ctx, []state.Replica{{ID: "e", URL: e.API}})[0]
	if !r.OK {
		return r, errors.New(r.Err)
	}
	return r, nil
}

// idle waits until no engine works, and says how long that took.
func (t *trial) idle(ctx context.Context, bound time.Duration) (time.Duration, error) {
	begin := time.Now()
	for {
		busy := 0.0
		for _, e := range t.cluster.Engines {
			r, err := t.read(ctx, e)
			if err != nil {
				return 0, err
			}
			busy += max(0, r.Running) + max(0, r.Waiting)
		}
		if busy == 0 {
			return time.Since(begin), nil
		}
		if time.Since(begin) > bound {
			return 0, fmt.Errorf("%v requests still there after %v", busy, bound)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// endless is a request whose answer takes much longer than leaving it.
func (t *trial) endless(text string) string { return t.body(text, 1000, stream+`,"ignore_eos":true`) }

func (t *trial) leaveStream(ctx context.Context) (string, error) {
	if !t.metrics {
		return "not seen: it tells no load", nil
	}
	if _, err := ask(ctx, t.cluster.Routers[0].API, t.endless("Count to a million."), func(a *answer) bool { return a.pieces == 3 }); err != nil {
		return "", err
	}
	d, err := t.idle(ctx, 10*time.Second)
	return fmt.Sprintf("idle after %.0f ms", d.Seconds()*1e3), err
}

// leavePrefill leaves a request whose prompt is being read, through a router and without
// one: engines look for clients that left only between their steps.
func (t *trial) leavePrefill(ctx context.Context) (string, error) {
	if !t.metrics {
		return "not seen: it tells no load", nil
	}
	var took []time.Duration
	for i, api := range []string{t.cluster.Routers[0].API, t.cluster.Engines[0].API} {
		d, err := t.leaveUnanswered(ctx, api, fmt.Sprintf("never seen %d ", i))
		if err != nil {
			return "", err
		}
		took = append(took, d)
	}
	return fmt.Sprintf("idle after %.1f s, without a router after %.1f s", took[0].Seconds(), took[1].Seconds()), nil
}

func (t *trial) leaveUnanswered(ctx context.Context, api, text string) (time.Duration, error) {
	leave, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := ask(leave, api, t.endless(strings.Repeat(text, 300)), nil)
		done <- err
	}()
	for begin := time.Now(); ; {
		busy := 0.0
		for _, e := range t.cluster.Engines {
			if r, err := t.read(ctx, e); err == nil {
				busy += max(0, r.Running) + max(0, r.Waiting)
			}
		}
		if busy > 0 {
			break
		}
		if time.Since(begin) > 20*time.Second {
			return 0, errors.New("the request never showed up")
		}
	}
	cancel()
	if err := <-done; err == nil {
		return 0, errors.New("it was answered before the client left")
	}
	return t.idle(ctx, 2*time.Minute)
}

// image is a message's content that models of text can't read.
const image = `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]`

// mistakes sends what engines refuse, more often than it takes to eject a replica.
func (t *trial) mistakes(ctx context.Context) (string, error) {
	var seen []string
	for _, body := range []string{
		t.body("x", 8, `,"top_p":"much"`),
		t.body(strings.Repeat("too long ", 5*window), 8, ""),
		t.body("x", 8, `,"tools":[{"x":1}]`),
		strings.Replace(t.body("x", 8, ""), `"x"`, image, 1),
	} {
		status := 0
		for range 8 {
			a, err := ask(ctx, t.cluster.Routers[0].API, body, nil)
			if err != nil {
				return "", err
			}
			status = a.status
		}
		seen = append(seen, fmt.Sprint(status))
	}
	list, err := t.list(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if r.State != "ready" {
			return "", fmt.Errorf("%s is %s, %s (statuses %s)", r.URL, r.State, r.Reason, strings.Join(seen, ", "))
		}
	}
	return "statuses " + strings.Join(seen, ", "), nil
}

func (t *trial) openai(ctx context.Context) (string, error) {
	if err := installClient(ctx, t.dir); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(t.dir, "client", "bin", "python"), "-c", string(clientScript), t.cluster.Routers[1].API, t.model, fmt.Sprint(t.metrics)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(bytes.TrimSpace(out)), nil
}
