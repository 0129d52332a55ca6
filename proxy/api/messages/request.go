package messages

import (
	"bytes"
	"slices"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Options say for whom a request is translated.
type Options struct {
	Engine state.EngineKind // of the pool; auto and "" are treated as an engine that is open
}

// Asked is what the translation of the answer needs to know of the request.
type Asked struct {
	Model    string   // as the client named it
	ID       string   // the message's, the caller's to set; "" takes the engine's
	Stream   bool     // the answer is a stream
	Thinking bool     // the client wants to see what the model thought
	Stops    []string // stop_sequences
}

// Request appends the body of a chat completion that asks for the same as body, which is that of POST /v1/messages. A
// fault is returned as *api.Error with the path of the field; dst is then returned as it was. body is not kept.
func Request(dst, body []byte, opts Options) ([]byte, Asked, error) {
	doc := bytes.TrimPrefix(body, []byte("\xEF\xBB\xBF"))
	at := len(body) - len(doc)
	var f fields
	if err := f.read(doc, at); err != nil {
		return dst, Asked{}, err
	}
	w := writer{dst: slices.Grow(dst, len(body)+len(body)/8+256), opts: opts}
	asked, err := w.body(&f)
	if err != nil {
		return dst, Asked{}, err
	}
	return w.dst, asked, nil
}

// fields are the values of a body's top-level fields, nil for those that are not there.
type fields struct {
	values [numFields][]byte
	kept   [][]byte // members this package does not know, name and value as they lie
}

type field uint8

const (
	fieldModel field = iota
	fieldMessages
	fieldSystem
	fieldMaxTokens
	fieldStops
	fieldStream
	fieldTemperature
	fieldTopP
	fieldTopK
	fieldMetadata
	fieldThinking
	fieldTools
	fieldToolChoice
	fieldOutputConfig
	fieldOutputFormat
	fieldContainer
	fieldServers
	numFields
	fieldIgnored = numFields + iota
	fieldTaken
	fieldUnknown
)

// fieldNames are the names of the fields that are read, as messages have them.
var fieldNames = [numFields]string{
	"model", "messages", "system", "max_tokens", "stop_sequences", "stream", "temperature", "top_p", "top_k", "metadata",
	"thinking", "tools", "tool_choice", "output_config", "output_format", "container", "mcp_servers",
}

func fieldOf(name []byte) field {
	switch string(name) {
	case "cache_control", "service_tier", "inference_geo", "context_management", "user_profile_id", "betas",
		"anthropic_version", "anthropic_beta", "speed":
		return fieldIgnored
	case "stop", "n", "user", "stream_options", "max_completion_tokens", "parallel_tool_calls", "response_format",
		"reasoning_effort", "functions", "function_call", "continue_final_message", "add_generation_prompt":
		return fieldTaken
	}
	for f, known := range fieldNames {
		if string(name) == known {
			return field(f)
		}
	}
	return fieldUnknown
}

// read finds the fields and checks the document's syntax, of all that is in it. at is its offset in what the client sent.
func (f *fields) read(doc []byte, at int) error {
	c := scan.New(doc)
	if !c.EnterObject() {
		if c.Pos() == len(doc) {
			return api.BadRequest("", "The request body is empty. Send a JSON object.")
		}
		c.Skip()
		if err := c.End(); err != nil {
			return malformed(err, at)
		}
		return api.BadRequest("", "The request body must be a JSON object.")
	}
	var scratch [48]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		if v.Kind == scan.None {
			break // it sticks
		}
		switch k := fieldOf(key.Text(doc, scratch[:0])); k {
		case fieldIgnored:
		case fieldTaken:
			name := string(key.Text(doc, scratch[:0]))
			return api.BadRequest(name, "'"+name+"' is a field of chat completions, not of messages.")
		case fieldUnknown:
			f.kept = append(f.kept, doc[key.Start:v.End])
		default:
			if f.values[k] != nil {
				return api.BadRequest(fieldNames[k], "'"+fieldNames[k]+"' stands more than once in the request body. Send it once.")
			}
			f.values[k] = v.Raw(doc)
		}
	}
	if err := c.End(); err != nil {
		return malformed(err, at)
	}
	return nil
}

func malformed(err error, at int) error {
	if fault, ok := err.(*scan.Error); ok {
		fault.Offset += at
	}
	return api.Malformed(err)
}

// writer writes a chat completion's body.
type writer struct {
	dst  []byte
	some bool // a message has been written

	level [2]block // the blocks being looked at: of a message, and inside one of its own
	opts  Options
}

func (w *writer) str(s string) { w.dst = append(w.dst, s...) }
func (w *writer) raw(b []byte) { w.dst = append(w.dst, b...) }

// member writes a comma, a name that needs no escapes, and a value; it writes nothing where there is no value.
func (w *writer) member(name string, value []byte) {
	if len(value) == 0 {
		return
	}
	w.str(`,"`)
	w.str(name)
	w.str(`":`)
	w.raw(value)
}

// body writes everything. The messages come right behind the model, so that bodies of one conversation begin alike.
func (w *writer) body(f *fields) (Asked, error) {
	asked, err := w.asked(f)
	if err != nil {
		return asked, err
	}
	w.str(`{"model":`)
	w.raw(f.values[fieldModel])
	w.str(`,"messages":[`)
	continued, err := w.messages(f.values[fieldSystem], f.values[fieldMessages])
	if err != nil {
		return asked, err
	}
	w.str("]")
	if continued && w.opts.Engine != state.EngineOpenAI && w.opts.Engine != state.EngineLlamaCpp {
		w.str(`,"continue_final_message":true,"add_generation_prompt":false`)
	}
	if err := w.sampling(f); err != nil {
		return asked, err
	}
	if asked.Stream {
		w.str(`,"stream":true`)
	}
	for _, step := range [...]func(*fields) error{w.tools, w.output, w.refused} {
		if err := step(f); err != nil {
			return asked, err
		}
	}
	for _, m := range f.kept {
		w.str(",")
		w.raw(m)
	}
	w.str("}")
	return asked, nil
}

// asked reads what the answer's translation needs.
func (w *writer) asked(f *fields) (a Asked, err error) {
	if a.Model = text(f.values[fieldModel]); a.Model == "" {
		return a, api.BadRequest("model", "'model' must be the name of a model; GET /v1/models lists the models.")
	}
	switch v := f.values[fieldStream]; {
	case isTrue(v):
		a.Stream = true
	case !isFalse(v) && !isAbsent(v):
		return a, api.BadRequest("stream", "'stream' must be true or false.")
	}
	thinking := f.values[fieldThinking]
	switch kind := member(thinking, "type"); {
	case isAbsent(thinking):
	case is(kind, "enabled"), is(kind, "adaptive"):
		a.Thinking = !is(member(thinking, "display"), "omitted")
	case !is(kind, "disabled"):
		return a, api.BadRequest("thinking.type", "'thinking.type' must be enabled, adaptive or disabled.")
	}
	stops := f.values[fieldStops]
	if !isAbsent(stops) && !isArray(stops) {
		return a, api.BadRequest("stop_sequences", "'stop_sequences' must be an array of strings.")
	}
	err = elements(stops, func(i int, stop []byte) error {
		if !isString(stop) {
			at := path("stop_sequences", i)
			return api.BadRequest(at, "'"+at+"' must be a string.")
		}
		a.Stops = append(a.Stops, text(stop))
		return nil
	})
	return a, err
}

// sampling writes what bounds and steers the sampling.
func (w *writer) sampling(f *fields) error {
	limit := f.values[fieldMaxTokens]
	if n, ok := scan.Int(limit); !ok || n < 1 {
		return api.BadRequest("max_tokens", "'max_tokens' is required and must be an integer of at least 1.")
	}
	if w.opts.Engine == state.EngineOpenAI {
		w.member("max_completion_tokens", limit)
	} else {
		w.member("max_tokens", limit)
	}
	for _, k := range [...]field{fieldTemperature, fieldTopP, fieldTopK} {
		v := f.values[k]
		if isAbsent(v) {
			continue
		}
		if !isNumber(v) {
			return api.BadRequest(fieldNames[k], "'"+fieldNames[k]+"' must be a number.")
		}
		w.member(fieldNames[k], v)
	}
	if stops := f.values[fieldStops]; isArray(stops) && !isEmpty(stops) {
		w.member("stop", stops)
	}
	switch user := member(f.values[fieldMetadata], "user_id"); {
	case isAbsent(user):
	case isString(user):
		w.member("user", user)
	default:
		return api.BadRequest("metadata.user_id", "'metadata.user_id' must be a string.")
	}
	return nil
}

// output writes the form of the answer and the effort.
func (w *writer) output(f *fields) error {
	config := f.values[fieldOutputConfig]
	format, where := member(config, "format"), "output_config.format"
	if isAbsent(format) {
		format, where = f.values[fieldOutputFormat], "output_format"
	}
	if !isAbsent(format) {
		schema := member(format, "schema")
		if !is(member(format, "type"), "json_schema") || !isObject(schema) {
			return api.BadRequest(where, "'"+where+"' must be of type json_schema and have a schema.")
		}
		w.str(`,"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true`)
		w.member("schema", schema)
		w.str("}}")
	}
	switch effort := member(config, "effort"); {
	case isAbsent(effort):
	case isString(effort):
		w.member("reasoning_effort", effort)
	default:
		return api.BadRequest("output_config.effort", "'output_config.effort' must be a string.")
	}
	return nil
}

// refused refuses what would change the answer and can't be had here.
func (w *writer) refused(f *fields) error {
	for _, k := range [...]field{fieldContainer, fieldServers} {
		if v := f.values[k]; !isAbsent(v) && !isEmpty(v) {
			return api.BadRequest(fieldNames[k], "'"+fieldNames[k]+"' is not supported by this model's engine.")
		}
	}
	return nil
}

// isEmpty says whether an array has no elements.
func isEmpty(raw []byte) bool {
	c := scan.Reread(raw)
	return c.EnterArray() && !c.NextElem()
}
