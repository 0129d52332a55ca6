package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// maxBody bounds what is read of an engine's answer, bytes. vLLM's /metrics is
// about 60 kB.
const maxBody = 8 << 20

// maxProfiles bounds the base URLs remembered. Past it one of them is forgotten,
// which costs a detection.
const maxProfiles = 1 << 14

// Reader reads engines over HTTP. Safe for concurrent use.
type Reader struct {
	client *http.Client
	key    func(pool string) string

	mu       sync.Mutex
	profiles map[string]profile // guarded by mu; by base URL
}

// profile is what is known of the process behind a base URL.
type profile struct {
	kind    state.EngineKind // as detected; "" = not yet
	version string
	started float64 // its start; another one is another process
	health  string  // generic: the path that tells whether it lives

	info         info // capacity that does not change while it lives
	noLoads      bool // SGLang: /v1/loads is not there
	noMetrics    bool // llama.cpp: started without --metrics
	noSlots      bool // llama.cpp: started with --no-slots
	clock        offset
	clockChecked bool

	lora     bool      // it was started for adapters
	served   served    // that it lists
	servedAt time.Time // when it was asked; zero = never
}

// another is the profile of a new process at the same place: only the host's clock
// stays.
func (p *profile) another() profile {
	return profile{clock: p.clock, clockChecked: p.clockChecked}
}

// NewReader returns a reader that sends requests with client, which sets the
// connection limits, and must not follow redirects to other hosts. key gives the
// credential for a pool's engines, or "".
func NewReader(client *http.Client, key func(pool string) string) *Reader {
	return &Reader{client: client, key: key, profiles: map[string]profile{}}
}

// errStatus is an answer other than 200.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("engine answered status %d", int(e)) }

// statusOf is the status of an answer that is an error, or 0.
func statusOf(err error) int {
	var st errStatus
	if errors.As(err, &st) {
		return int(st)
	}
	return 0
}

// Read asks the process that the replicas are ranks of for their load, within
// ctx, and returns a reading of each in the same order. All have one URL. When it
// can't be read OK is false and Err says why in a few words. The caller stamps
// them.
func (rd *Reader) Read(ctx context.Context, ranks []state.Replica) []state.Reading {
	if len(ranks) == 0 {
		return nil
	}
	url := ranks[0].URL
	rd.mu.Lock()
	p := rd.profiles[url]
	rd.mu.Unlock()

	s := &session{rd: rd, ctx: ctx, ranks: ranks, p: p}
	known := p.started
	s.read()
	if s.err == nil && known > 0 && s.p.started != known {
		// Another process: what was remembered of the old one may be wrong, its kind
		// included.
		s.p = s.p.another()
		s.read()
	}
	if gone(s.err) {
		s.p = s.p.another()
	}
	rd.mu.Lock()
	if _, ok := rd.profiles[url]; !ok && len(rd.profiles) >= maxProfiles {
		for u := range rd.profiles {
			delete(rd.profiles, u)
			break
		}
	}
	rd.profiles[url] = s.p
	rd.mu.Unlock()
	return s.out
}

// noAnswer is an error with which no answer came, or not all of it.
type noAnswer struct{ error }

func (e noAnswer) Unwrap() error { return e.error }

// answered reports whether an error is about an answer. A gateway's word that it
// reached nobody is none.
func answered(err error) bool {
	switch statusOf(err) {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return false
	}
	return !errors.As(err, &noAnswer{})
}

// advice says what may mend it that an engine answers and can't be read.
func advice(err error) string {
	switch statusOf(err) {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ": does its pool need an api_key_env?"
	case 0, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return ": if it has no metrics, set its pool's engine to openai"
	}
	return ""
}

// gone reports whether an error means that the process is not there, starts anew, or
// is no longer what it was. A busy one that does not answer in time is none of that.
func gone(err error) bool {
	switch statusOf(err) {
	case http.StatusServiceUnavailable, http.StatusNotFound:
		return true
	case 0:
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
	}
	return false
}

// session is one reading. It belongs to one goroutine, but for get.
type session struct {
	rd    *Reader
	ctx   context.Context
	ranks []state.Replica
	p     profile
	out   []state.Reading // len = len(ranks)
	err   error

	at   time.Time // when the last answer came
	date time.Time // its Date; zero = none
}

// read asks once, with what p remembers.
func (s *session) read() {
	s.out = s.out[:0]
	for i := range s.ranks {
		s.out = append(s.out, state.UnknownReading(s.ranks[i].ID))
	}
	if s.kind() == "" {
		s.p.kind, s.p.version, s.err = s.detect()
	}
	kind := s.kind()
	if kind != "" {
		switch kind {
		case state.EngineVLLM:
			s.err = s.readVLLM()
		case state.EngineSGLang:
			s.err = s.readSGLang()
		case state.EngineLlamaCpp:
			s.err = s.readLlamaCpp()
		default: // alive is all that can be known
			s.err = s.readGeneric()
		}
	}
	s.noteModels(kind)
	for i := range s.out {
		s.finish(&s.out[i], kind)
	}
}

// anthropicVersion is the version of Anthropic's API that is spoken.
const anthropicVersion = "2023-06-01"

// kind is the kind of engine: as it was set, or as it was found; "" while neither is
// known.
func (s *session) kind() state.EngineKind {
	if k := s.ranks[0].Engine; k != "" && k != state.EngineAuto {
		return k
	}
	return s.p.kind
}

// finish says of a reading how it went.
func (s *session) finish(r *state.Reading, kind state.EngineKind) {
	r.Kind = kind
	if r.Version == "" {
		r.Version = s.p.version
	}
	if s.err == nil {
		r.OK = true
		s.p.served.fill(r)
		if r.Started > 0 {
			s.p.started = r.Started
			if r.Uptime = s.p.uptime(r.Started, s.at); r.Uptime >= 0 {
				r.Uptime += time.Since(s.at) // it grew while the models were asked for
			}
		}
		return
	}
	loading, err := r.Loading, s.err
	*r = state.UnknownReading(r.Replica)
	r.Kind, r.Err = kind, short(err)
	// It answered. 503 is how engines say "loading" or "sleeping"; any other status
	// means only that it can't be read.
	r.Loading = loading || statusOf(err) == http.StatusServiceUnavailable
	r.Refused = errors.Is(err, syscall.ECONNREFUSED)
	if r.Answered = !r.Loading && answered(err); r.Answered {
		r.Err += advice(err)
	}
}

// ask fetches a path and notes the engine's clock.
func (s *session) ask(path string) ([]byte, error) {
	body, date, err := s.get(s.ctx, path)
	s.at, s.date = time.Now(), date
	if !date.IsZero() {
		s.p.noteClock(date, s.at)
	}
	return body, err
}

// get fetches one path, whole and bounded; what came with another status than 200 is
// returned with the error. It changes nothing and may be called
// side by side.
func (s *session) get(ctx context.Context, path string) (body []byte, date time.Time, err error) {
	r := &s.ranks[0]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		return nil, date, err
	}
	k := s.rd.key(r.Pool)
	switch {
	case s.kind() == state.EngineAnthropic:
		req.Header.Set("X-Api-Key", k)
		req.Header.Set("Anthropic-Version", anthropicVersion)
	case k != "":
		req.Header.Set("Authorization", "Bearer "+k)
	}
	resp, err := s.rd.client.Do(req)
	if err != nil {
		return nil, date, noAnswer{err}
	}
	defer func() { _ = resp.Body.Close() }()
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		date = t
	}
	size := min(max(0, resp.ContentLength), maxBody)
	body, err = readAll(io.LimitReader(resp.Body, maxBody), int(size))
	if err != nil {
		return nil, date, noAnswer{err}
	}
	if resp.StatusCode != http.StatusOK {
		return body, date, errStatus(resp.StatusCode)
	}
	return body, date, nil
}

// readAll is io.ReadAll with room for what is expected.
func readAll(r io.Reader, expected int) ([]byte, error) {
	b := make([]byte, 0, max(512, expected+1))
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return b, err
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// short makes an error fit for a status line: one line, bounded, without the URL
// that net/http puts in front.
func short(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timed out"
	}
	s := err.Error()
	if i := strings.LastIndex(s, "\": "); i >= 0 {
		s = s[i+3:]
	}
	return s[:min(len(s), 120)]
}
