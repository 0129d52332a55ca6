package cases

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// got is one completion request as an engine got it.
type got struct {
	e    *engine
	conn net.Conn
	br   *bufio.Reader
	nth  int // on its connection, from 1
	at   time.Time

	head, body string // the exact bytes
	goneAt     time.Time
}

// write sends exactly these bytes.
func (g *got) write(s string) bool {
	_, err := io.WriteString(g.conn, s)
	return err == nil
}

// stream begins an event stream.
func (g *got) stream(events ...string) bool {
	return g.write(streamHead + chunks(events...))
}

// gone blocks until the router closes the connection.
func (g *got) gone() {
	_, _ = g.br.ReadByte()
	g.e.mu.Lock()
	g.goneAt = time.Now()
	g.e.mu.Unlock()
}

// reset closes the connection with RST.
func (g *got) reset() { reset(g.conn) }

// engine is a vLLM, or a SGLang, made of sockets. Readings find it idle; what completions get is
// the test's choice.
type engine struct {
	url   string
	alias string // the same by another name
	ln    net.Listener
	wg    sync.WaitGroup

	mu      sync.Mutex
	answer  func(*got) (keep bool)
	reqs    []*got
	running int
	peak    int
	conns   map[net.Conn]bool
	dials   int
	read    int                             // readings answered
	model   string                          // of /v1/models
	models  []string                        // further ones
	gets    func(path string) (body string) // answers to GET of its own; "" for the usual
	sglang  bool                            // what it says of itself
	version string                          // as well
	refuses bool                            // new connections are closed at once with RST
	idle    time.Duration                   // keep-alive; 0: for ever
}

// newEngine starts an engine on loopback.
func newEngine(t *testing.T, answer func(*got) bool) *engine {
	t.Helper()
	return (*world)(nil).engine(t, answer)
}

// engine starts one whose completions are answered by answer, which says whether the
// connection goes on.
func (w *world) engine(t *testing.T, answer func(*got) bool) *engine {
	t.Helper()
	ln, addr, alias := w.listen(t)
	e := &engine{url: "http://" + addr, alias: "http://" + alias, ln: ln, answer: answer, conns: map[net.Conn]bool{}, model: "m"}
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			refuses := e.refuses
			e.conns[c] = true
			e.mu.Unlock()
			if refuses {
				reset(c)
				continue
			}
			e.wg.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(e.stop)
	return e
}

func (e *engine) stop() {
	_ = e.ln.Close()
	e.mu.Lock()
	for c := range e.conns {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *engine) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
	}()
	br := bufio.NewReader(c)
	for n := 1; ; n++ {
		if d := e.keepAlive(); d > 0 && n > 1 {
			_ = c.SetReadDeadline(time.Now().Add(d))
			if _, err := br.Peek(1); err != nil && !waiting(c) {
				return // as uvicorn does, without notice
			}
			_ = c.SetReadDeadline(time.Time{})
		}
		head, body, err := readRequest(br)
		if err != nil {
			return
		}
		if strings.HasPrefix(head, "GET ") {
			if !e.reading(c, head) {
				return
			}
			continue
		}
		g := &got{e: e, conn: c, br: br, nth: n, at: time.Now(), head: head, body: body}
		e.mu.Lock()
		e.reqs = append(e.reqs, g)
		e.running++
		e.peak = max(e.peak, e.running)
		if n == 1 {
			e.dials++
		}
		answer := e.answer
		e.mu.Unlock()
		keep := answer(g)
		e.mu.Lock()
		e.running--
		e.mu.Unlock()
		if !keep {
			return
		}
	}
}

// waiting reports whether something has come on loopback that was not read.
func waiting(c net.Conn) bool {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return n > 0
}

func (e *engine) keepAlive() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.idle
}

// readRequest reads one request and keeps its bytes.
func readRequest(br *bufio.Reader) (head, body string, err error) {
	size := 0
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		head += line
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, "Content-Length") {
			_, _ = fmt.Sscan(v, &size)
		}
		if line == "\r\n" {
			b := make([]byte, size)
			_, err := io.ReadFull(br, b)
			return head, string(b), err
		}
	}
}

// reading answers what routers ask an engine about itself.
func (e *engine) reading(c net.Conn, head string) bool {
	e.mu.Lock()
	e.read++
	models := append([]string{e.model}, e.models...)
	sglang, version := e.sglang, cmp.Or(e.version, "0.11.0")
	e.mu.Unlock()
	path := strings.Fields(head)[1]
	if e.gets != nil {
		if body := e.gets(path); body != "" {
			_, err := io.WriteString(c, reply(200, body))
			return err == nil
		}
	}
	status, kind, body := 200, "application/json", ""
	if own := strings.HasPrefix(path, "/v1/loads") || path == "/server_info"; own && !sglang || sglang && (path == "/version" || path == "/metrics") {
		path = "not here"
	}
	switch path {
	case "/metrics":
		kind = "text/plain"
		l := `{engine="0",model_name="` + models[0] + `"} `
		body = "vllm:num_requests_running" + l + "0.0\nvllm:num_requests_waiting" + l + "0.0\nvllm:kv_cache_usage_perc" + l + "0.01\n" +
			"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"11560\"} 1.0\nprocess_start_time_seconds 1.7e9\n"
	case "/v1/models":
		var list []string
		for _, m := range models {
			list = append(list, `{"id":"`+m+`","object":"model","owned_by":"vllm"}`)
		}
		body = `{"object":"list","data":[` + strings.Join(list, ",") + `]}`
	case "/version":
		body = `{"version":"` + version + `"}`
	case "/v1/loads?include=core,queues,memory":
		body = `{"version":"0.5.9","dp_rank_count":1,"loads":[{"dp_rank":0,"num_running_reqs":0,"num_waiting_reqs":0,"max_total_num_tokens":204000,"token_usage":0.01}]}`
	case "/server_info":
		body = `{"model_path":"m","version":"0.5.9","max_total_num_tokens":204000,"page_size":64,"dp_size":1}`
	case "/health":
	default:
		status = 404
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), kind, len(body), body)
	return err == nil
}

// becomes changes what completions get from now on.
func (e *engine) becomes(answer func(*got) bool) {
	e.mu.Lock()
	e.answer = answer
	e.mu.Unlock()
}

// refuse makes new connections fail, and those there are.
func (e *engine) refuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuses = true
	for c := range e.conns {
		_ = c.Close()
	}
}

// requests are those that came so far.
func (e *engine) requests() []*got {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*got(nil), e.reqs...)
}

// forget drops what came so far.
func (e *engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reqs, e.peak, e.dials = nil, 0, 0
}

// readings is how often it was read.
// dialled is how many connections have carried a completion.
func (e *engine) dialled() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dials
}

// closed reports whether the connection of the latest completion is.
func (e *engine) closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.conns[e.reqs[len(e.reqs)-1].conn]
}

func (e *engine) readings() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read
}

// gones are the requests whose connection the router closed first.
func (e *engine) gones() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, g := range e.reqs {
		if !g.goneAt.IsZero() {
			n++
		}
	}
	return n
}

// Bytes that engines write.

const (
	streamHead = "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
	lastChunk  = "0\r\n\r\n"

	role    = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	finish  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null}]}` + "\n\n"
	usage   = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}` + "\n\n"
	done    = "data: [DONE]\n\n"
	good    = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}`
	full    = `{"error":{"message":"The request queue is full.","type":"ServiceUnavailable","param":null,"code":503}}`
	tgiBusy = `{"error":"Model is overloaded","error_type":"overloaded"}`
	oops    = `{"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","param":null,"code":500}}`
)

// token is an event with some text.
func token(text string) string {
	return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
}

// errorEvent is what vLLM writes into a stream.
func errorEvent(kind string, code int) string {
	return fmt.Sprintf(`data: {"error": {"message": "EngineCore encountered an issue.", "type": "%s", "param": null, "code": %d}}`+"\n\n", kind, code)
}

// chunks frames pieces, one chunk each.
func chunks(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	return b.String()
}

// reply is a whole answer.
func reply(status int, body string, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n%s",
		status, http.StatusText(status), len(body), strings.Join(append(fields, ""), "\r\n"), body)
}

// says answers everything with the same bytes and keeps the connection.
func says(s string) func(*got) bool { return func(g *got) bool { return g.write(s) } }

// streams answers everything with these events, whole.
func streams(events ...string) func(*got) bool {
	return says(streamHead + chunks(events...) + lastChunk)
}

// healthy answers as asked: a stream or an object.
func healthy(g *got) bool {
	if strings.Contains(g.body, `"stream":true`) {
		return streams(role, token("Hi"), finish, usage, done)(g)
	}
	return says(reply(200, good))(g)
}
