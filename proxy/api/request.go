package api

import (
	"strings"
	"sync"

	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// Endpoint is what a path asks for, as far as reading the body is concerned.
type Endpoint uint8

// The endpoints. Other is any path with a model in its JSON body: routed and counted as load, not matched by prefix.
const (
	Other Endpoint = iota
	Chat
	Completions
	Embeddings
	Models
	Responses // OpenAI's Responses: POST /v1/responses
	Stored    // one response that is kept: /v1/responses/{id}, and what is below it
	Messages  // Anthropic's Messages: POST /v1/messages
	Count     // POST /v1/messages/count_tokens: how long a prompt of Messages is
)

// passedThrough are paths that replicas are asked at as clients name them. The list is
// closed: engines keep what changes them under such paths, too (/v1/load_lora_adapter),
// and what keeps state with one replica (/v1/files, /v1/batches) needs more than a model.
var passedThrough = map[string]bool{
	// OpenAI
	"/v1/moderations": true, "/v1/images/generations": true, "/v1/images/edits": true,
	"/v1/audio/transcriptions": true, "/v1/audio/translations": true, "/v1/audio/speech": true,
	// vLLM, SGLang and llama.cpp's server, Cohere's and Jina's among them
	"/v1/rerank": true, "/v2/rerank": true, "/rerank": true, "/v1/reranking": true, "/reranking": true, "/v2/embed": true,
	"/v1/score": true, "/score": true, "/v1/classify": true, "/classify": true, "/pooling": true, "/encode": true,
	"/tokenize": true, "/detokenize": true, "/v1/tokenize": true, "/v1/detokenize": true, "/apply-template": true,
	"/generate": true, "/completion": true, "/infill": true,
}

// PassedThrough reports whether a path, whose endpoint is Other, is served: a replica
// gets the body as it is, and what it answers is relayed unread but for its usage.
func PassedThrough(path string) bool { return passedThrough[path] }

// EndpointOf returns the endpoint of a request path, which must be free of query and dot segments.
func EndpointOf(path string) Endpoint {
	switch path {
	case "/v1/chat/completions":
		return Chat
	case "/v1/completions":
		return Completions
	case "/v1/embeddings":
		return Embeddings
	case "/v1/models":
		return Models
	case "/v1/messages":
		return Messages
	case "/v1/messages/count_tokens":
		return Count
	case "/v1/responses":
		return Responses
	}
	if strings.HasPrefix(path, "/v1/responses/") {
		return Stored
	}
	if strings.HasPrefix(path, "/v1/models/") {
		return Models
	}
	return Other
}

// String returns the endpoint's name for metrics and logs.
func (e Endpoint) String() string {
	switch e {
	case Chat:
		return "chat"
	case Completions:
		return "completions"
	case Embeddings:
		return "embeddings"
	case Models:
		return "models"
	case Responses:
		return "responses"
	case Stored:
		return "response"
	case Messages:
		return "messages"
	case Count:
		return "count_tokens"
	}
	return "other"
}

// Shape is the shape in which errors are told: that of the API that a client speaks.
func (e Endpoint) Shape() Shape {
	switch e {
	case Messages, Count:
		return Anthropic
	case Responses, Stored:
		return Typed
	}
	return OpenAI
}

// ShapeOf is the shape in which errors are told at a path, one that is not served included.
func ShapeOf(path string) Shape {
	if path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/") {
		return Anthropic
	}
	return EndpointOf(path).Shape()
}

// Span is a part of the body: byte offsets, End exclusive. The zero Span is absent.
type Span struct{ Start, End int }

// Present says whether there is anything.
func (s Span) Present() bool { return s.End > 0 }

// Of returns the span's bytes in body, nil when absent.
func (s Span) Of(body []byte) []byte {
	if !s.Present() {
		return nil
	}
	return body[s.Start:s.End]
}

// Request is what Parse read of a body. Strings are copies; spans refer to the body that was parsed and mean nothing in
// any other, a spliced one included.
type Request struct {
	Endpoint     Endpoint
	Model        string
	Stream       bool
	IncludeUsage bool // the client asked for usage in the stream itself
	MaxTokens    int  // output tokens per choice at most; 0 = not given or not a positive integer
	N            int  // choices asked for, at least 1
	CacheSalt    string
	User         string
	Priority     int // meaning nothing unless HasPriority
	HasPriority  bool
	Tier         Tier // of service_tier

	Template, TemplateArgs, ReasoningEffort, Documents Span
	Tools, Functions, Messages                         Span
	Prompt                                             Span // prompt of a completion, input of an embedding or a response

	PreviousID              string // of a response: previous_response_id, "" for none
	Background              bool   // of a response: it is asked for later
	Previous, Conversation  Span   // of a response: where the history is that the body does not hold; absent for null
	Reference, Instructions Span   // of a response; Reference is its prompt, a template kept elsewhere
	System, Thinking        Span   // of Anthropic's Messages

	longs         scan.Longs // of the body, behind a byte order mark
	runs          *scan.Runs // of those, from the pool; nil: they are not known
	mark          int        // its length
	object        int        // just behind the opening brace
	model         Span       // the value with its quotes
	cacheSalt     Span       // the value, whatever its type
	priority      Span       // the value, whatever its type; absent for null
	tier          Span       // the value
	streamOptions Span       // the value
	includeUsage  Span       // the value inside stream_options

	streamOptionsFields bool // stream_options is an object with at least one field
	empty               bool // the body is an object without fields
	form                bool // the body is a form: values stand as they are
}

// Input is the prompt for prefix.Hasher, which need not check it again. It refers to body, which must be the one that
// was parsed. Its Kind is 0 where the endpoint has no prompt to match by prefix.
func (r *Request) Input(body []byte) prefix.Input {
	in := prefix.Input{Checked: true}
	if len(r.longs) > 0 {
		in.Longs, in.Whole = r.longs, body[r.mark:]
		if r.runs != nil {
			in.Runs = *r.runs
		}
	}
	switch r.Endpoint {
	case Chat:
		in.Kind = prefix.Chat
		in.Template, in.TemplateArgs = r.Template.Of(body), r.TemplateArgs.Of(body)
		in.ReasoningEffort, in.Documents = r.ReasoningEffort.Of(body), r.Documents.Of(body)
		in.Tools, in.Functions, in.Messages = r.Tools.Of(body), r.Functions.Of(body), r.Messages.Of(body)
	case Completions:
		in.Kind, in.Prompt = prefix.Completion, r.Prompt.Of(body)
	case Embeddings:
		in.Kind, in.Prompt = prefix.Embedding, r.Prompt.Of(body)
	case Responses:
		in.Kind = prefix.Responses
		in.Template, in.TemplateArgs = r.Template.Of(body), r.TemplateArgs.Of(body)
		in.ReasoningEffort, in.Documents = r.ReasoningEffort.Of(body), r.Documents.Of(body)
		in.Tools, in.Instructions, in.Prompt = r.Tools.Of(body), r.Instructions.Of(body), r.Prompt.Of(body)
		in.Previous, in.Conversation, in.Reference = r.Previous.Of(body), r.Conversation.Of(body), r.Reference.Of(body)
	case Messages:
		in.Kind = prefix.Messages
		in.TemplateArgs, in.Tools = r.TemplateArgs.Of(body), r.Tools.Of(body)
		in.System, in.Thinking, in.Messages = r.System.Of(body), r.Thinking.Of(body), r.Messages.Of(body)
	}
	return in
}

// Continues reports whether the prompt goes on from what the body does not hold, so that
// its length says nothing of the whole.
func (r *Request) Continues() bool { return r.Previous.Present() || r.Conversation.Present() }

// Settled says that Input is not asked for any more: what it needs is let go.
func (r *Request) Settled() {
	r.Hashed()
	r.longs = nil
}

// Hashed says that no Input is in use any more. Input may be asked for again, and the hasher
// then takes longer. No copy of the request may be used for that.
func (r *Request) Hashed() {
	freeRuns(r.runs)
	r.runs = nil
}

// field is a top-level key that Parse reads.
type field uint8

const (
	fieldNone field = iota
	fieldModel
	fieldStream
	fieldStreamOptions
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldN
	fieldCacheSalt
	fieldUser
	fieldPriority
	fieldTier
	fieldTemplate
	fieldTemplateArgs
	fieldReasoningEffort
	fieldDocuments
	fieldTools
	fieldFunctions
	fieldMessages
	fieldPrompt
	fieldInput
	fieldMaxOutputTokens
	fieldReasoning
	fieldInstructions
	fieldPrevious
	fieldConversation
	fieldSystem
	fieldThinking
	fieldBackground
	fieldCount
)

var fieldNames = [...]string{
	fieldModel:               "model",
	fieldStream:              "stream",
	fieldStreamOptions:       "stream_options",
	fieldMaxTokens:           "max_tokens",
	fieldMaxCompletionTokens: "max_completion_tokens",
	fieldN:                   "n",
	fieldCacheSalt:           "cache_salt",
	fieldUser:                "user",
	fieldPriority:            "priority",
	fieldTier:                "service_tier",
	fieldTemplate:            "chat_template",
	fieldTemplateArgs:        "chat_template_kwargs",
	fieldReasoningEffort:     "reasoning_effort",
	fieldDocuments:           "documents",
	fieldTools:               "tools",
	fieldFunctions:           "functions",
	fieldMessages:            "messages",
	fieldPrompt:              "prompt",
	fieldInput:               "input",
	fieldMaxOutputTokens:     "max_output_tokens",
	fieldReasoning:           "reasoning",
	fieldInstructions:        "instructions",
	fieldPrevious:            "previous_response_id",
	fieldConversation:        "conversation",
	fieldSystem:              "system",
	fieldThinking:            "thinking",
	fieldBackground:          "background",
}

// name is the field's key in the body.
func (f field) name() string { return fieldNames[f] }

func fieldOf(key []byte) field {
	switch string(key) {
	case "model":
		return fieldModel
	case "stream":
		return fieldStream
	case "stream_options":
		return fieldStreamOptions
	case "max_tokens":
		return fieldMaxTokens
	case "max_completion_tokens":
		return fieldMaxCompletionTokens
	case "n":
		return fieldN
	case "cache_salt":
		return fieldCacheSalt
	case "user":
		return fieldUser
	case "priority":
		return fieldPriority
	case "service_tier":
		return fieldTier
	case "chat_template":
		return fieldTemplate
	case "chat_template_kwargs":
		return fieldTemplateArgs
	case "reasoning_effort":
		return fieldReasoningEffort
	case "documents":
		return fieldDocuments
	case "tools":
		return fieldTools
	case "functions":
		return fieldFunctions
	case "messages":
		return fieldMessages
	case "prompt":
		return fieldPrompt
	case "input":
		return fieldInput
	case "max_output_tokens":
		return fieldMaxOutputTokens
	case "reasoning":
		return fieldReasoning
	case "instructions":
		return fieldInstructions
	case "previous_response_id":
		return fieldPrevious
	case "conversation":
		return fieldConversation
	case "system":
		return fieldSystem
	case "thinking":
		return fieldThinking
	case "background":
		return fieldBackground
	}
	return fieldNone
}

// mostLongs bounds the long strings of a body whose places are noted. The hasher looks
// for the rest.
const mostLongs = 1024

// Parse reads a request body. A fault is returned as *Error, ready for the client. The body is read where it lies and
// not kept.
func Parse(ep Endpoint, body []byte) (Request, error) {
	r := Request{Endpoint: ep, N: 1}
	start := 0
	if len(body) >= 3 && body[0] == 0xEF && body[1] == 0xBB && body[2] == 0xBF {
		start = 3
	}
	p := parser{body: body[start:], c: scan.New(body[start:]), at: start, r: &r}
	r.mark = start
	var longs scan.Longs
	var runs *scan.Runs
	if n := min(scan.MostLongs(len(body)), mostLongs); n > 0 {
		longs = make(scan.Longs, 0, n)
		runs = newRuns(len(body))
		p.c.NoteLongs(longs, *runs)
	}
	if err := p.run(); err != nil {
		freeRuns(runs)
		return Request{}, err
	}
	r.longs = longs[:p.c.Noted()]
	if r.runs = runs; runs != nil {
		*runs = (*runs)[:p.c.NotedRuns()]
	}
	return r, nil
}

// mostRuns bounds the runs of a body that are noted: half a MiB of them.
const mostRuns = 256 << 10

var runPool = sync.Pool{New: func() any { return new(scan.Runs) }}

// newRuns are empty ones with room for those of a body of so many bytes.
func newRuns(size int) *scan.Runs {
	r := runPool.Get().(*scan.Runs)
	if n := min(scan.MostRuns(size), mostRuns); cap(*r) < n {
		*r = make(scan.Runs, 0, n)
	}
	return r
}

func freeRuns(r *scan.Runs) {
	if r == nil {
		return
	}
	*r = (*r)[:0]
	runPool.Put(r)
}
