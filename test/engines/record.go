package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// record writes what an engine answers into a directory. Tests of proxy/engine, proxy/api
// and proxy read what is below testdata.
func record(ctx context.Context, dir string, k *kind, api string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := &trial{kind: k}
	colour, long := "Name one colour.", strings.Repeat("too long ", 5*window)
	usage := stream + `,"stream_options":{"include_usage":true}`
	prompt := func(more string) string {
		return fmt.Sprintf(`{"model":%q,"prompt":"The sea is","max_tokens":4,"temperature":0%s}`, k.model, more)
	}
	const chat, completions = "/v1/chat/completions", "/v1/completions"
	for _, one := range []struct{ file, path, body string }{
		{"models.json", "/v1/models", ""},
		{"version.json", "/version", ""},
		{"props.json", "/props", ""},
		{"slots.json", "/slots", ""},
		{"health.txt", "/health", ""},
		{"stream-usage.sse", chat, t.body(colour, 6, usage)},
		{"stream.sse", chat, t.body(colour, 6, stream)},
		{"chat.json", chat, t.body(colour, 6, "")},
		{"completion-usage.sse", completions, prompt(usage)},
		{"error-type.json", chat, t.body(colour, 6, `,"top_p":"much"`)},
		{"error-context.json", chat, t.body(long, 6, "")},
		{"error-context-stream.json", chat, t.body(long, 6, stream)},
		{"error-tools.json", chat, t.body(colour, 6, `,"tools":[{"x":1}]`)},
		{"error-image.json", chat, strings.Replace(t.body("x", 8, ""), `"x"`, image, 1)},
		{"error-model.json", chat, strings.Replace(t.body("x", 8, ""), k.model, "no-such-model", 1)},
		{"error-embeddings.json", "/v1/embeddings", fmt.Sprintf(`{"model":%q,"input":"x"}`, k.model)},
		{"metrics.txt", "/metrics", ""},
	} {
		status, body, err := fetch(ctx, api+one.path, one.body)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: status %d, %d bytes\n", one.file, status, len(body))
		if err := os.WriteFile(filepath.Join(dir, one.file), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fetch gets a URL, or posts a body of JSON to it.
func fetch(ctx context.Context, url, body string) (int, []byte, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}
