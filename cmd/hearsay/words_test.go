package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/routing"
)

func TestOpinionsAreWords(t *testing.T) {
	for want, f := range map[string]console.Figures{
		"9 picks asked about, all alike, regret p95 0 ms":       {Opinions: 9, Alike: 1},
		"1 pick asked about, all alike, regret p95 ?":           {Opinions: 1, Alike: 1, RegretP95MS: -1},
		"200 picks asked about, 96 % alike, regret p95 12.3 ms": {Opinions: 200, Alike: 0.96, RegretP95MS: 12.34},
	} {
		if got := opinions(&f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRoutersOfOneNameAreToldApart(t *testing.T) {
	got := displayNames([]console.Member{{ID: "a1", Name: "r"}, {ID: "b2", Name: "r"}, {ID: "c3", Name: "s"}, {ID: "d4"}})
	if want := []string{"r/a1", "r/b2", "s", "d4"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestConsoleLogKeepsColoursToTerminals(t *testing.T) {
	var b bytes.Buffer
	log, err := newLogger(node.LogConfig{Level: "info", Format: "console"}, &b)
	if err != nil {
		t.Fatal(err)
	}
	log.Info().Str("replica", "e1").Msg("up")
	if !strings.Contains(b.String(), "up") || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%q", b.String())
	}
}

// Every reason that a pick may have is explained, in its line and in the help.
func TestExplainSaysWhatReasonsMean(t *testing.T) {
	help := call(t, "explain", "--help")
	for _, reason := range routing.Reasons() {
		words := reasonWords[reason]
		if words == "" {
			t.Errorf("%s is not explained", reason)
		}
		help.wants(t, 0, fmt.Sprintf("  %-9s %s\n", reason, words))
		var b strings.Builder
		if err := (&explained{Replica: "e1", Policy: "ttft", Reason: reason}).print(&b, outputTable); err != nil {
			t.Fatal(err)
		}
		if want := "policy ttft, " + reason + " (" + words + "); "; !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	if got := inWords("fate"); got != "fate" {
		t.Errorf("a reason of the next release: %q", got)
	}
}

// So is every reason that keeps a replica from being picked, and every term of a score
// has its column.
func TestExplainSaysWhyNot(t *testing.T) {
	for _, code := range routing.Exclusions() {
		words := excludedWords[code]
		if words == "" {
			t.Errorf("%s is not explained", code)
		}
		if got := whyNot(&candidate{Excluded: code}); got != code+" ("+words+")" {
			t.Errorf("%s: %q", code, got)
		}
		if got := whyNot(&candidate{Despite: code}); got != code+" ("+words+"), but nobody else is left" {
			t.Errorf("%s: %q", code, got)
		}
	}
	if got := whyNot(&candidate{}) + whyNot(&candidate{Excluded: "fate"}); got != "fate" {
		t.Errorf("none, and one of the next release: %q", got)
	}
	b, err := json.Marshal(proxy.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	var terms map[string]float64
	if err := json.Unmarshal(b, &terms); err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(scoreTerms, loadTerms) {
		if _, ok := terms[c.key]; !ok {
			t.Errorf("no term %s", c.key)
		}
		delete(terms, c.key)
	}
	if len(terms) != 0 {
		t.Errorf("terms without a column: %v", terms)
	}
}

func TestExplainSaysWhenATieWasDrawn(t *testing.T) {
	for name, f := range map[string]struct {
		policy, chosen, excluded string
		tied                     bool
	}{
		"the best was taken":             {"ttft", "e1", "", false},
		"another as good as equal":       {"ttft", "e2", "", true},
		"the better one could not be":    {"ttft", "e2", "tried", false},
		"a policy that minimises no sum": {"session", "e2", "", false},
	} {
		raw := fmt.Sprintf(`{"request_id":"x","replica":%q,"policy":%q,"reason":"warm","ttft_ns":70000000,"observed_ttft_ns":81000000,"candidates":[
			{"replica":"e1","score":73.4,"excluded":%q},{"replica":"e2","score":74.7}]}`, f.chosen, f.policy, f.excluded)
		var e explained
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := e.print(&b, outputTable); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "within the tie band of the best, 73.4") != f.tied || !strings.Contains(b.String(), "after 70ms, observed after 81ms") {
			t.Errorf("%s:\n%s", name, b.String())
		}
	}
}

// The best candidates stand first, those that could not be last.
func TestCandidatesStandByTheirScore(t *testing.T) {
	e := explained{Replica: "e3", Policy: "ttft", Candidates: []candidate{
		{Replica: "e1", Score: 9}, {Replica: "e2", Score: 1, Excluded: "draining"}, {Replica: "e3", Score: 2}, {Replica: "e4", Score: 5},
	}}
	var b strings.Builder
	if err := e.print(&b, outputTable); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, line := range strings.Split(b.String(), "\n") {
		if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], "e") {
			order = append(order, f[0])
		}
	}
	if got := strings.Join(order, " "); got != "e3 e4 e1 e2" {
		t.Errorf("%s:\n%s", got, b.String())
	}
}
