package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// speedRow is what one request costs with one index. Times are CPU microseconds.
type speedRow struct {
	Corpus     string  `json:"corpus"`
	Replicas   int     `json:"replicas"`
	Index      string  `json:"index"`
	Prepare    float64 `json:"prepare_us"`
	MatchNew   float64 `json:"match_before_insert_us"` // the prompt as it comes: known as far as earlier ones go
	MatchKnown float64 `json:"match_after_insert_us"`  // the whole prompt is known
	Insert     float64 `json:"insert_us"`
	Request    float64 `json:"request_us"` // prepare, match as it comes, insert
	MBps       float64 `json:"request_mb_per_s"`
	Allocs     float64 `json:"allocations"`
	AllocKB    float64 `json:"allocated_kb"`
}

// prepareRow is what the preparations cost alone, in MB of JSON per CPU second.
type prepareRow struct {
	Corpus   string  `json:"corpus"`
	Marks    float64 `json:"json_to_marks_mbps"`
	Decode   float64 `json:"json_to_text_mbps"`
	Tokenise float64 `json:"tokenise_mbps"`
	Blocks   float64 `json:"hash_blocks_mbps"`
}

var contestants = []struct {
	name string
	make func(replicas int) index
}{
	{"marks (ours)", func(n int) index { return newOurs(n, 1<<26, 1<<33, time.Now()) }},
	{"tree", func(n int) index { return newTreeIndex(n, rule{}) }},
	{"blocks", func(n int) index { return newBlockIndex(n, rule{}) }},
}

// step is how many prompts go through a phase before the clock is read.
const step = 16

// speed measures a corpus. Prompts go to the replica of their session.
func speed(o *options, res *result, name string) error {
	prompts, err := load(name, max(8*step, o.prompts/5), o.seed)
	if err != nil {
		return err
	}
	info := corpusInfo{Name: name, Prompts: len(prompts)}
	for _, c := range corpora {
		if c.name == name {
			info.What = c.what
		}
	}
	var pr prepared
	x := newOurs(1, 0, 0, time.Now())
	for _, p := range prompts {
		p.render()
		x.prepare(&pr, p)
		info.KB += float64(len(p.text)) / 1e3 / float64(len(prompts))
		info.Tokens += float64(p.promptTokens) / float64(len(prompts))
		info.Marks += float64(len(pr.marks)) / float64(len(prompts))
	}
	res.Corpora = append(res.Corpora, info)
	for _, replicas := range []int{8, 64} {
		rounds := make([][]speedRow, len(contestants))
		for range o.rounds {
			for i, c := range contestants {
				rounds[i] = append(rounds[i], pass(c.make(replicas), prompts, replicas, o.seed))
			}
		}
		for i, c := range contestants {
			mid := func(get func(*speedRow) float64) float64 {
				var v []float64
				for k := range rounds[i] {
					v = append(v, get(&rounds[i][k]))
				}
				return table.Median(v)
			}
			r := speedRow{
				Corpus: name, Replicas: replicas, Index: c.name,
				Prepare:    mid(func(r *speedRow) float64 { return r.Prepare }),
				MatchNew:   mid(func(r *speedRow) float64 { return r.MatchNew }),
				MatchKnown: mid(func(r *speedRow) float64 { return r.MatchKnown }),
				Insert:     mid(func(r *speedRow) float64 { return r.Insert }),
				Request:    mid(func(r *speedRow) float64 { return r.Request }),
				Allocs:     mid(func(r *speedRow) float64 { return r.Allocs }),
				AllocKB:    mid(func(r *speedRow) float64 { return r.AllocKB }),
			}
			r.MBps = info.KB * 1e3 / r.Request
			res.Speed = append(res.Speed, r)
		}
	}
	res.Prepare = append(res.Prepare, preparations(name, prompts, o.rounds))
	return nil
}

// pass sends all prompts through an empty index, and returns means per request.
func pass(x index, prompts []*prompt, replicas int, seed uint64) (row speedRow) {
	rng := rand.New(rand.NewPCG(seed, 1))
	dst := make([]float64, replicas)
	batch := make([]prepared, step)
	to := make([]int, step)
	now := time.Now()
	phase := func(sum *float64, f func(i int), n int) {
		begin := cpuTime()
		for i := range n {
			f(i)
		}
		*sum += float64((cpuTime() - begin).Microseconds())
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for at := 0; at < len(prompts); at += step {
		now = now.Add(time.Millisecond)
		some := prompts[at:min(at+step, len(prompts))]
		for i, p := range some {
			to[i] = int(p.session*0x9e3779b97f4a7c15>>32) % replicas
			if rng.IntN(10) == 0 {
				to[i] = rng.IntN(replicas)
			}
		}
		phase(&row.Prepare, func(i int) { x.prepare(&batch[i], some[i]) }, len(some))
		phase(&row.MatchNew, func(i int) { x.match(dst, &batch[i], now) }, len(some))
		phase(&row.Insert, func(i int) { x.insert(&batch[i], to[i], now, nil) }, len(some))
		phase(&row.MatchKnown, func(i int) { x.match(dst, &batch[i], now) }, len(some))
	}
	runtime.ReadMemStats(&after)
	n := float64(len(prompts))
	row.Prepare /= n
	row.MatchNew /= n
	row.Insert /= n
	row.MatchKnown /= n
	row.Request = row.Prepare + row.MatchNew + row.Insert
	row.Allocs = float64(after.Mallocs-before.Mallocs) / n
	row.AllocKB = float64(after.TotalAlloc-before.TotalAlloc) / 1e3 / n
	return row
}

// preparations measures them alone.
func preparations(name string, prompts []*prompt, rounds int) prepareRow {
	var pr prepared
	var text []byte
	x := newOurs(1, 0, 0, time.Now())
	rate := func(f func(p *prompt)) float64 {
		var v []float64
		for range rounds {
			size := 0
			begin := cpuTime()
			for _, p := range prompts {
				f(p)
				size += len(p.json)
			}
			v = append(v, float64(size)/1e6/(cpuTime()-begin).Seconds())
		}
		return table.Median(v)
	}
	return prepareRow{
		Corpus:   name,
		Marks:    rate(func(p *prompt) { x.prepare(&pr, p) }),
		Decode:   rate(func(p *prompt) { text = appendText(text[:0], p.json) }),
		Tokenise: rate(func(p *prompt) { pr.tokens = appendPromptTokens(pr.tokens[:0], p) }),
		Blocks:   rate(func(p *prompt) { pr.hashes = appendBlockHashes(pr.hashes[:0], p.tokens[:p.promptTokens]) }),
	}
}

// appendText decodes a messages array into the text that the rivals are given.
func appendText(dst, messages []byte) []byte {
	c := scan.New(messages)
	c.EnterArray()
	var scratch [32]byte
	for c.NextElem() {
		c.EnterObject()
		var role, content scan.Value
		for key, ok := c.NextField(); ok; key, ok = c.NextField() {
			v := c.Skip()
			switch string(key.Text(messages, scratch[:0])) {
			case "role":
				role = v
			case "content":
				content = v
			}
		}
		dst = append(dst, "<|im_start|>"...)
		dst = append(dst, role.Text(messages, scratch[:0])...)
		dst = append(dst, '\n')
		raw := content.Inner(messages)
		if content.Escaped {
			for len(raw) > 0 {
				if cap(dst)-len(dst) < scan.MinDecodeBuffer {
					dst = append(dst, make([]byte, max(len(raw), scan.MinDecodeBuffer))...)[:len(dst)]
				}
				n, used := scan.Decode(dst[len(dst):cap(dst)], raw)
				dst, raw = dst[:len(dst)+n], raw[used:]
			}
		} else {
			dst = append(dst, raw...)
		}
		dst = append(dst, "<|im_end|>\n"...)
	}
	return dst
}

func showSpeed(w io.Writer, res *result) {
	var rows [][]string
	for _, c := range res.Corpora {
		rows = append(rows, []string{c.Name, c.What, fmt.Sprint(c.Prompts), table.Num(c.KB), table.Num(c.Tokens), table.Num(c.Marks)})
	}
	table.Print(w, "Prompts", 2, []string{"corpus", "what", "prompts", "mean KB", "mean tokens", "mean marks"}, rows)
	rows = nil
	for _, r := range res.Speed {
		rows = append(rows, []string{
			r.Corpus, r.Index, fmt.Sprint(r.Replicas), table.Num(r.Prepare), table.Num(r.MatchNew), table.Num(r.MatchKnown), table.Num(r.Insert),
			table.Num(r.Request), table.Num(r.MBps), table.Num(r.Allocs), table.Num(r.AllocKB),
		})
	}
	table.Print(w, "Cost of a request, CPU us (prepare + match as it comes + insert). marks: from JSON, placing, first token and end; tree: from decoded text; blocks: tokenising and hashing from decoded messages.", 2,
		[]string{"corpus", "index", "replicas", "prepare", "match new", "match known", "insert", "request", "MB/s", "allocs", "alloc KB"}, rows)
	rows = nil
	for _, r := range res.Prepare {
		rows = append(rows, []string{r.Corpus, table.Num(r.Marks), table.Num(r.Decode), table.Num(r.Tokenise), table.Num(r.Blocks)})
	}
	table.Print(w, "Preparation alone, MB of JSON per CPU second. Decoding is what the rivals were given for nothing; a real tokeniser is slower than the simulated one by one or two orders of magnitude.", 1,
		[]string{"corpus", "JSON to marks", "JSON to text", "tokenise (simulated)", "hash blocks"}, rows)
}
