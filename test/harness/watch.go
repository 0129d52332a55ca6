package harness

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Log keeps what is logged, to be read while it is written. The zero value keeps all
// of it. Safe for concurrent use.
type Log struct {
	Keep int // bytes of its end that are kept at least; 0: all

	mu  sync.Mutex
	buf []byte // guarded by mu
}

// Write takes a piece of the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Keep > 0 && len(l.buf) > 2*l.Keep {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-l.Keep:]...)
	}
	l.buf = append(l.buf, p...)
	return len(p), nil
}

// String is what is kept, in UTF-8.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := 0
	if l.Keep > 0 {
		from = max(0, len(l.buf)-l.Keep)
	}
	return strings.ToValidUTF8(string(l.buf[from:]), "?")
}

// Until polls, and ends the test when ok does not come within bound.
func Until(t testing.TB, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, bound)
		}
		<-time.After(5 * time.Millisecond)
	}
}
