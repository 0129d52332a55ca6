package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// phases of a load, by how its rate differs ten minutes before and after.
var phases = []string{"steady", "rising", "falling"}

const (
	phaseAround = 10 // min
	phaseChange = 0.1
)

func (w *workload) phase(m int) int {
	before, after := w.rate(max(0, m-phaseAround)*minute), w.rate(min(m+phaseAround, w.length/minute)*minute)
	switch c := after/before - 1; {
	case c > phaseChange:
		return 1
	case c < -phaseChange:
		return 2
	}
	return 0
}

// showPhases shows how many replicas each rule has by phase, first seed.
func (s *study) showPhases(w io.Writer) {
	var rows [][]string
	for _, c := range s.cells {
		var minutes [3]float64
		var sums [4][3]float64
		runs := []*outcome{&c.oracle[0], &c.hearsay[0], nil, nil}
		for i, f := range []string{"HPA", "KPA"} {
			if best := c.best[f]; len(best) > 0 {
				runs[2+i] = &best[0]
			}
		}
		for m := range c.oracle[0].Series {
			at := c.w.phase(m)
			minutes[at]++
			for i, o := range runs {
				if o != nil {
					sums[i][at] += o.Series[m].Replicas
				}
			}
		}
		for at, n := range minutes {
			if n == 0 {
				continue
			}
			r := []string{c.w.name, phases[at], fmt.Sprintf("%.0f", n)}
			for i, o := range runs {
				if r = append(r, ""); o != nil {
					r[3+i] = fmt.Sprintf("%.1f", sums[i][at]/n)
				}
			}
			rows = append(rows, r)
		}
	}
	table.Print(w, "Replicas by phase of the load, mean, first seed", 2, []string{
		"workload", "phase", "minutes", "oracle", "hearsay", "HPA", "KPA",
	}, rows)
}

// looks is what hearsay's loop saw and planned, a line a minute.
type looks [][]string

var looksHead = []string{
	"minute", "rate", "replicas", "serving", "target", "needed", "in_flight", "prefill", "output", "ahead_prefill", "ahead_output", "waiting_tokens",
	"cap_requests", "cap_prefill", "cap_output", "correction", "attained", "start_up", "hot", "calm", "fits", "growth", "refusal", "to",
}

func (h *hearsay) look(p *pool) {
	for _, r := range h.loop.Reports() {
		o := &r.Seen
		line := []string{strconv.Itoa(p.now / minute)}
		for _, x := range []float64{
			p.w.rate(p.now), float64(len(p.list)), float64(o.Serving), float64(o.Target), float64(r.Plan.Needed), o.InFlight, o.PrefillRate, o.OutputRate,
			o.Ahead.PrefillRate, o.Ahead.OutputRate, o.PrefillTokens, o.Capacity.Requests, o.Capacity.PrefillRate, o.Capacity.OutputRate, o.Correction,
			o.Attained, o.StartUp.Seconds(), o.HotFor.Seconds(), o.CalmFor.Seconds(), float64(o.Fits), o.Growth,
		} {
			line = append(line, strconv.FormatFloat(math.Round(1000*x)/1000, 'f', -1, 64))
		}
		h.looks = append(h.looks, append(line, r.Refusal, fmt.Sprint(r.Plan.To)))
	}
}

// save writes the lines, and which minutes were violated.
func (l looks) save(dir, name string, bad []bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	_ = w.Write(append(looksHead, "violated"))
	for _, line := range l {
		m, _ := strconv.Atoi(line[0])
		_ = w.Write(append(line, fmt.Sprint(m < len(bad) && bad[m])))
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return f.Close()
}
