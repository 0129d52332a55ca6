// Package table prints the figures of the benchmarks below test/bench: aligned for
// a terminal, and Markdown as they are.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Print writes a title and rows under a head; the first left columns are aligned to
// the left, the others to the right. All rows are as long as head.
func Print(w io.Writer, title string, left int, head []string, rows [][]string) {
	width := make([]int, len(head))
	for _, r := range append([][]string{head}, rows...) {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	fmt.Fprintf(w, "\n%s\n\n", title)
	line := func(r []string) {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i < left {
				fmt.Fprintf(w, "| %s%s ", c, pad)
			} else {
				fmt.Fprintf(w, "| %s%s ", pad, c)
			}
		}
		fmt.Fprintln(w, "|")
	}
	line(head)
	for i := range head {
		dashes := strings.Repeat("-", width[i]+1)
		if i < left {
			fmt.Fprintf(w, "|%s-", dashes)
		} else {
			fmt.Fprintf(w, "|%s:", dashes)
		}
	}
	fmt.Fprintln(w, "|")
	for _, r := range rows {
		line(r)
	}
}

// Num formats with about three significant digits.
func Num(v float64) string {
	switch a := max(v, -v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// Percent formats a share.
func Percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// Quantile is that of sorted values, by the nearest rank; 0 without any.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// Median is that of values in any order; 0 without any.
func Median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	return Quantile(s, 0.5)
}

// Mean is 0 without values.
func Mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

// Save writes v as indented JSON into a directory, made if needed.
func Save(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644)
}
