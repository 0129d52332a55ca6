package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// answerBytes is the size of an answer that is no stream.
	answerBytes = 1024
	// chunks is how many pieces of text a stream has.
	chunks = 64
	// peeked is how much of a prompt is looked at.
	peeked = 4 << 10
)

// engine is a mock of vLLM that costs little: it speaks as much HTTP over raw
// connections as proxies need, drops a prompt as it comes, and answers at once with
// a body of one size, or with a stream of chunks in steady steps. Each chunk says
// when it was sent.
type engine struct{ gap time.Duration }

func newEngine(gap time.Duration) *engine { return &engine{gap: gap} }

// run serves until ctx ends, and leaves nothing behind.
func (e *engine) run(ctx context.Context, ln net.Listener) error {
	return serveEach(ctx, ln, e.serve)
}

// serving is what one connection is served with.
type serving struct {
	net.Conn
	in   *bufio.Reader
	out  []byte
	size int    // of the request that answer is for
	text []byte // the answer, its head included
}

func (e *engine) serve(c net.Conn) {
	s := serving{Conn: c, in: bufio.NewReaderSize(c, 32<<10), size: -1}
	for {
		path, size, err := s.head()
		if err != nil {
			return
		}
		stream, usage := false, false
		for left := size; left > 0; {
			if _, err := s.in.Peek(1); err != nil {
				return
			}
			b, _ := s.in.Peek(min(left, s.in.Buffered()))
			if left == size {
				// What says how to answer is in a long prompt's beginning, or a short one.
				if b, err = s.in.Peek(min(size, peeked)); err != nil {
					return
				}
				stream, usage = bytes.Contains(b, []byte(`"stream":true`)), bytes.Contains(b, []byte(`"include_usage"`))
			}
			left -= len(b)
			_, _ = s.in.Discard(len(b))
		}
		if path != "/v1/chat/completions" {
			err = s.side(path)
		} else if stream {
			err = s.stream(size, e.gap, usage)
		} else {
			err = s.answer(size)
		}
		if err != nil {
			return
		}
	}
}

// head reads a request's head.
func (s *serving) head() (path string, size int, err error) {
	for first := true; ; first = false {
		line, err := s.in.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 && !first {
			return path, size, nil
		}
		if first {
			f := strings.Fields(string(line))
			if len(f) != 3 {
				return "", 0, fmt.Errorf("bad request line %q", line)
			}
			path = f[1]
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("content-length") && strings.EqualFold(string(name), "content-length"):
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", 0, err
			}
		case len(name) == len("transfer-encoding") && strings.EqualFold(string(name), "transfer-encoding"):
			return "", 0, errors.New("a request in chunks")
		}
	}
}

// promptTokens is how many tokens the engine takes a request to have.
func promptTokens(size int) int { return size / 4 }

// answer answers whole.
func (s *serving) answer(size int) error {
	if s.size != size {
		before := `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1764470000,"model":"` + model + `","choices":[{"index":0,"message":{"role":"assistant","content":"`
		after := fmt.Sprintf(`"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":64,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}}`, promptTokens(size), promptTokens(size)+64)
		words := strings.Repeat("all is well ", answerBytes/12)
		body := before + words[:answerBytes-len(before)-len(after)] + after
		s.size = size
		s.text = fmt.Appendf(s.text[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	_, err := s.Write(s.text)
	return err
}

// Parts of a stream's events.
const (
	beforeDelta = `data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764470000,"model":"` + model + `","choices":[{"index":0,"delta":{`
	beforeStamp = `"content":"`
	afterStamp  = ` word"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	streamHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// stream answers in chunks that carry the time of their sending.
func (s *serving) stream(size int, gap time.Duration, usage bool) error {
	s.out = append(s.out[:0], streamHead...)
	begin := time.Now()
	for i := range chunks {
		if i > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * gap)))
		}
		b := append(make([]byte, 0, 512), beforeDelta+beforeStamp...)
		b = strconv.AppendInt(b, time.Now().UnixNano(), 10)
		s.chunk(append(b, afterStamp...))
		if i == chunks-1 {
			s.chunk([]byte(beforeDelta + `},"logprobs":null,"finish_reason":"stop"}]}` + "\n\n"))
			if usage {
				s.chunk(fmt.Appendf(nil, `data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764470000,"model":"`+model+`","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
					promptTokens(size), chunks, promptTokens(size)+chunks))
			}
			s.chunk([]byte("data: [DONE]\n\n"))
			s.out = append(s.out, "0\r\n\r\n"...)
		}
		if _, err := s.Write(s.out); err != nil {
			return err
		}
		s.out = s.out[:0]
	}
	return nil
}

func (s *serving) chunk(b []byte) {
	s.out = strconv.AppendInt(s.out, int64(len(b)), 16)
	s.out = append(append(append(s.out, "\r\n"...), b...), "\r\n"...)
}

var started = time.Now().Unix()

// side answers what a router asks an engine beside requests.
func (s *serving) side(path string) error {
	body, status := "", "200 OK"
	switch path {
	case "/health":
	case "/version":
		body = `{"version":"0.11.0"}`
	case "/v1/models":
		body = `{"object":"list","data":[{"id":"` + model + `","object":"model"}]}`
	case "/metrics":
		body = fmt.Sprintf("vllm:num_requests_running{model_name=%[1]q} 0\nvllm:num_requests_waiting{model_name=%[1]q} 0\nvllm:kv_cache_usage_perc{model_name=%[1]q} 0.5\n"+
			"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"25000\"} 1\nprocess_start_time_seconds %[2]d\n", model, started)
	default:
		status = "404 Not Found"
	}
	_, err := io.WriteString(s, fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
	return err
}
