package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// beatEvery is how often a reader hears a comment, so that nothing between takes the
	// stream for dead.
	beatEvery = 15 * time.Second
	// readerStall is how long a reader may take for one event.
	readerStall = 10 * time.Second
)

// follow serves events as they happen, until the reader leaves or the router stops.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	var kinds []string
	for _, k := range strings.Split(r.URL.Query().Get("kinds"), ",") {
		switch k = strings.TrimSpace(k); {
		case k == "":
		case !slices.Contains(Kinds(), k):
			fail(w, http.StatusBadRequest, "invalid", fmt.Sprintf("no events are called %q: use %s", k, strings.Join(Kinds(), ", ")))
			return
		default:
			kinds = append(kinds, k)
		}
	}
	to := s.events.join(kinds)
	if to == nil {
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, "too_many_readers", fmt.Sprintf("%d read events at this router already, or it stops: try again later", maxReaders))
		return
	}
	defer s.events.leave(to)
	s.look(time.Now()) // what is so already is no event
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	write := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(readerStall))
		_, err := w.Write([]byte(text))
		return err == nil && out.Flush() == nil
	}
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for more := write(": events\n\n"); more; {
		select {
		case <-r.Context().Done():
			return
		case <-to.ended:
			return
		case <-beat.C:
			more = write(": here\n\n")
		case x := <-to.events:
			more = write(asEvent(x))
			if n := s.events.missed(to); n > 0 && more {
				more = write(asEvent(lost(time.Now(), n)))
			}
		}
	}
}

// asEvent is an event as the stream has it.
func asEvent(x Event) string {
	b, err := json.Marshal(x)
	if err != nil {
		return ""
	}
	return "event: " + x.Kind + "\ndata: " + string(b) + "\n\n"
}

// lookEvery is how often it is looked for what has changed, while somebody reads events.
const lookEvery = 250 * time.Millisecond

// watch makes events of what changes, until ctx ends.
func (s *Server) watch(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.look(now)
		}
	}
}
