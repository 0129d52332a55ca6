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
				})
				runtime.KeepAlive(x)
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

func showMemory(w io.Writer, res *result) {
	var rows [][]string
	for _, r := range res.Memory {
		rows = append(rows, []string{r.Corpus, fmt.Sprint(r.Prompts), fmt.Sprint(r.Replicas), r.Index, table.Num(r.MB), table.Num(r.PerPrompt), table.Num(r.Snapshot)})
	}
	table.Print(w, "Memory of an index without bounds, and what a router that knows nothing must be told. Every prompt is at the replica of its session.", 1,
		[]string{"corpus", "prompts", "replicas", "index", "heap MB", "B/prompt", "snapshot MB"}, rows)
}
