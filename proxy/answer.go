package proxy

import (
	"bytes"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// usageIn finds the last usage object in the end of an answer.
func usageIn(tail []byte, kind api.Family) (api.Usage, bool) {
	for end := len(tail); ; {
		i := bytes.LastIndex(tail[:end], []byte(`"usage"`))
		if i < 0 {
			return api.Usage{}, false
		}
		v := bytes.TrimLeft(tail[i+len(`"usage"`):], " \t\r\n:")
		if len(v) > 0 && v[0] == '{' {
			// The object is flat but for details: cut it at the brace that closes it.
			if n := closing(v); n > 0 {
				if u, ok := api.ParseUsage(v[:n], kind); ok {
					return u, true
				}
			}
		}
		end = i
	}
}

// closing is the length of the JSON object that b starts with, 0 if it does not
// end in b.
func closing(b []byte) int {
	depth, str := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case str && c == '\\':
			i++
		case c == '"':
			str = !str
		case str:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

func isEventStream(contentType []byte) bool {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	return equalFold(bytes.TrimSpace(media), "text/event-stream")
}

// meansJSON reports whether an answer of this type must be JSON, if it is one to a
// request of ours: a page of HTML is none. Embeddings may come as bytes.
func meansJSON(contentType []byte) bool {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	media = bytes.ToLower(bytes.TrimSpace(media))
	return len(media) == 0 || string(media) == "application/json" ||
		bytes.HasSuffix(media, []byte("+json")) || bytes.HasPrefix(media, []byte("text/"))
}

// family is how the replica that answers writes usage: as its kind does in the API it is
// asked in.
func (r *request) family() api.Family {
	switch {
	case r.ask.Endpoint == api.Messages && r.native:
		return api.Exclusive
	case kindOf(&r.job.Pool().Spec, r.replica) == state.EngineLlamaCpp:
		return api.LlamaCpp
	}
	return api.Inclusive
}

// errorCode finds the HTTP status in an engine's error object: vLLM, SGLang and
// llama.cpp write it as code, TGI as http_status_code, some beside the object. 0
// is none.
func errorCode(payload []byte) int {
	code := 0
	var walk func(b []byte, deep bool)
	walk = func(b []byte, deep bool) {
		c := scan.New(b)
		if !c.EnterObject() {
			return
		}
		var scratch [32]byte
		for key, ok := c.NextField(); ok; key, ok = c.NextField() {
			v := c.Skip()
			switch string(key.Text(b, scratch[:0])) {
			case "code", "http_status_code", "status":
				if n, ok := scan.Int(v.Raw(b)); ok && v.Kind == scan.Number && n >= 400 && n < 600 {
					code = int(n)
				}
			case "error":
				if deep && v.Kind == scan.Object {
					walk(v.Raw(b), false)
				}
			}
		}
	}
	walk(payload, true)
	return code
}

func jsonValid(b []byte) bool {
	c := scan.New(b)
	c.Skip()
	return c.End() == nil
}
