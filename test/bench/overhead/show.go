package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// each collects a figure of one proxy in one cell, by round.
func (res *result) each(cell, proxy string, get func(*row) float64) (out []float64) {
	for i := range res.Rows {
		if r := &res.Rows[i]; r.Cell == cell && r.Proxy == proxy {
			out = append(out, get(r))
		}
	}
	return out
}

func (res *result) mid(cell, proxy string, get func(*row) float64) float64 {
	return table.Median(res.each(cell, proxy, get))
}

// ratio is the median of what a takes of what b takes in the same round, with the
// least and the most.
func (res *result) ratio(cell, a, b string, get func(*row) float64) string {
	of, to := res.each(cell, a, get), res.each(cell, b, get)
	if len(of) == 0 || len(of) != len(to) {
		return ""
	}
	for i := range of {
		of[i] /= to[i]
	}
	if len(of) == 1 {
		return table.Num(of[0])
	}
	return fmt.Sprintf("%s (%s-%s)", table.Num(table.Median(of)), table.Num(slices.Min(of)), table.Num(slices.Max(of)))
}

// loads are the two of a turn.
var loads = []struct {
	name string
	of   func(*row) *figures
}{
	{"closed", func(r *row) *figures { return &r.Closed }},
	{"open", func(r *row) *figures { return &r.Open }},
}

func (res *result) show(w io.Writer) {
	fmt.Fprintf(w, "\n%d cores for each. While nobody asks, CPU us a second:", res.Cores)
	for _, p := range res.Proxies {
		fmt.Fprintf(w, "  %s %s", p, table.Num(res.Idle[p]))
	}
	fmt.Fprintln(w)
	res.showCPU(w, "CPU us of the proxy per request", func(_ string, f *figures) float64 { return f.CPU })
	res.showCPU(w, "The same less what it takes while nobody asks", res.busy)
	res.showLatency(w)
	for _, c := range res.Cells {
		if c.Stream {
			res.showChunks(w, c.Name)
		}
	}
}

// busy is what a proxy took per request beyond what it takes while nobody asks.
func (res *result) busy(proxy string, f *figures) float64 {
	return max(0, f.CPU-res.Idle[proxy]/f.Rate)
}

// showCPU shows a figure of the proxies side by side.
func (res *result) showCPU(w io.Writer, what string, of func(proxy string, f *figures) float64) {
	const ours = "hearsay"
	head := append([]string{"request", "load"}, res.Proxies...)
	var others []string
	for _, p := range res.Proxies {
		if p != ours && slices.Contains(res.Proxies, ours) {
			others = append(others, p)
			head = append(head, ours+" / "+p)
		}
	}
	var rows [][]string
	for _, c := range res.Cells {
		for _, l := range loads {
			cpu := func(r *row) float64 { return of(r.Proxy, l.of(r)) }
			cols := []string{c.Name, l.name}
			for _, p := range res.Proxies {
				cols = append(cols, table.Num(res.mid(c.Name, p, cpu)))
			}
			for _, p := range others {
				cols = append(cols, res.ratio(c.Name, ours, p, cpu))
			}
			rows = append(rows, cols)
		}
	}
	table.Print(w, what+", median of the rounds; ratios within a round, median (least-most)", 2, head, rows)
}

func (res *result) showLatency(w io.Writer) {
	head := []string{"request", "load", "direct: requests/s", "p50", "p99"}
	for _, p := range res.Proxies {
		head = append(head, p+": /s", "p50", "p99")
	}
	var rows [][]string
	for _, c := range res.Cells {
		for _, l := range loads {
			rate := func(r *row) float64 { return l.of(r).Rate }
			p50 := func(r *row) float64 { return l.of(r).P50 }
			p99 := func(r *row) float64 { return l.of(r).P99 }
			d50, d99 := res.mid(c.Name, direct, p50), res.mid(c.Name, direct, p99)
			cols := []string{c.Name, l.name, table.Num(res.mid(c.Name, direct, rate)), table.Num(d50), table.Num(d99)}
			for _, p := range res.Proxies {
				cols = append(cols, table.Num(res.mid(c.Name, p, rate)), plus(res.mid(c.Name, p, p50)-d50), plus(res.mid(c.Name, p, p99)-d99))
			}
			rows = append(rows, cols)
		}
	}
	table.Print(w, "Latency, us: direct, and what a proxy adds to it (of a stream, to its first chunk). In the closed loop client, engine and proxy compete for the same cores: the open one counts.", 2, head, rows)
}

func (res *result) showChunks(w io.Writer, cell string) {
	var rows [][]string
	for _, l := range loads {
		p50 := func(r *row) float64 { return l.of(r).ChunkP50 }
		p99 := func(r *row) float64 { return l.of(r).ChunkP99 }
		d50, d99 := res.mid(cell, direct, p50), res.mid(cell, direct, p99)
		for _, p := range append([]string{direct}, res.Proxies...) {
			per := func(get func(*figures) float64) string {
				return table.Num(res.mid(cell, p, func(r *row) float64 { return get(l.of(r)) }) / chunks)
			}
			cols := []string{l.name, p, table.Num(d50), table.Num(d99), "", per(func(f *figures) float64 { return f.Segments }), ""}
			if p != direct {
				cols[2], cols[3] = plus(res.mid(cell, p, p50)-d50), plus(res.mid(cell, p, p99)-d99)
				cols[4], cols[6] = per(func(f *figures) float64 { return f.CPU }), per(func(f *figures) float64 { return f.Writes })
			}
			rows = append(rows, cols)
		}
	}
	table.Print(w, fmt.Sprintf("%s: per chunk; delay from the engine's sending to the client's receiving, us, with a proxy what it adds. Writes: write and writev to either side; send, which HAProxy uses, is not counted by the kernel.", cell), 2,
		[]string{"load", "proxy", "delay p50", "p99", "CPU us", "segments received", "writes"}, rows)
}

func plus(v float64) string {
	if v < 0 {
		return "-" + table.Num(-v)
	}
	return "+" + table.Num(v)
}
