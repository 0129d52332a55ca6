package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// memoryRow is what an index without bounds keeps after so many prompts.
type memoryRow struct {
	Corpus    string  `json:"corpus"`
	Index     string  `json:"index"`
	Prompts   int     `json:"prompts"`
	Replicas  int     `json:"replicas"`
	MB        float64 `json:"heap_mb"`
	PerPrompt float64 `json:"bytes_per_prompt"`
	Snapshot  float64 `json:"snapshot_mb"` // what a new router must be told
	Match     float64 `json:"match_us"`    // CPU time of matching prompts picked all over
}

// heap is what is reachable.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func memory(o *options, res *result, name string) error {
	counts := []int{10_000, 100_000}
	switch {
	case name == "mooncake": // prompts are five times as long
		counts = []int{3_000, 10_000}
	case name != "chat":
		counts = counts[:1]
	}
	if o.quick {
		counts = []int{counts[0] / 5}
	}
	for _, n := range counts {
		prompts, err := load(name, n, o.seed)
		if err != nil {
			return err
		}
		for _, replicas := range []int{8, 64} {
			for _, c := range contestants {
				before := heap()
				x := c.make(replicas)
				fill(x, prompts, replicas)
				size := heap() - before
				res.Memory = append(res.Memory, memoryRow{
					Corpus: name, Index: c.name, Prompts: len(prompts), Replicas: replicas,
					MB: size / 1e6, PerPrompt: size / float64(len(prompts)), Snapshot: float64(x.snapshot()) / 1e6,
					Match: matchAllOver(x, prompts, replicas),
				})
			}
		}
		runtime.KeepAlive(prompts)
	}
	return nil
}

func fill(x index, prompts []*prompt, replicas int) {
	var pr prepared
	dst := make([]float64, replicas)
	start := time.Now()
	for _, p := range prompts {
		p.render()
		x.prepare(&pr, p)
		x.match(dst, &pr, start.Add(p.at))
		x.insert(&pr, int(p.session*0x9e3779b97f4a7c15>>32)%replicas, start.Add(p.at), nil)
		p.drop()
	}
}

// matchAllOver is what a match costs in a full index, of prompts that are not in the
// processor's caches because they were matched just before.
func matchAllOver(x index, prompts []*prompt, replicas int) float64 {
	const some = 1000
	n := min(some, len(prompts))
	list := make([]prepared, n)
	for i := range list {
		p := prompts[i*len(prompts)/n]
		p.render()
		x.prepare(&list[i], p)
	}
	dst := make([]float64, replicas)
	now := time.Now()
	runtime.GC() // not meanwhile
	begin := cpuTime()
	for i := range list {
		x.match(dst, &list[i], now)
	}
	took := cpuTime() - begin
	for i := range list {
		list[i].p.drop()
	}
	return float64(took.Nanoseconds()) / 1e3 / float64(n)
}

func showMemory(w io.Writer, res *result) {
	var rows [][]string
	for _, r := range res.Memory {
		rows = append(rows, []string{r.Corpus, fmt.Sprint(r.Prompts), fmt.Sprint(r.Replicas), r.Index, table.Num(r.MB), table.Num(r.PerPrompt), table.Num(r.Snapshot), table.Num(r.Match)})
	}
	table.Print(w, "Memory of an index without bounds, what a router that knows nothing must be told, and the CPU time of a match of 1,000 prompts from all over it. Every prompt is at the replica of its session.", 1,
		[]string{"corpus", "prompts", "replicas", "index", "heap MB", "B/prompt", "snapshot MB", "match us"}, rows)
}
