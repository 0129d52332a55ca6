package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
)

// pressure are the columns of what waits for pools and was refused.
var pressure = []string{"waiting", "est. wait", "refused/min"}

// isPressed reports whether requests wait for a pool, or were refused lately.
func isPressed(p console.Pool) bool { return p.Waiting > 0 || len(p.Refused) > 0 }

// waiting is how many requests wait for a pool, and those of the asked router by priority.
func waiting(p *console.Pool) string {
	var here []string
	for _, b := range state.BandsInOrder() {
		if n := p.Here[b.String()]; n > 0 {
			here = append(here, fmt.Sprintf("%d %s", n, b))
		}
	}
	if len(here) == 0 {
		return fmt.Sprint(p.Waiting)
	}
	return fmt.Sprintf("%d (here %s)", p.Waiting, strings.Join(here, ", "))
}

// expected is what a request that comes now would wait for a pool.
func expected(p *console.Pool) string {
	if p.WaitMS < 0 {
		return "no replica"
	}
	if p.WaitMS == 0 {
		return "-"
	}
	return millis(p.WaitMS)
}

// reasons are counts by reason, the most frequent first.
func reasons(counts map[string]int64) string {
	var list []string
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		list = append(list, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(list, ", ")
}

// printPressure says what waits for the pools, or the one named, and what was refused,
// where anything does or was.
func (a *admin) printPressure(ctx context.Context, w io.Writer, pool string) error {
	var list []console.Pool
	if _, err := a.call(ctx, "GET", "pools", nil, &list); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(p console.Pool) bool { return !isPressed(p) || pool != "" && p.Name != pool })
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable("pool")
	t.more(pressure...)
	for _, p := range list {
		t.row(p.Name, waiting(&p), expected(&p), reasons(p.Refused))
	}
	return t.write(w)
}
