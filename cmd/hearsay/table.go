package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes aligned columns. The first row is the head; cells beyond it are left
// out.
type table struct {
	rows [][]string
}

func newTable(head ...string) *table {
	t := &table{}
	for i := range head {
		head[i] = strings.ToUpper(head[i])
	}
	t.rows = append(t.rows, head)
	return t
}

// wide adds columns that are only shown with -o wide.
func (t *table) wide(o outputFlag, head ...string) *table {
	if o == outputWide {
		t.more(head...)
	}
	return t
}

// more adds columns.
func (t *table) more(head ...string) {
	for _, h := range head {
		t.rows[0] = append(t.rows[0], strings.ToUpper(h))
	}
}

func (t *table) row(cells ...any) {
	cells = cells[:min(len(cells), len(t.rows[0]))]
	out := make([]string, len(cells))
	for i, c := range cells {
		s := strings.Map(printable, fmt.Sprint(c))
		if s == "" {
			s = "-"
		}
		out[i] = s
	}
	t.rows = append(t.rows, out)
}

// printable keeps control characters of foreign text off the terminal.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range t.rows {
		if _, err := fmt.Fprintln(tw, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// unlessZero writes a figure that is never 0 once it is known.
func unlessZero(f float64, write func(float64) string) string {
	if f <= 0 {
		return "?"
	}
	return write(f)
}

// ratio has two decimals.
func ratio(f float64) string { return fmt.Sprintf("%.2f", f) }

// count prints a figure that is unknown when negative.
func count(f float64) string {
	switch {
	case f < 0:
		return "?"
	case f >= 1e6:
		return fmt.Sprintf("%.1fM", f/1e6)
	case f >= 1e4:
		return fmt.Sprintf("%.0fk", f/1e3)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}

// size prints a number of bytes.
func size(n float64) string {
	switch {
	case n < 0:
		return "?"
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", n/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
	return fmt.Sprintf("%.0f B", n)
}

func percent(f float64) string {
	if f < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f%%", 100*f)
}

func millis(ms float64) string {
	if ms < 0 {
		return "?"
	}
	d := time.Duration(ms * float64(time.Millisecond))
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
