package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// unknownWidth is taken for a terminal that does not tell its width: what they have had
// from the beginning.
const unknownWidth = 80

// liveLine is a terminal's line that is rewritten in place. A nil one shows nothing, so
// that its user need not ask whether there is a terminal. Safe for concurrent use.
type liveLine struct {
	w     io.Writer
	width func() int // columns; it may change at any time

	mu    sync.Mutex // guards what follows
	shown bool       // the line stands, without a line end
	ended bool
}

// newLiveLine makes a line on a terminal; nil where w is none.
func newLiveLine(w io.Writer) *liveLine {
	if !isTerminal(w) {
		return nil
	}
	fd := int(w.(*os.File).Fd())
	return &liveLine{w: w, width: func() int {
		if columns, _, err := term.GetSize(fd); err == nil && columns > 0 {
			return columns
		}
		return unknownWidth
	}}
}

// show rewrites the line with what fit makes of the columns there are. What is too long
// all the same is cut: a line that wraps can't be rewritten. The last column stays free,
// since some terminals wrap when it is taken.
func (l *liveLine) show(fit func(width int) string) {
	if l == nil {
		return
	}
	width := max(1, l.width()-1)
	text := []rune(fit(width))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.shown = true
	_, _ = fmt.Fprintf(l.w, "\r\x1b[K%s", string(text[:min(len(text), width)]))
}

// end ends the line, so that other text can follow; nothing is shown any more.
func (l *liveLine) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown && !l.ended {
		_, _ = fmt.Fprintln(l.w)
	}
	l.ended = true
}
