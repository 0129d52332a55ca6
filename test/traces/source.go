package traces

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Source yields requests in order of At. Next returns io.EOF after the last request, and any other error when the trace cannot
// be read further. A Source belongs to one goroutine; the requests it returned stay valid and belong to the caller.
type Source interface {
	Next() (*Request, error)
}

// Scale multiplies src's arrival rate by factor: every due time is divided by it. The factor must be above 0; otherwise Next
// reports it.
func Scale(src Source, factor float64) Source {
	return &scaled{src: src, factor: factor}
}

type scaled struct {
	src    Source
	factor float64
}

func (s *scaled) Next() (*Request, error) {
	if !(s.factor > 0) || math.IsInf(s.factor, 0) {
		return nil, fmt.Errorf("rate factor is %v, want above 0", s.factor)
	}
	r, err := s.src.Next()
	if err != nil {
		return nil, err
	}
	at := float64(r.At) / s.factor
	if at > float64(time.Duration(maxRecordedMS)*time.Millisecond) {
		return nil, fmt.Errorf("at rate %v a request is due after %.0f years: give a higher one", s.factor, at/float64(365*24*time.Hour))
	}
	r.At = time.Duration(at)
	return r, nil
}

// Head ends src after its first n requests.
func Head(src Source, n int) Source {
	return &head{src: src, left: n}
}

type head struct {
	src  Source
	left int
}

func (h *head) Next() (*Request, error) {
	if h.left <= 0 {
		return nil, io.EOF
	}
	h.left--
	return h.src.Next()
}

// Window keeps the requests due in [from, to) and moves them to start at 0. A to of 0 means no end.
func Window(src Source, from, to time.Duration) Source {
	return &window{src: src, from: from, to: to}
}

type window struct {
	src      Source
	from, to time.Duration
}

func (w *window) Next() (*Request, error) {
	for {
		r, err := w.src.Next()
		if err != nil {
			return nil, err
		}
		if r.At < w.from {
			r.Conversation.Finish(r.Turn, "") // nobody will send it: the turns that stay must not wait for it
			continue
		}
		if w.to > 0 && r.At >= w.to {
			return nil, io.EOF
		}
		r.At -= w.from
		return r, nil
	}
}

// Slice is a Source over requests held in memory, in the order given.
func Slice(requests ...*Request) Source {
	return &slice{rest: requests}
}

type slice struct{ rest []*Request }

func (s *slice) Next() (*Request, error) {
	if len(s.rest) == 0 {
		return nil, io.EOF
	}
	r := s.rest[0]
	s.rest = s.rest[1:]
	return r, nil
}

// Stats describes a whole trace.
type Stats struct {
	Requests     int           // rows read
	Duration     time.Duration // due time of the last request
	InputTokens  int64         // sum over requests
	OutputTokens int64         // sum over requests
	// IdealHit is the share of prompt parts that a cache without limits would have held when the request came: the leading
	// parts of the prompt that some earlier request carried, over all parts. Parts of a Mooncake row are its 512-token blocks.
	IdealHit float64
}

// Rate is the mean arrival rate in requests per second, 0 for a trace without duration.
func (s Stats) Rate() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return float64(s.Requests) / s.Duration.Seconds()
}

// Summarize reads src to its end. It remembers the id of every part (8 bytes each and the map's own cost), so its memory does
// grow with the trace: a few megabytes for the embedded ones.
func Summarize(src Source) (Stats, error) {
	var s Stats
	var parts, hits int64
	seen := make(map[uint64]struct{})
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			if parts > 0 {
				s.IdealHit = float64(hits) / float64(parts)
			}
			return s, nil
		}
		if err != nil {
			return s, err
		}
		s.Requests++
		s.Duration = max(s.Duration, r.At)
		s.InputTokens += int64(r.InputTokens)
		s.OutputTokens += int64(r.OutputTokens)
		warm := true
		for _, m := range r.Messages {
			for _, p := range m.Parts {
				parts++
				if _, ok := seen[p.ID]; !ok {
					warm = false
					seen[p.ID] = struct{}{}
				}
				if warm {
					hits++
				}
			}
		}
	}
}
