package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// show prints all there is, and writes it as Markdown.
func (res *results) show(o *options) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", res.Command)
	if len(res.Bytes) > 0 {
		showBytes(&b, res.Bytes)
		showParts(&b, res.Bytes)
	}
	if fits(res.Bytes) {
		how := "whole clusters in virtual time, the simulated network's own in the place of the kernel's"
		if o.real {
			how = "whole clusters over loopback sockets, the kernel's part included"
		}
		if err := showLinear(&b, "CPU of a router but for its proxy, a second: "+how,
			"CPU times", "us", 1e-6, res.Bytes, cpuTerms, func(f *figures) float64 { return f.CPU }); err != nil {
			return err
		}
	}
	if fits(res.Memory) {
		if err := showLinear(&b, "Memory of a router but for its proxy and what its sketch holds: live heap and stacks of idle routers in one process, over loopback sockets",
			"memory sizes", "kB", 1e3, res.Memory, memoryTerms, func(f *figures) float64 { return f.Heap + f.Stack }); err != nil {
			return err
		}
	}
	if len(res.Loops) > 0 {
		showLoops(&b, res.Loops)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil { // where all cells were kept nothing has made it
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "cost.md"), b.Bytes(), 0o644); err != nil {
		return err
	}
	_, err := os.Stdout.Write(b.Bytes())
	return err
}

// fits says that there are enough cells for fitting.
func fits(list []figures) bool {
	n := 0
	for i := range list {
		if list[i].Set == fitSet {
			n++
		}
	}
	return n > len(cpuTerms)
}

func showBytes(w io.Writer, list []figures) {
	var rows [][]string
	for i := range list {
		f := &list[i]
		p := f.predicted()
		rows = append(rows, append(f.names(),
			table.Num(f.Sent.total()/1e3), table.Num(p.Total()/1e3), fmt.Sprintf("%.2f", f.Sent.total()/p.Total()),
			table.Num(f.MostOut/1e3), table.Num(f.RowsP50), table.Num(f.RowsP99), table.Num(f.OpsP50), table.Num(f.OpsP99),
			fmt.Sprint(f.Dropped), table.Num(f.Seconds), fmt.Sprintf("%.0f", f.Took),
		))
	}
	table.Print(w, "What a router sends, and how late others know: rows and ops from the event at one router to its effect at another", 1, append(slices.Clone(names),
		"kB/s out", "predicted", "measured / predicted", "most of one router", "rows p50 ms", "p99", "ops p50 ms", "p99", "dropped", "measured s", "took s",
	), rows)
	showErrors(w, "bytes", list, func(f *figures) (float64, float64) {
		p := f.predicted()
		return f.Sent.total(), p.Total()
	})
}

// names head what cells are called by.
var names = []string{"cells", "routers", "replicas", "requests/s and router", "new marks", "streams"}

func (f *figures) names() []string {
	return []string{f.Set, fmt.Sprint(f.Routers), fmt.Sprint(f.Replicas), table.Num(f.Requests), fmt.Sprint(f.Links), table.Num(f.Streams)}
}

// showErrors tells how far off a prediction is at worst.
func showErrors(w io.Writer, what string, list []figures, get func(*figures) (measured, predicted float64)) {
	for _, set := range []string{fitSet, heldSet} {
		worst, at, n := 0.0, "", 0
		for i := range list {
			f := &list[i]
			if f.Set != set {
				continue
			}
			n++
			m, p := get(f)
			if off := max(m/p, p/m) - 1; off > worst {
				worst, at = off, f.String()
			}
		}
		if n > 0 {
			fmt.Fprintf(w, "\nThe %s of the %d %s cells are within %s of the formula (worst: %s).\n", what, n, set, table.Percent(worst), at)
		}
	}
}

// showParts tells of what the bytes are made, per stream.
func showParts(w io.Writer, list []figures) {
	var rows [][]string
	for i := range list {
		f := &list[i]
		s, p := f.Sent, f.predicted()
		row := []string{f.String()}
		for _, x := range []struct{ measured, predicted float64 }{
			{s.Rows, p.Rows},
			{s.Ops, p.Ops},
			{s.Readings, p.Readings},
			{s.Lessons, p.Lessons},
			{s.Beacons, p.Beacons},
			{s.pings(), p.Pings},
			{seal * s.Records, p.Seals},
		} {
			row = append(row, fmt.Sprintf("%.0f / %.0f", x.measured/f.Streams, x.predicted/f.Streams))
		}
		rows = append(rows, append(row,
			fmt.Sprintf("%.0f / %.0f", s.Member, p.Members), table.Num(s.RowsN/f.Streams), table.Num(s.OpsN/f.Streams),
			table.Num(s.ReadingsN/f.Streams), table.Num(s.LessonsN/f.Streams), table.Num(s.Records/f.Streams), table.Num(s.Packets),
		))
	}
	table.Print(w, "Of what that consists: bytes a second on one stream, measured / predicted, and numbers a second", 1, []string{
		"routers:replicas:rate:marks[:all pairs up to]", "rows", "ops", "readings", "lessons", "beacons", "pings", "seals", "membership (all)",
		"frames of rows", "of ops", "of readings", "of lessons", "records", "datagrams (all)",
	}, rows)
}
