package proxy

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"net"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
	engines "github.com/hearsay-llm/hearsay/proxy/engine"
	"github.com/hearsay-llm/hearsay/state"
)

// maxRequestID bounds a client's own request id.
const maxRequestID = 128

// requestID keeps a client's request id when there is one and it is short printable
// ASCII, and makes one otherwise.
func requestID(given ...[]byte) string {
	if len(given) == 1 {
		id := given[0]
		sane := len(id) > 0 && len(id) <= maxRequestID
		for _, c := range id {
			sane = sane && c > ' ' && c < 0x7f
		}
		if sane {
			return string(id)
		}
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// asksWebSocket reports whether a client wants to leave HTTP for frames of its own.
// An offer of HTTP/2 is another matter: it is declined by not taking it up.
func asksWebSocket(h *fasthttp.RequestHeader) bool {
	for _, v := range h.PeekAll("Upgrade") {
		for protocol := range bytes.SplitSeq(v, []byte(",")) {
			if equalFold(bytes.TrimSpace(protocol), "websocket") {
				return true
			}
		}
	}
	return false
}

// setID tells a client its request's id, by the name that its API's libraries look for, too.
func setID(h *fasthttp.ResponseHeader, id string, shape api.Shape) {
	h.Set("x-request-id", id)
	if shape == api.Anthropic {
		h.Set("request-id", id)
	}
}

// upstreamFields are the client's headers that a replica gets. Everything else
// stays here: credentials and cookies are not the engine's business, and
// hop-by-hop headers end at each hop.
var upstreamFields = []string{
	"Accept", "Accept-Language", "User-Agent", "Idempotency-Key",
	"Openai-Organization", "Openai-Project", "Openai-Beta",
	"Anthropic-Version", "Anthropic-Beta",
	"Traceparent", "Tracestate", "Baggage", "X-Session-Id",
}

// downstreamFields are the replica's headers that a client gets, beside those
// that start with downstreamPrefixes.
var downstreamFields = map[string]bool{
	"content-type": true, "content-language": true, "content-encoding": true, "content-disposition": true,
	"cache-control": true, "retry-after": true, "retry-after-ms": true,
	"openai-processing-ms": true, "openai-version": true, "openai-model": true, "openai-organization": true,
	"x-queue-time": true, "x-prompt-tokens": true, "x-generated-tokens": true, "x-inference-time": true,
	"x-should-retry": true, "warning": true, "deprecation": true, "sunset": true,
}

var downstreamPrefixes = []string{"x-ratelimit-", "ratelimit", "anthropic-ratelimit-"}

// recipient is what a replica's header lines depend on.
type recipient struct {
	key  string // its credential, "" for none
	xKey bool   // it wants that as x-api-key
	rank int    // data-parallel rank, -1 for an engine with one
	load bool   // it is asked for its load
}

// appendFields appends the header lines that go to a replica.
func appendFields(dst []byte, h *fasthttp.RequestHeader, id string, client net.Addr, to recipient) []byte {
	line := func(name string, value []byte) {
		dst = append(dst, name...)
		dst = append(dst, ": "...)
		dst = append(dst, value...)
		dst = append(dst, "\r\n"...)
	}
	if ct := h.ContentType(); isForm(ct) {
		line("Content-Type", ct) // it holds the boundary
	} else {
		dst = append(dst, "Content-Type: application/json\r\n"...)
	}
	dst = append(dst, "X-Request-Id: "...)
	dst = append(dst, id...)
	dst = append(dst, "\r\n"...)
	for _, name := range upstreamFields {
		if v := h.Peek(name); len(v) > 0 {
			line(name, v)
		}
	}
	dst = append(dst, "X-Forwarded-For: "...)
	for _, v := range h.PeekAll("X-Forwarded-For") {
		if len(v) > 0 {
			dst = append(dst, v...)
			dst = append(dst, ", "...)
		}
	}
	dst = appendHost(dst, client)
	dst = append(dst, "\r\n"...)
	return to.append(dst)
}

// append appends the header lines that depend on the replica.
func (to recipient) append(dst []byte) []byte {
	line := func(name, value string) {
		dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
	}
	if to.rank >= 0 {
		line("X-Data-Parallel-Rank", strconv.Itoa(to.rank)) // vLLM, newer SGLang
	}
	if to.load {
		dst = append(dst, engines.LoadRequestHeader+": "+engines.LoadRequestValue+"\r\n"...)
	}
	switch {
	case to.key == "":
	case to.xKey:
		line("X-Api-Key", to.key)
	default:
		line("Authorization", "Bearer "+to.key)
	}
	return dst
}

func isForm(contentType []byte) bool {
	const form = "multipart/"
	return len(contentType) > len(form) && equalFold(contentType[:len(form)], form)
}

// appendHost appends the host of a client's address.
func appendHost(dst []byte, a net.Addr) []byte {
	if t, ok := a.(*net.TCPAddr); ok && t != nil {
		if ip := t.AddrPort().Addr(); ip.IsValid() {
			return ip.Unmap().AppendTo(dst)
		}
	}
	if a != nil {
		if host, _, err := net.SplitHostPort(a.String()); err == nil {
			return append(dst, host...)
		}
	}
	return append(dst, "unknown"...)
}

// copyFields copies what a client should see of a replica's headers.
func copyFields(dst, src *fasthttp.ResponseHeader) {
	for k, v := range src.All() {
		name := strings.ToLower(string(k))
		ok := downstreamFields[name]
		for _, p := range downstreamPrefixes {
			ok = ok || strings.HasPrefix(name, p)
		}
		if !ok {
			continue
		}
		if name == "content-type" {
			dst.SetContentTypeBytes(v)
			continue
		}
		dst.AddBytesKV(k, v)
	}
}

// keys finds the credentials that pools send to their engines.
type keys struct{ getenv func(string) string }

func (k keys) of(p *state.PoolSpec) string {
	if p.APIKeyEnv == "" {
		return ""
	}
	key := k.getenv(p.APIKeyEnv)
	if strings.ContainsAny(key, "\r\n") {
		return strings.NewReplacer("\r", "", "\n", "").Replace(key)
	}
	return key
}

// debugFields tells a client that asked why its request went where it went.
func debugFields(h *fasthttp.ResponseHeader, router state.RouterID, p *Pick) {
	h.Set("x-hearsay-router", string(router))
	h.Set("x-hearsay-pool", p.Pool)
	h.Set("x-hearsay-replica", string(p.Replica))
	h.Set("x-hearsay-policy", p.Policy)
	h.Set("x-hearsay-matched-tokens", strconv.Itoa(p.MatchedTokens))
	h.Set("x-hearsay-prompt-tokens", strconv.Itoa(p.PromptTokens))
	h.Set("x-hearsay-ttft-ms", strconv.FormatInt(p.TTFT.Milliseconds(), 10))
	h.Set("x-hearsay-attempts", strconv.Itoa(p.Attempt))
	if p.Queued > 0 {
		h.Set("x-hearsay-queued-ms", strconv.FormatInt(p.Queued.Milliseconds(), 10))
	}
}
