package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func newEvents() *cobra.Command {
	a := &admin{}
	var kinds []string
	cmd := &cobra.Command{
		Use: "events", Short: "What happens, one line each, until Ctrl-C", Args: positional,
		Long: `events prints what the asked router sees happen, as it happens: picks (10 a second at
most), ejections and returns of replicas, pools that ignore ejections because too many
are ejected (panic), prompts that were sent to warm replicas (prewarm), scale decisions,
members and the leader. Nothing is told of what was before. -o json prints each event as
a line of JSON.

--kinds request tells of every request when it ends: times, sizes, and hashes of its
prompt's beginnings, nothing of what was said. With -o json into a file that is a
recording: 'hearsay replay --what-if ... --trace FILE' runs its like in simulation.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range kinds {
				if !slices.Contains(console.Kinds(), k) {
					return usageError{fmt.Errorf("--kinds: %q is unknown: use %s", k, strings.Join(console.Kinds(), ", "))}
				}
			}
			return a.follow(cmd.Context(), kinds, cmd.OutOrStdout())
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringSliceVar(&kinds, "kinds", nil, "only these: "+strings.Join(console.Kinds(), ", "))
	return cmd
}

// follow prints events until the router ends the stream or ctx ends, which is no fault.
func (a *admin) follow(ctx context.Context, kinds []string, w io.Writer) error {
	u, err := a.base()
	if err != nil {
		return err
	}
	path := strings.TrimSuffix(u.String(), "/") + "/admin/v1/events?kinds=" + url.QueryEscape(strings.Join(kinds, ","))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return usageError{err}
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return a.unanswered(u, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return a.refused(resp.StatusCode, raw)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var e console.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("%s sent an event that is none (%w): %s", a.server, err, wantAdmin)
		}
		if a.output == outputJSON {
			_, err = fmt.Fprintf(w, "%s\n", data)
		} else {
			_, err = fmt.Fprintln(w, eventLine(&e))
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the stream of %s broke (%w): start it again, or ask another router with --server", a.server, err)
	}
	return errors.New(a.server + " ended the stream: the router stops")
}

// eventLine is an event for people.
func eventLine(e *console.Event) string {
	parts := []string{e.At.Local().Format("15:04:05.000"), fmt.Sprintf("%-8s", e.Kind)}
	add := func(format string, given string) {
		if given != "" {
			parts = append(parts, fmt.Sprintf(format, given))
		}
	}
	add("pool %s", e.Pool)
	switch e.Kind {
	case console.KindPick:
		add("-> %s", e.Replica)
		add("(%s)", e.Reason)
		parts = append(parts, fmt.Sprintf("%d of %d tokens cached, first token after %.0f ms", e.MatchedTokens, e.PromptTokens, e.TTFTMS))
		add("tenant %s", e.Tenant)
		add("priority %s", e.Band)
		add("request %s", e.RequestID)
		if e.Count > 0 {
			parts = append(parts, fmt.Sprintf("(%d more before it)", e.Count))
		}
	case console.KindRequest:
		add("at %s", e.Replica)
		add("%s", e.Outcome)
		if r := e.Record; r != nil {
			cached := "?"
			if r.CachedTokens >= 0 {
				cached = fmt.Sprint(r.CachedTokens)
			}
			parts = append(parts, fmt.Sprintf("%s of %d tokens cached, %d expected; %s", cached, e.PromptTokens, e.MatchedTokens, plural(r.OutputTokens, "token")))
			if r.ObservedMS > 0 {
				parts = append(parts, fmt.Sprintf("first after %.0f ms", r.ObservedMS))
			}
		}
		add("request %s", e.RequestID)
	case console.KindPrewarm:
		add("-> %s", e.Replica)
		parts = append(parts, fmt.Sprintf("%s, %d tokens prefilled,", e.Outcome, e.PromptTokens))
		add("%s", e.Text)
		add("(%s)", e.From)
	case console.KindDecision:
		parts = append(parts, fmt.Sprintf("%s -> %s", e.From, e.To))
		add("%s", e.Outcome)
		add("(%s)", e.Reason)
		add("%s", e.Text)
	default:
		add("replica %s", e.Replica)
		add("%s", e.Member)
		if e.From != "" && e.To != "" {
			add("%s", e.From+" -> "+e.To)
		} else {
			add("%s", e.To)
		}
		add("%s", e.Text)
	}
	return strings.Join(parts, " ")
}
