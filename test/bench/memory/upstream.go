package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const model = "sim"

// Words in a prompt that tell the upstream what to do.
const (
	sayHold = "[hold]" // answer nothing until released
	sayHead = "[head]" // the same behind an answer's head, which most engines send at once
	sayMid  = "[mid]"  // send a few pieces, then the rest when released
	sayHot  = "[hot]"  // the prompt begins with the hot prefix
)

// bytesPerToken is how upstreams count tokens of a body.
const bytesPerToken = 4

// upstreams are replicas that speak enough of vLLM to be one: they answer at once,
// in a few words.
type upstreams struct {
	replicas []*replica
	waiting  atomic.Int64 // requests that hold
	release  chan struct{}
}

type replica struct {
	up     *upstreams
	url    string
	server *http.Server
	kv     int64

	mu     sync.Mutex
	served int64 // guarded by mu; tokens so far: what an LRU cache has seen
	hotAt  int64 // guarded by mu; served when the hot prefix was used last, -1 never
}

func newUpstreams(n, kvTokens int) (*upstreams, error) {
	up := &upstreams{release: make(chan struct{})}
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			up.close()
			return nil, err
		}
		r := &replica{up: up, url: "http://" + ln.Addr().String(), kv: int64(kvTokens), hotAt: -1}
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/chat/completions", r.chat)
		mux.HandleFunc("/metrics", r.metrics)
		mux.HandleFunc("/version", reply(`{"version":"0.11.0"}`))
		mux.HandleFunc("/health", reply(""))
		mux.HandleFunc("/v1/models", reply(`{"object":"list","data":[{"id":"`+model+`","object":"model"}]}`))
		r.server = &http.Server{Handler: mux}
		go func() { _ = r.server.Serve(ln) }()
		up.replicas = append(up.replicas, r)
	}
	return up, nil
}

func (u *upstreams) close() {
	for _, r := range u.replicas {
		_ = r.server.Close()
	}
}

// let releases everything that holds, for good.
func (u *upstreams) let() { close(u.release) }

func reply(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

var started = float64(time.Now().Unix())

func (r *replica) metrics(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `vllm:num_requests_running{model_name=%q} 0
vllm:num_requests_waiting{model_name=%q} 0
vllm:kv_cache_usage_perc{model_name=%q} 0.5
vllm:cache_config_info{block_size="16",num_gpu_blocks="%d"} 1
process_start_time_seconds %f
`, model, model, model, r.kv/16, started)
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (r *replica) chat(w http.ResponseWriter, req *http.Request) {
	release := r.up.release
	b := bodies.Get().(*bytes.Buffer)
	b.Reset()
	if _, err := b.ReadFrom(req.Body); err != nil {
		bodies.Put(b)
		return
	}
	body := b.Bytes()
	say := func(word string) bool { return bytes.Contains(body[:min(len(body), 400)], []byte(word)) }
	stream := bytes.Contains(body, []byte(`"stream":true`))
	hold, head, mid := say(sayHold), say(sayHead), say(sayMid)
	prompt := len(body) / bytesPerToken
	cached := r.account(prompt, say(sayHot))
	bodies.Put(b)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":4,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, prompt, prompt+4, cached)
	if head {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
	}
	if hold || head {
		r.up.waiting.Add(1)
		select {
		case <-release:
		case <-req.Context().Done():
		}
		r.up.waiting.Add(-1)
	}
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"c","object":"chat.completion","model":"`+model+`","choices":[{"index":0,"message":{"role":"assistant","content":"all is well here"},"finish_reason":"stop"}],`+usage+`}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := w.(http.Flusher)
	event := func(data string) {
		_, _ = io.WriteString(w, "data: "+data+"\n\n")
		flush.Flush()
	}
	for i := range 4 {
		if i == 3 && mid {
			r.up.waiting.Add(1)
			select {
			case <-release:
			case <-req.Context().Done():
			}
			r.up.waiting.Add(-1)
		}
		event(`{"id":"c","object":"chat.completion.chunk","model":"` + model + `","choices":[{"index":0,"delta":{"content":"word` + strconv.Itoa(i) + ` "},"finish_reason":null}]}`)
	}
	event(`{"id":"c","object":"chat.completion.chunk","model":"` + model + `","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	event(`{"id":"c","object":"chat.completion.chunk","model":"` + model + `","choices":[],` + usage + `}`)
	event("[DONE]")
}

// account notes a request and returns what an LRU cache of kv tokens would have had
// of it: of the hot prompt its prefix, as long as no more than kv tokens came since,
// of any other the words that all share.
func (r *replica) account(prompt int, hot bool) (cached int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.served > 0 {
		cached = sharedChars / bytesPerToken / 16 * 16
	}
	if hot {
		if r.hotAt >= 0 && r.served-r.hotAt <= r.kv {
			cached = hotTokens
		}
		r.hotAt = r.served + int64(prompt)
	}
	r.served += int64(prompt)
	return cached
}
