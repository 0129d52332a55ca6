package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy/console"
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
