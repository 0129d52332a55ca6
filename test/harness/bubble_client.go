package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// ChatPath is the path of chat requests.
const ChatPath = "/v1/chat/completions"

// Message is one message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Chat is a chat request.
type Chat struct {
	Model     string // default Model
	Messages  []Message
	MaxTokens int // 0: as long as the engine likes
	Stream    bool
	Usage     bool // stream_options.include_usage
}

// Body is the request as bytes, the same for the same Chat.
func (c Chat) Body() []byte {
	type options struct {
		IncludeUsage bool `json:"include_usage"`
	}
	body := struct {
		Model     string    `json:"model"`
		Messages  []Message `json:"messages"`
		MaxTokens int       `json:"max_tokens,omitempty"`
		Stream    bool      `json:"stream,omitempty"`
		Options   *options  `json:"stream_options,omitempty"`
	}{Model: cmp.Or(c.Model, Model), Messages: c.Messages, MaxTokens: c.MaxTokens, Stream: c.Stream}
	if c.Usage {
		body.Options = &options{true}
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // only strings and numbers
	}
	return b
}

// Usage is the tokens an answer reports.
type Usage struct {
	PromptTokens        int `json:"prompt_tokens"`
	CompletionTokens    int `json:"completion_tokens"`
	PromptTokensDetails struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Event is one event of a stream as the client got it.
type Event struct {
	At   time.Time
	Name string // its event field, mostly empty
	Data string
}

// Reply is what a client got for a request.
type Reply struct {
	Status  int // 0: no response
	Header  http.Header
	Body    []byte
	Events  []Event // of a stream
	Err     error   // what broke the exchange; nil: it ended as it should
	Replica state.ReplicaID
	ID      string // request id

	Sent, First, End time.Time // First: headers, or the first event of a stream
}

// TTFT is the time to the first event, or to the answer.
func (r *Reply) TTFT() time.Duration { return r.First.Sub(r.Sent) }

// Matched is how many prompt tokens the router thought cached, by its debug header.
func (r *Reply) Matched() (n int) {
	_, _ = fmt.Sscan(r.Header.Get("x-hearsay-matched-tokens"), &n)
	return n
}

// Attempts is how many replicas were tried, by the debug header.
func (r *Reply) Attempts() (n int) {
	_, _ = fmt.Sscan(r.Header.Get("x-hearsay-attempts"), &n)
	return n
}

// OK reports a whole answer: status 200, and for a stream its end.
func (r *Reply) OK() bool {
	if r.Status != http.StatusOK || r.Err != nil {
		return false
	}
	return len(r.Events) == 0 || r.Done()
}

// Done reports that a stream said [DONE], or that its response is complete.
func (r *Reply) Done() bool {
	if len(r.Events) == 0 {
		return false
	}
	last := r.Events[len(r.Events)-1]
	return last.Data == "[DONE]" || last.Name == "response.completed"
}

// String is for failures.
func (r *Reply) String() string {
	tail := string(r.Body)
	if len(r.Events) > 0 {
		tail = fmt.Sprintf("%d events, last %q", len(r.Events), r.Events[len(r.Events)-1])
	}
	return fmt.Sprintf("%s at %s: status %d, error %v, %s", r.ID, r.Replica, r.Status, r.Err, tail)
}

type answerJSON struct {
	Choices []struct {
		Message, Delta struct{ Content string }
	}
	Usage *Usage
}

// Text is the answer's text.
func (r *Reply) Text() string {
	var b strings.Builder
	r.each(func(a *answerJSON) {
		for _, c := range a.Choices {
			b.WriteString(c.Message.Content)
			b.WriteString(c.Delta.Content)
		}
	})
	return b.String()
}

// Usage is the last usage the answer has, or nil.
func (r *Reply) Usage() (u *Usage) {
	r.each(func(a *answerJSON) {
		if a.Usage != nil {
			u = a.Usage
		}
	})
	return u
}

func (r *Reply) each(f func(*answerJSON)) {
	if len(r.Events) == 0 {
		var a answerJSON
		if json.Unmarshal(r.Body, &a) == nil {
			f(&a)
		}
	}
	for _, e := range r.Events {
		var a answerJSON
		if e.Data != "[DONE]" && json.Unmarshal([]byte(e.Data), &a) == nil {
			f(&a)
		}
	}
}

// Do sends a chat body to router i and reads the answer to its end.
func (b *Bubble) Do(i int, body []byte) *Reply {
	s := b.Open(i, body)
	for s.Next() {
	}
	return s.Reply
}

// Chat is Do for a Chat.
func (b *Bubble) Chat(i int, c Chat) *Reply { return b.Do(i, c.Body()) }

// Stream is a request under way. Its methods are for one goroutine, but for Close
// and Reset.
type Stream struct {
	*Reply
	conn *simnet.Conn
	resp *http.Response
	br   *bufio.Reader
}

// Open sends a chat body to router i and returns without waiting for an answer.
func (b *Bubble) Open(i int, body []byte) *Stream { return b.OpenAt(i, "POST", ChatPath, body) }

// DoAt is Do with another method and path, and further header lines.
func (b *Bubble) DoAt(i int, method, path string, body []byte, fields ...string) *Reply {
	s := b.OpenAt(i, method, path, body, fields...)
	for s.Next() {
	}
	return s.Reply
}

// OpenAt is Open with another method and path, and further header lines.
func (b *Bubble) OpenAt(i int, method, path string, body []byte, fields ...string) *Stream {
	s := &Stream{Reply: &Reply{Sent: time.Now()}}
	host := b.Net.Host("client")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := host.DialContext(ctx, "tcp", b.Net.Host(routerName(i)).IP().String()+apiPort)
	if err != nil {
		s.end(err)
		return s
	}
	s.conn = c.(*simnet.Conn)
	var req bytes.Buffer
	fmt.Fprintf(&req, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nX-Hearsay-Debug: 1\r\nContent-Length: %d\r\n%s\r\n%s",
		method, path, routerName(i), len(body), strings.Join(append(fields, ""), "\r\n"), body)
	if _, err := s.conn.Write(req.Bytes()); err != nil {
		s.end(err)
	}
	return s
}

func (s *Stream) end(err error) {
	s.Err, s.End = err, time.Now()
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// Head waits for the response's head; false when none came.
func (s *Stream) Head() bool {
	if s.resp != nil || s.conn == nil {
		return s.resp != nil
	}
	resp, err := http.ReadResponse(bufio.NewReader(s.conn), nil)
	if err != nil {
		s.end(err)
		return false
	}
	s.resp, s.br = resp, bufio.NewReader(resp.Body)
	s.Status, s.Header = resp.StatusCode, resp.Header
	s.Replica = state.ReplicaID(resp.Header.Get("x-hearsay-replica"))
	s.ID = resp.Header.Get("x-request-id")
	return true
}

// Next waits for the next event of a stream, or for the whole body of another
// answer; false when the answer is over.
func (s *Stream) Next() bool {
	if s.conn == nil || !s.Head() {
		return false
	}
	if !strings.HasPrefix(s.resp.Header.Get("Content-Type"), "text/event-stream") {
		s.First = time.Now()
		body, err := io.ReadAll(s.br)
		s.Body = body
		s.end(err)
		return false
	}
	e := Event{}
	for seen := false; ; {
		line, err := s.br.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && line == "" && !seen {
				err = nil
			}
			s.end(err)
			return false
		}
		switch line = strings.TrimRight(line, "\r\n"); {
		case line == "" && seen:
			e.At = time.Now()
			if s.First.IsZero() {
				s.First = e.At
			}
			s.Events = append(s.Events, e)
			return true
		case strings.HasPrefix(line, "data: "):
			e.Data, seen = e.Data+line[len("data: "):], true
		case strings.HasPrefix(line, "event: "):
			e.Name, seen = line[len("event: "):], true
		}
	}
}

// Close ends the exchange from the client's side as a closed socket does.
func (s *Stream) Close() { s.end(errors.New("closed by the client")) }

// Reset ends it as a client's crash does: the connection is reset.
func (s *Stream) Reset() {
	if s.conn != nil {
		_ = s.conn.Reset()
	}
	s.end(errors.New("reset by the client"))
}
