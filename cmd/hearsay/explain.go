package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	"github.com/spf13/cobra"
)

// explained is what both kinds of explanation have in common.
type explained struct {
	RequestID     string        `json:"request_id"`
	Pool          string        `json:"pool"`
	Model         string        `json:"model"`
	Attempt       int           `json:"attempt"`
	Replica       string        `json:"replica"`
	Policy        string        `json:"policy"`
	Reason        string        `json:"reason"`
	PromptTokens  int           `json:"prompt_tokens"`
	MatchedTokens int           `json:"matched_tokens"`
	TTFT          time.Duration `json:"ttft_ns"`
	Refused       string        `json:"refused"`
	Candidates    []struct {
		Replica       string  `json:"replica"`
		MatchedTokens int     `json:"matched_tokens"`
		Score         float64 `json:"score"`
		Excluded      string  `json:"excluded"`
		Terms         map[string]float64
	} `json:"candidates"`
}

func newExplain() *cobra.Command {
	a := &admin{}
	var file, path string
	cmd := &cobra.Command{
		Use: "explain [REQUEST_ID]", Short: "Where a request would go and why, or where a past one went",
		Long: `explain -f FILE shows where a request (a JSON body; - for standard input) would go now,
without sending it. explain REQUEST_ID shows where a recent request went: ask the
router that served it (its id is in the answer's x-request-id header).`,
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := map[string]any{}
			switch {
			case file != "" && len(args) == 0:
				body, err := readInput(file)
				if err != nil {
					return err
				}
				if !json.Valid(body) {
					return fmt.Errorf("%s is not JSON: give a request body as a client would send it", file)
				}
				req["path"], req["body"] = path, json.RawMessage(body)
			case file == "" && len(args) == 1:
				req["request_id"] = args[0]
			default:
				return usageError{errors.New("give either -f FILE or a REQUEST_ID")}
			}
			raw, err := a.call(cmd.Context(), "POST", "explain", req, nil)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if a.output == outputJSON {
				_, err = w.Write(raw)
				return err
			}
			var picks []explained
			if json.Unmarshal(raw, &picks) != nil {
				picks = make([]explained, 1)
				if err := json.Unmarshal(raw, &picks[0]); err != nil {
					return err
				}
			}
			for i := range picks {
				if err := picks[i].print(w); err != nil {
					return err
				}
			}
			return nil
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "a request body (JSON); - for standard input")
	cmd.Flags().StringVar(&path, "path", "/v1/chat/completions", "the path it would be sent to")
	return cmd
}

func (e *explained) print(w io.Writer) error {
	if e.RequestID != "" {
		fmt.Fprintf(w, "request %s, attempt %d\n", e.RequestID, e.Attempt)
	}
	fmt.Fprintf(w, "pool %s, model %s, about %d prompt tokens\n", e.Pool, e.Model, e.PromptTokens)
	if e.Replica == "" {
		fmt.Fprintf(w, "no replica: %s\n", e.Refused)
	} else {
		fmt.Fprintf(w, "goes to %s: policy %s, %s; %d tokens expected in its cache, first token after %s\n",
			e.Replica, e.Policy, e.Reason, e.MatchedTokens, e.TTFT.Round(time.Millisecond))
	}
	terms := map[string]bool{}
	for _, c := range e.Candidates {
		for k, v := range c.Terms {
			if v != 0 {
				terms[k] = true
			}
		}
	}
	names := make([]string, 0, len(terms))
	for k := range terms {
		names = append(names, k)
	}
	sort.Strings(names)
	t := newTable(append([]string{"replica", "score ms", "matched"}, append(names, "excluded")...)...)
	for _, c := range e.Candidates {
		row := []any{c.Replica, fmt.Sprintf("%.1f", c.Score), c.MatchedTokens}
		for _, n := range names {
			row = append(row, fmt.Sprintf("%.1f", c.Terms[n]))
		}
		t.row(append(row, c.Excluded)...)
	}
	return t.write(w)
}
