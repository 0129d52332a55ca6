package enginesim

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

type formatKind uint8

const (
	formatChat formatKind = iota
	formatText
	formatEmbedding
	formatMessage  // see messageForm
	formatResponse // see responseForm
)

// format writes the bodies and stream events of one answer. The fields that do
// not change are encoded once.
type format struct {
	kind   formatKind
	engine Kind
	hide   bool   // no prompt_tokens_details
	tool   []byte // JSON: the function that is called instead of an answer in text; nil: none
	callID []byte // of that call, without its quotes
	chunk  []byte // `data: {"id":..,"object":..,"created":..,"model":..,"choices":[`
	whole  []byte // the same for a whole answer, without `data: `
}

func newFormat(kind formatKind, cfg Config, rec *RequestRecord, req *request) *format {
	id, model := jsonString(rec.ID), jsonString(rec.Model)
	head := func(prefix, object string) []byte {
		b := append([]byte(prefix), `{"id":`...)
		b = append(b, id...)
		b = append(b, `,"object":"`+object+`","created":`...)
		b = strconv.AppendInt(b, rec.Arrival.Unix(), 10)
		b = append(b, `,"model":`...)
		return append(append(b, model...), `,"choices":[`...)
	}
	f := &format{kind: kind, engine: cfg.Kind, hide: cfg.HideCachedTokens}
	if kind == formatMessage || kind == formatResponse {
		return f
	}
	if kind == formatChat && req.tool != "" {
		f.tool = jsonString(req.tool)
		f.callID = id[1 : len(id)-1]
	}
	if kind == formatChat {
		f.chunk, f.whole = head("data: ", "chat.completion.chunk"), head("", "chat.completion")
	} else {
		f.chunk, f.whole = head("data: ", "text_completion"), head("", "text_completion")
	}
	return f
}

// role appends the event that opens choice i of a chat.
func (f *format) role(dst []byte, i int, u *usage) []byte {
	dst = append(dst, f.chunk...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	dst = append(dst, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	return f.close(dst, u)
}

// open appends the part of a content event before its text; first in its choice or
// not.
func (f *format) open(dst []byte, i int, first bool) []byte {
	dst = append(dst, f.chunk...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	switch {
	case f.tool != nil && first:
		dst = append(dst, `,"delta":{"tool_calls":[{"index":0,`...)
		return f.call(dst, i)
	case f.tool != nil:
		return append(dst, `,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"`...)
	case f.kind == formatChat:
		return append(dst, `,"delta":{"content":"`...)
	}
	return append(dst, `,"text":"`...)
}

// call appends a call of the tool up to the text of its one argument.
func (f *format) call(dst []byte, i int) []byte {
	dst = append(append(dst, `"id":"chatcmpl-tool-`...), f.callID...)
	dst = append(strconv.AppendInt(append(dst, '-'), int64(i), 10), `","type":"function","function":{"name":`...)
	return append(append(dst, f.tool...), `,"arguments":"{\"text\": \"`...)
}

// shut appends the rest of a content event; finish is "" but in the last one, stop the
// stop sequence that ended the answer.
func (f *format) shut(dst []byte, finish, stop string, u *usage) []byte {
	switch {
	case f.tool != nil && finish != "":
		dst, finish = append(dst, `\"}"}}]}`...), "tool_calls"
	case f.tool != nil:
		dst = append(dst, `"}}]}`...)
	case f.kind == formatChat:
		dst = append(dst, `"}`...)
	default:
		dst = append(dst, '"')
	}
	dst = append(dst, `,"logprobs":null,"finish_reason":`...)
	switch {
	case finish != "":
		dst = stopReason(append(append(append(dst, '"'), finish...), '"'), stop)
	case f.kind == formatChat:
		dst = append(dst, `null`...)
	default:
		dst = append(dst, `null,"stop_reason":null`...)
	}
	return f.close(append(dst, `}]`...), u)
}

func (f *format) close(dst []byte, u *usage) []byte {
	if u != nil {
		dst = f.usage(append(dst, ','), *u)
	}
	return append(dst, "}\n\n"...)
}

// tail appends the event that carries usage and no choice.
func (f *format) tail(dst []byte, u usage, t timings) []byte {
	dst = append(dst, f.chunk...)
	dst = f.usage(append(dst, `],`...), u)
	return append(f.timings(dst, t), "}\n\n"...)
}

// usage appends `"usage":{...}`.
func (f *format) usage(dst []byte, u usage) []byte {
	dst = append(dst, `"usage":{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.prompt), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.prompt+u.output), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.output), 10)
	switch {
	case f.hide || f.engine == SGLang && u.cached == 0: // SGLang leaves zero out
	default:
		dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
		dst = append(strconv.AppendInt(dst, int64(u.cached), 10), '}')
	}
	return append(dst, '}')
}

// timings are llama.cpp's figures of one request.
type timings struct {
	usage
	prefill, decode time.Duration
}

func (f *format) timings(dst []byte, t timings) []byte {
	if f.engine != LlamaCpp {
		return dst
	}
	fresh := t.prompt - t.cached
	b, _ := json.Marshal(map[string]any{
		"cache_n": t.cached, "prompt_n": fresh, "prompt_ms": ms(t.prefill), "prompt_per_second": perSecond(fresh, t.prefill),
		"predicted_n": t.output, "predicted_ms": ms(t.decode), "predicted_per_second": perSecond(t.output, t.decode),
	})
	return append(append(dst, `,"timings":`...), b...)
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// choice appends one choice of a whole answer.
func (f *format) choice(dst []byte, i int, g *generator, tokens int) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(i), 10)
	finish, end := g.finishReason(), `"`
	switch {
	case f.tool != nil:
		dst = f.call(append(dst, `,"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{`...), i)
		finish, end = "tool_calls", `\"}"}}],"reasoning_content":null}`
	case f.kind == formatChat:
		dst = append(dst, `,"message":{"role":"assistant","content":"`...)
		end = `","refusal":null,"tool_calls":[],"reasoning_content":null}`
	default:
		dst = append(dst, `,"text":"`...)
	}
	start := len(dst)
	for k := range tokens {
		dst = g.appendPiece(dst, k)
	}
	dst = dst[:start+len(g.visible(dst[start:], 0))]
	dst = append(append(dst, end...), `,"logprobs":null,"finish_reason":"`...)
	dst = append(dst, finish...)
	return append(stopReason(append(dst, '"'), g.stop), '}')
}

// stopReason appends vLLM's member that names the stop sequence.
func stopReason(dst []byte, stop string) []byte {
	if dst = append(dst, `,"stop_reason":`...); stop == "" {
		return append(dst, "null"...)
	}
	return append(dst, jsonString(stop)...)
}

func (g *generator) finishReason() string {
	if g.eos || g.stop != "" {
		return "stop"
	}
	return "length"
}

const defaultDimensions = 64

// embeddings writes the answer to /v1/embeddings: vectors of unit length that are
// a function of the prompt.
func embeddings(rec *RequestRecord, gens []generator, dims int, asBase64 bool, u usage) []byte {
	if dims <= 0 {
		dims = defaultDimensions
	}
	type item struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	data := make([]item, len(gens))
	for i := range gens {
		v := make([]float32, dims)
		var norm float64
		for k := range v {
			v[k] = float32(int32(mix(gens[i].seed+uint64(k))>>32)) / (1 << 31)
			norm += float64(v[k]) * float64(v[k])
		}
		for k := range v {
			v[k] /= float32(math.Sqrt(norm))
		}
		data[i] = item{"embedding", i, v}
		if asBase64 {
			raw := make([]byte, 0, 4*dims)
			for _, x := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			data[i].Embedding = base64.StdEncoding.EncodeToString(raw)
		}
	}
	b, err := json.Marshal(map[string]any{
		"id": rec.ID, "object": "list", "created": rec.Arrival.Unix(), "model": rec.Model, "data": data,
		"usage": map[string]any{"prompt_tokens": u.prompt, "total_tokens": u.prompt, "completion_tokens": 0, "prompt_tokens_details": nil},
	})
	if err != nil {
		panic(err) // finite numbers and strings only
	}
	return b
}
