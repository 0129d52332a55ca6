// Command rivals compares our prefix index (state/prefix and state/sketch) with two
// simple ones of the kinds other routers use, on the same prompts: a radix tree
// over characters and a map of hashes of 16-token blocks. It prints tables and
// writes the figures as JSON.
//
// What is compared is what each needs per request (time, allocations), what it
// keeps (memory), what it has to tell another router (bytes), and how well it
// knows what a replica holds (error), against exact references. The rivals are
// given every simplification that does not change what they are: at most 64
// replicas, so that sets are one word; decoded text or messages for nothing; the
// engine's own tokeniser, which is far faster here than a real one; and the true
// ratio of bytes to tokens. Times are CPU time of the whole process, garbage
// collection included, so that a busy machine disturbs them little.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

type options struct {
	out, corpora, parts string
	seed                uint64
	prompts, rounds     int
	quick               bool
}

// result is everything one invocation measured.
type result struct {
	Command string        `json:"command"`
	Seed    uint64        `json:"seed"`
	Corpora []corpusInfo  `json:"corpora"`
	Speed   []speedRow    `json:"speed"`
	Prepare []prepareRow  `json:"prepare"`
	Memory  []memoryRow   `json:"memory"`
	Share   []shareRow    `json:"share"`
	Prefix  []prefixRow   `json:"longest_common_prefix"`
	Evicted []evictionRow `json:"eviction"`
}

// corpusInfo describes the prompts of a corpus.
type corpusInfo struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	Prompts int     `json:"prompts"`
	KB      float64 `json:"mean_kb"`
	Tokens  float64 `json:"mean_tokens"`
	Marks   float64 `json:"mean_marks"`
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "test/bench/out", "directory for results")
	flag.StringVar(&o.corpora, "corpora", "chat,mooncake,cjk,code", "prompts to measure with")
	flag.StringVar(&o.parts, "parts", "speed,memory,share,eviction", "what to measure")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of prompts and placements")
	flag.IntVar(&o.prompts, "prompts", 3000, "prompts of a corpus for errors; speed takes a fifth")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each time measurement; the median counts")
	flag.BoolVar(&o.quick, "quick", false, "a tenth of the prompts, two rounds, no 100,000 prompts in memory")
	flag.Parse()
	if o.quick {
		o.prompts, o.rounds = o.prompts/10, 2
	}
	if err := run(&o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		os.Exit(1)
	}
}

func run(o *options, w io.Writer) error {
	res := result{Command: "go run ./test/bench/rivals " + strings.Join(os.Args[1:], " "), Seed: o.seed}
	names := strings.Split(o.corpora, ",")
	parts := strings.Split(o.parts, ",")
	steps := []struct {
		part string
		run  func(o *options, res *result, name string) error
		show func(w io.Writer, res *result)
	}{
		{"speed", speed, showSpeed},
		{"memory", memory, showMemory},
		{"share", share, showShare},
		{"eviction", evict, showEviction},
	}
	for _, s := range steps {
		if !slices.Contains(parts, s.part) {
			continue
		}
		for _, name := range names {
			begin := time.Now()
			if err := s.run(o, &res, name); err != nil {
				return fmt.Errorf("%s of %s: %w", s.part, name, err)
			}
			fmt.Fprintf(os.Stderr, "%-9s %-9s %6.1f s\n", s.part, name, time.Since(begin).Seconds())
		}
		s.show(w, &res)
		if err := table.Save(o.out, "rivals.json", &res); err != nil {
			return err
		}
	}
	fmt.Fprint(w, verdict)
	return nil
}

// verdict is what each index is best at by its construction; the tables say by how
// much.
const verdict = `
What each is best at:
  tree    No preparation at all, and an unknown prompt costs next to nothing: the walk ends where the text parts. It
          knows every prefix to the byte. It has to keep, and to tell others, the text itself.
  blocks  Counts like the engine, to the block, when it has the engine's tokeniser and bound and notes answers too (then
          it is the engine's cache over again, as long as one router sees everything and nothing overlaps); marks round down to the
          last mark, up to 6 % of a prompt when sharing ends inside a message. It needs that tokeniser for every prompt.
  marks   Cost and size grow with the logarithm of a prompt's length once hashed; what must be told is small; learns the
          capacity of a cache from what engines report, where the others must be told it.
`
