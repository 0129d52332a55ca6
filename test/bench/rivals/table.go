package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// table prints aligned columns, the first so many to the left, in a form that is
// Markdown too.
func table(w io.Writer, title string, left int, head []string, rows [][]string) {
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

// num formats with about three significant digits.
func num(v float64) string {
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

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// cpuTime is what the process has used so far, collection of garbage included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// quantile is that of sorted values; 0 without any.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	return quantile(s, 0.5)
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}
