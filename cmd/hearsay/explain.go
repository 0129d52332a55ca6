package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// explained is what both kinds of explanation have in common.
type explained struct {
	RequestID     string        `json:"request_id"`
	Pool          string        `json:"pool"`
	Model         string        `json:"model"`
	Tenant        string        `json:"tenant"`
	Band          string        `json:"band"` // of a past pick
	Attempt       int           `json:"attempt"`
	Replica       string        `json:"replica"`
	Leg           string        `json:"leg"`     // of a past pick: prefill or decode
	Prefill       string        `json:"prefill"` // of a pick to come: where the prompt would be prefilled
	Policy        string        `json:"policy"`
	Reason        string        `json:"reason"`
	PromptTokens  int           `json:"prompt_tokens"`
	MatchedTokens int           `json:"matched_tokens"`
	TTFT          time.Duration `json:"ttft_ns"`
	Observed      time.Duration `json:"observed_ttft_ns"`
	Queued        time.Duration `json:"queued_ns"`
	Refused       string        `json:"refused"`
	Fallback      []string      `json:"fallback"` // of a pick to come
	Refusal       *refusal      `json:"refusal"`  // of a past request that no replica served
	Candidates    []candidate   `json:"candidates"`
}

// candidate is one replica of an explanation.
type candidate struct {
	Replica       string             `json:"replica"`
	MatchedTokens int                `json:"matched_tokens"`
	Score         float64            `json:"score"`
	Excluded      string             `json:"excluded"`
	Despite       string             `json:"despite"`
	Terms         map[string]float64 `json:"terms"`
	Had           *had               `json:"had"` // of a refusal
}

// termColumn is a column of explain's table.
type termColumn struct{ key, head string }

// scoreTerms add up to a score, loadTerms are what they were made of.
var (
	scoreTerms = []termColumn{
		{"fixed", "fixed ms"},
		{"queue", "queue ms"},
		{"prefill", "prefill ms"},
		{"attention", "attention ms"},
		{"hop", "hop ms"},
		{"adapter", "adapter ms"},
		{"kv", "kv ms"},
		{"slots", "slots ms"},
		{"busy", "busy ms"},
		{"eviction", "eviction ms"},
		{"streams", "streams ms"},
		{"slow_start", "slow start ms"},
	}
	loadTerms = []termColumn{
		{"own", "own tok"},
		{"others", "others tok"},
		{"foreign", "foreign tok"},
		{"decode", "decode streams"},
		{"rate", "rate tok/s"},
	}
)

// reasonWords says what routing.Reasons mean.
var reasonWords = map[string]string{
	routing.ReasonWarm:     "the best score, and it holds part of the prompt",
	routing.ReasonSpill:    "another holds more of the prompt and was passed over for its load",
	routing.ReasonCold:     "no replica holds any of the prompt",
	routing.ReasonLoad:     "by load alone",
	routing.ReasonOnly:     "no other replica could take it",
	routing.ReasonSession:  "the session's own replica",
	routing.ReasonHash:     "the prefix hash's own replica",
	routing.ReasonOverflow: "the prefix hash's own replica was over its bound",
	routing.ReasonTurn:     "its turn, round robin",
	routing.ReasonChance:   "drawn at random",
	routing.ReasonTrial:    "it was ejected and is on trial",
}

// excludedWords says what routing.Exclusions mean.
var excludedWords = map[string]string{
	routing.ExcludedRole:        "serves the other leg of requests",
	routing.ExcludedTried:       "was tried for this request before",
	routing.ExcludedPinned:      "another one keeps what the request goes on from",
	routing.ExcludedDraining:    "gets no new work",
	routing.ExcludedEjected:     "failed too often",
	routing.ExcludedTrial:       "was ejected, and its trial request is under way",
	routing.ExcludedAdapter:     "does not list the adapter",
	routing.ExcludedWarming:     "has an empty cache, which is being filled",
	routing.ExcludedLoading:     "says that it is not ready",
	routing.ExcludedUnreachable: "does not answer",
	routing.ExcludedWrongModel:  "does not serve the pool's model",
	routing.ExcludedSaturated:   "has no room: at its cap, its queue too long or its KV cache full",
	routing.ExcludedReserved:    "has room, which is left to higher priorities",
	routing.ExcludedITL:         "one more stream would break slo.itl",
}

// whyNot is the reason for which a candidate was or would be excluded, and what it means.
func whyNot(c *candidate) string {
	code, more := c.Excluded, ""
	if c.Despite != "" {
		code, more = c.Despite, ", but nobody else is left"
	}
	if words := excludedWords[code]; words != "" {
		code += " (" + words + ")"
	}
	return code + more
}

// inWords is a reason and what it means; newer routers may have others.
func inWords(reason string) string {
	if words := reasonWords[reason]; words != "" {
		return reason + " (" + words + ")"
	}
	return reason
}

func reasonLegend() string {
	var lines []string
	for _, r := range routing.Reasons() {
		lines = append(lines, fmt.Sprintf("  %-9s %s", r, reasonWords[r]))
	}
	return strings.Join(lines, "\n")
}

func newExplain() *cobra.Command {
	a := &admin{}
	var file, path, tenant string
	cmd := &cobra.Command{
		Use: "explain [REQUEST_ID]", Short: "Where a request would go and why, or where a past one went",
		Long: `explain -f FILE shows where a request (a JSON body; - for standard input) would go now,
without sending it. explain REQUEST_ID shows where a recent request went, or why it was
refused with 429 or 503: ask the router that served it, soon after. Its id is in the
answer's x-request-id header, and in the body of most answers (chatcmpl-ID, msg_ID,
resp_ID).

The columns in ms add up to the score under the policy ttft; -o wide shows the load
behind them. docs/operate.md explains them.

Why the replica was chosen:
` + reasonLegend(),
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := map[string]any{}
			if !strings.HasPrefix(path, "/") {
				return usageError{fmt.Errorf("--path: %q is no path: write /%s", path, path)}
			}
			switch {
			case file != "" && len(args) == 0:
				body, err := readInput(file)
				if err != nil {
					return err
				}
				if !json.Valid(body) {
					return fmt.Errorf("%s is not JSON: give a request body as a client would send it", inputName(file))
				}
				if err := fitsPath(path, body); err != nil {
					return fmt.Errorf("%s: %w", inputName(file), err)
				}
				req["path"], req["body"] = path, json.RawMessage(body)
				if tenant != "" {
					req["tenant"] = tenant
				}
			case file == "" && len(args) == 1:
				req["request_id"] = args[0]
				id, stripped := answered(args[0])
				if !stripped {
					break
				}
				if _, err := a.call(cmd.Context(), "POST", "explain", req, nil); err != nil {
					req["request_id"] = id
				}
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
				print := picks[i].print
				if picks[i].Refusal != nil {
					print = picks[i].printRefusal
				}
				if err := print(w, a.output); err != nil {
					return err
				}
			}
			return nil
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "a request body (JSON); - for standard input")
	cmd.Flags().StringVar(&tenant, "tenant", "", "with -f: whose request it would be, in pools that isolate tenants; default nobody's")
	cmd.Flags().StringVar(&path, "path", "/v1/chat/completions", "the path it would be sent to")
	return cmd
}

// prompts says in which field the requests to a path have their prompt.
var prompts = []struct{ path, field string }{
	{"/v1/chat/completions", "messages"},
	{"/v1/completions", "prompt"},
	{"/v1/embeddings", "input"},
	{"/v1/responses", "input"},
}

// fitsPath refuses a body without the prompt that its path's requests have: it would
// be explained as an empty one. Other faults of a body are for the router to tell.
func fitsPath(path string, body []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil
	}
	var missing string
	var fits []string
	for _, p := range prompts {
		_, there := fields[p.field]
		switch {
		case p.path == path && there:
			return nil
		case p.path == path:
			missing = p.field
		case there:
			fits = append(fits, p.path)
		}
	}
	if missing == "" {
		return nil // no path of these
	}
	hint := ""
	if len(fits) > 0 {
		hint = ": if it is for " + strings.Join(fits, " or ") + ", say --path " + strings.Join(fits, " or --path ")
	}
	return fmt.Errorf("no %q in it, which %s takes%s", missing, path, hint)
}

// answered takes off what engines put before a request's id in their answers.
func answered(id string) (request string, stripped bool) {
	for _, p := range []string{"chatcmpl-", "cmpl-", "msg_", "resp_"} {
		if rest, ok := strings.CutPrefix(id, p); ok && rest != "" {
			return rest, true
		}
	}
	return id, false
}

func (e *explained) print(w io.Writer, o outputFlag) error {
	past := e.RequestID != ""
	if past {
		leg := ""
		if e.Leg != "" {
			leg = ", to " + e.Leg
		}
		fmt.Fprintf(w, "request %s, attempt %d%s\n", e.RequestID, e.Attempt, leg)
	}
	fmt.Fprintf(w, "pool %s, model %s, %sabout %s\n", e.Pool, e.Model, e.whose(), plural(e.PromptTokens, "prompt token"))
	verb := "goes"
	if past {
		verb = "went"
	}
	if e.Replica == "" {
		fmt.Fprintf(w, "no replica: %s\n", e.Refused)
	} else {
		fmt.Fprintf(w, "%s to %s: policy %s, %s; %s expected in its cache, first token expected after %s%s\n",
			verb, e.Replica, e.Policy, inWords(e.Reason), plural(e.MatchedTokens, "token"), e.TTFT.Round(time.Millisecond), e.observed())
	}
	if e.Prefill != "" {
		fmt.Fprintf(w, "its prompt is prefilled by %s first\n", e.Prefill)
	}
	if len(e.Fallback) > 0 {
		fmt.Fprintf(w, "where pool %s can't serve it, pool %s is asked\n", e.Pool, strings.Join(e.Fallback, ", then pool "))
	}
	if best, tied := e.tied(); tied {
		fmt.Fprintf(w, "its score is within the tie band of the best, %.1f: among such replicas one is drawn at random\n", best)
	}
	terms := scoreTerms
	if o == outputWide {
		terms = slices.Concat(scoreTerms, loadTerms)
	}
	head := []string{"replica", "score ms", "matched tok"}
	for _, x := range terms {
		head = append(head, x.head)
	}
	t := newTable(append(head, "excluded")...)
	slices.SortStableFunc(e.Candidates, func(a, b candidate) int { // the lowest score is the best
		if out := (a.Excluded != ""); out != (b.Excluded != "") {
			if out {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Score, b.Score)
	})
	for _, c := range e.Candidates {
		row := []any{c.Replica, fmt.Sprintf("%.1f", c.Score), c.MatchedTokens}
		for _, x := range terms {
			row = append(row, fmt.Sprintf("%.1f", c.Terms[x.key]))
		}
		t.row(append(row, whyNot(&c))...)
	}
	return t.write(w)
}

// whose says whose request it is and its priority, where either is out of the ordinary.
func (e *explained) whose() (s string) {
	if e.Tenant != "" {
		s = "tenant " + e.Tenant + ", "
	}
	if e.Band != "" && (e.Band != state.BandNormal.String() || e.Tenant != "") {
		s += "priority " + e.Band + ", "
	}
	return s
}

// observed says when a past request's first token came, and that it waited before.
func (e *explained) observed() string {
	if e.Queued > 0 {
		queued := e.Queued
		e.Queued = 0
		return e.observed() + ", after " + queued.Round(time.Millisecond).String() + " in the pool's queue"
	}
	switch {
	case e.RequestID == "":
		return ""
	case e.Observed > 0:
		return ", observed after " + e.Observed.Round(time.Millisecond).String()
	}
	return ", none observed (not streamed, failed, or under way)"
}

// tied says whether the policy passed over a better score, the best, because both
// were as good as equal.
func (e *explained) tied() (best float64, yes bool) {
	if !slices.Contains([]string{routing.ReasonWarm, routing.ReasonCold, routing.ReasonSpill}, e.Reason) || e.Policy != routing.TTFT {
		return 0, false
	}
	var chosen float64
	best = math.Inf(1)
	for _, c := range e.Candidates {
		if c.Excluded != "" {
			continue
		}
		if c.Replica == e.Replica {
			chosen = c.Score
		}
		best = min(best, c.Score)
	}
	return best, chosen > best
}
