package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes aligned columns. The first row is the head.
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

func (t *table) row(cells ...any) {
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
