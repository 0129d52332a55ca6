package main

import (
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing/balance"
)

func newDiagnose() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "diagnose [POOL]", Short: "What is wrong with a pool, whose matter it is, and the evidence", Args: positional,
		Long: `diagnose says for each pool what is wrong at present, as the asked router sees it, which
control loop has to deal with it, the figures it goes by, and what to do. Causes stand
before what follows from them.

  skewed          one queue is long, the others are not
  short           all queues are long, and more replicas would be up before that is over
  spike           all queues are long, and a new replica would come too late
  broken prefix   prompts that are much alike part early: it says where, not what they say
  cold adapter    requests wait for a LoRA adapter's slot
  KV full         requests wait for KV space
  slow replica    far below its pool's pace
  dead metrics    it serves, and its load can't be read
  prefill-bound   what is waited for is prefill
  decode-bound    what is waited for is room among the streams
  no replica      nobody takes requests
  healthy         none of these

docs/operate.md says by which figures.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "diagnose"
			if len(args) == 1 {
				path += "?pool=" + url.QueryEscape(args[0])
			}
			var list []console.Diagnosis
			return show(cmd, a, path, &list, func(w io.Writer) error {
				if len(list) == 0 {
					fmt.Fprintln(w, "no pools")
				}
				for i := range list {
					printDiagnosis(w, &list[i])
				}
				return nil
			})
		},
	}
	a.addOutput(cmd)
	return cmd
}

func printDiagnosis(w io.Writer, d *console.Diagnosis) {
	line := func(name, text string) { fmt.Fprintf(w, "  %-9s %s\n", name, strings.Map(printable, text)) }
	for _, f := range d.Findings {
		owner := ", the matter of " + f.Owner
		if f.Class == balance.Healthy {
			owner = ""
		}
		fmt.Fprintf(w, "pool %s: %s%s\n", d.Pool, f.Class, owner)
		line("", f.Text)
		if len(f.Replicas) > 0 {
			line("replicas", strings.Join(f.Replicas, ", "))
		}
		var parts []string
		for _, x := range f.Evidence {
			parts = append(parts, figure(&x))
		}
		line("evidence", orNone(strings.Join(parts, "; ")))
		if f.Class != balance.Healthy {
			line("next", f.Next)
		}
	}
	if len(d.Hot) > 0 {
		var parts []string
		for _, h := range d.Hot {
			holders := ""
			if h.Holders >= 0 {
				holders = ", held by " + plural(h.Holders, "replica")
			}
			parts = append(parts, fmt.Sprintf("%.0f %% of requests begin with the same %s tokens%s", 100*h.Share, count(float64(h.Tokens)), holders))
		}
		line("hot", strings.Join(parts, "; "))
	}
}

// figure is a number with its name and unit.
func figure(f *balance.Figure) string {
	digits := 0
	if v := math.Abs(f.Value); v < 10 && math.Abs(v-math.Round(v)) >= 0.005 {
		digits = 2
	}
	s := fmt.Sprintf("%s %.*f", f.Name, digits, f.Value)
	if f.Unit != "" {
		s += " " + f.Unit
	}
	return s
}
