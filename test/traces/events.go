package traces

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EventsConfig says how recorded requests become requests.
type EventsConfig struct {
	Text Text
	Pool string // take only this pool's; "" means all, which must be of one pool
}

// Seen is what was measured of a recorded request.
type Seen struct {
	Queued       time.Duration // in its router's queue
	TTFT         time.Duration // from the pick to the first token; 0 means unknown
	ITL          time.Duration // mean between tokens; 0 means unknown
	CachedTokens int           // below 0 means unknown
	Replica      string
}

const (
	// maxEvents bounds a file of recorded requests, which is held in memory.
	maxEvents = 200_000
	// maxEventMarks bounds the marks of one of them.
	maxEventMarks = 4096
	// maxDepth bounds a mark's depth, bytes.
	maxDepth = 1 << 30
)

// ErrNoRequests says that a file holds events, but none of requests.
var ErrNoRequests = errors.New("no event in it is of kind request: record with 'hearsay events --kinds request -o json'; picks do not say what prompts share")

// Events reads what 'hearsay events --kinds request -o json' printed, one event per line: requests that really came, with
// their times, sizes and the marks of their prompts. Each becomes a request whose text shares as much with the others' as
// the recorded prompts did. Events of other kinds are passed over. All is read before the first request, since an event
// is told when its request ends.
func Events(r io.Reader, cfg EventsConfig) Source { return &events{in: r, cfg: cfg} }

type events struct {
	in     io.Reader
	cfg    EventsConfig
	ready  []*Request
	read   bool
	failed error
	lost   uint64 // events that the reader was too slow for
}

// Next implements Source.
func (e *events) Next() (*Request, error) {
	if !e.read {
		e.read = true
		e.ready, e.failed = e.all()
	}
	switch {
	case e.failed != nil:
		return nil, e.failed
	case len(e.ready) == 0:
		return nil, io.EOF
	}
	r := e.ready[0]
	e.ready = e.ready[1:]
	return r, nil
}

// event is a line of the file, what is needed of it.
type event struct {
	At      time.Time
	Kind    string
	Pool    string
	Replica string
	ID      string `json:"request_id"`
	Prompt  int    `json:"prompt_tokens"`
	Count   uint64
	Record  *struct {
		Queued  float64 `json:"queued_ms"`
		TTFT    float64 `json:"observed_ttft_ms"`
		ITL     float64 `json:"itl_ms"`
		Cached  int     `json:"cached_tokens"`
		Output  int     `json:"output_tokens"`
		Bytes   int     `json:"prompt_bytes"`
		Session string
		Marks   string
	}
}

// depth is a mark: a hash of a prompt's first bytes.
type depth struct {
	bytes int
	hash  uint64
}

// recorded is an event's request before it has text.
type recorded struct {
	event
	marks []depth
}

// all reads the file and makes the requests, in the order in which they came.
func (e *events) all() ([]*Request, error) {
	list, err := e.lines()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b recorded) int { return a.At.Compare(b.At) })
	if span := list[len(list)-1].At.Sub(list[0].At); span > time.Duration(maxRecordedMS)*time.Millisecond {
		return nil, fmt.Errorf("its first request is of %s and its last of %s: is a clock wrong?", list[0].At.Format(time.DateOnly), list[len(list)-1].At.Format(time.DateOnly))
	}
	var tokens, size float64
	for i := range list {
		tokens += float64(list[i].Prompt)
		size += float64(list[i].Record.Bytes)
	}
	perByte := 1 / DefaultBytesPerToken
	if tokens > 0 && size > 0 {
		perByte = tokens / size
	}
	turns := map[uint64]int{}
	out := make([]*Request, 0, len(list))
	for i := range list {
		r := list[i].request(perByte, list[0].At, e.cfg.Text)
		if r.Session != 0 {
			r.Turn = turns[r.Session]
			turns[r.Session]++
		}
		out = append(out, r)
	}
	return out, nil
}

func (e *events) lines() (list []recorded, err error) {
	lines := bufio.NewScanner(e.in)
	lines.Buffer(nil, maxLineBytes)
	pool, others, n := e.cfg.Pool, 0, 1
	for ; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		x, err := parseEvent(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case x.Kind == "lost":
			e.lost += x.Count
			continue
		case x.Record == nil, e.cfg.Pool != "" && x.Pool != e.cfg.Pool:
			others++
			continue
		case pool == "":
			pool = x.Pool
		case x.Pool != pool:
			return nil, fmt.Errorf("line %d: requests of pools %s and %s are in it: name one", n, pool, x.Pool)
		case len(list) == maxEvents:
			return nil, fmt.Errorf("line %d: more than %d requests", n, maxEvents)
		}
		list = append(list, x)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n, readFault(err))
	}
	switch {
	case len(list) == 0 && e.cfg.Pool != "" && others > 0:
		return nil, fmt.Errorf("no request of pool %s: %w", e.cfg.Pool, ErrNoRequests)
	case len(list) == 0:
		return nil, ErrNoRequests
	}
	return list, nil
}

// parseEvent reads one line. The Record of what is no request is nil.
func parseEvent(line []byte) (x recorded, err error) {
	if err := json.Unmarshal(line, &x.event); err != nil {
		return x, jsonFault(err)
	}
	if x.Kind == "" {
		return x, errors.New("it is no event: it has no kind")
	}
	if x.Kind != "request" {
		x.Record = nil
		return x, nil
	}
	r := x.Record
	switch {
	case r == nil:
		return x, errors.New("a request without a record")
	case x.At.IsZero():
		return x, errors.New("a request without a time")
	case x.Prompt < 0 || x.Prompt > maxTokens:
		return x, fmt.Errorf("prompt_tokens %d is out of range", x.Prompt)
	case r.Output < 0 || r.Output > maxTokens:
		return x, fmt.Errorf("output_tokens %d is out of range", r.Output)
	case r.Bytes < 0 || r.Bytes > maxDepth:
		return x, fmt.Errorf("prompt_bytes %d is out of range", r.Bytes)
	}
	for _, ms := range []float64{r.Queued, r.TTFT, r.ITL} {
		if !(ms >= 0 && ms <= float64(maxRecordedMS)) {
			return x, fmt.Errorf("a time of %v ms is out of range", ms)
		}
	}
	x.marks, err = parseMarks(r.Marks, r.Bytes)
	return x, err
}

// parseMarks reads marks no deeper than most.
func parseMarks(text string, most int) (list []depth, err error) {
	at := 0
	for field := range strings.FieldsSeq(text) {
		deep, hash, ok := strings.Cut(field, ".")
		n, err1 := strconv.Atoi(deep)
		h, err2 := strconv.ParseUint(hash, 16, 64)
		switch {
		case !ok || err1 != nil || err2 != nil:
			return nil, fmt.Errorf("%.40q is no mark: want DEPTH.HASH", field)
		case n <= at || n > most:
			return nil, fmt.Errorf("a mark at %d after one at %d, of %d bytes", n, at, most)
		case len(list) == maxEventMarks:
			return nil, fmt.Errorf("more than %d marks", maxEventMarks)
		}
		list, at = append(list, depth{n, h}), n
	}
	return list, nil
}

// request is a request of the same sizes, whose text up to each mark is that of every
// other one with this mark.
func (x *recorded) request(perByte float64, start time.Time, text Text) *Request {
	r := &Request{
		At: x.At.Sub(start), OutputTokens: x.Record.Output, Text: text,
		Seen: &Seen{
			Queued: millis(x.Record.Queued), TTFT: millis(x.Record.TTFT), ITL: millis(x.Record.ITL), CachedTokens: x.Record.Cached, Replica: x.Replica,
		},
	}
	if x.Record.Session != "" {
		r.Session = max(1, textID("session "+x.Record.Session))
	}
	var parts []Part
	add := func(id uint64, to int) {
		if n := to - r.InputTokens; n > 0 {
			parts = append(parts, Part{ID: id, Tokens: n})
			r.InputTokens = to
		}
	}
	for _, m := range x.marks {
		add(textID("mark", m.hash), int(math.Round(float64(m.bytes)*perByte)))
	}
	rest := int(math.Round(float64(x.Record.Bytes) * perByte))
	if len(parts) == 0 {
		rest = max(1, x.Prompt) // nothing of it is shared: then its own size is the best there is
	}
	add(textID("rest "+x.ID, uint64(x.At.UnixNano())), min(rest, maxTokens))
	r.Messages = []Message{{Role: "user", Parts: parts}}
	return r
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
