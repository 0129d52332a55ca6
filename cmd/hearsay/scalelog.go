package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// logWidth is the columns that a line of the scale log has at most.
const logWidth = 120

func newScaleLog() *cobra.Command {
	a := &admin{}
	var f scaleFilter
	cmd := &cobra.Command{
		Use: "log [ID]", Short: "Scale decisions and refusals, newest first; one in full", Args: positional,
		Long: `log shows the targets that were set and what became of each: done, failed, superseded
by a later one, under way, or recorded (a dry run: nothing was started or stopped); and between them the plans that were refused, and how often
in a row. With an ID, or the beginning of one, it shows that decision in full: what it
was taken on, who took it, how it ended, and what was refused since. -o wide shows whole
texts, who decided, and whom it took. Refusals are kept by the leader, for its term. A
--release sets no target and is not listed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return showDecision(cmd, a, args[0])
			}
			query, err := f.query(time.Now())
			if err != nil {
				return err
			}
			var list []console.Decision
			return show(cmd, a, "decisions?"+query, &list, func(w io.Writer) error {
				if len(list) == 0 {
					fmt.Fprintln(w, "no decisions yet")
				} else if err := printScaleLog(w, list, a.output, time.Now()); err != nil {
					return err
				}
				return whoRefuses(cmd, a, w)
			})
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringVar(&f.pool, "pool", "", "only of this pool")
	cmd.Flags().StringVar(&f.since, "since", "", "only what happened since then: a duration such as 2h, or an instant such as 2026-01-02T15:04:05Z")
	cmd.Flags().IntVarP(&f.n, "lines", "n", 0, "only the newest so many; 0: all")
	return cmd
}

// scaleFilter is what of the log is wanted.
type scaleFilter struct {
	pool, since string
	n           int
}

func (f *scaleFilter) query(now time.Time) (string, error) {
	q := url.Values{"refusals": {"true"}}
	if f.pool != "" {
		q.Set("pool", f.pool)
	}
	if f.n < 0 {
		return "", usageError{fmt.Errorf("-n: %d is not 0 or more", f.n)}
	} else if f.n > 0 {
		q.Set("n", strconv.Itoa(f.n))
	}
	if f.since == "" {
		return q.Encode(), nil
	}
	at, err := time.Parse(time.RFC3339, f.since)
	if d, derr := time.ParseDuration(f.since); derr == nil && d >= 0 {
		at, err = now.Add(-d), nil
	}
	if err != nil {
		return "", usageError{fmt.Errorf("--since: %q is no duration such as 2h, nor an instant such as 2026-01-02T15:04:05Z", f.since)}
	}
	q.Set("since", at.UTC().Format(time.RFC3339))
	return q.Encode(), nil
}

// printScaleLog writes one line for each entry, of at most logWidth columns unless it
// is wide.
func printScaleLog(w io.Writer, list []console.Decision, o outputFlag, now time.Time) error {
	wide := o == outputWide
	t := newTable("at", "id", "target", "change", "outcome", "took", "why").wide(o, "by", "victims", "index", "epoch")
	for i := range list {
		d := &list[i]
		id, target := d.ID, d.Pool+"/"+d.Role
		if !wide {
			id, target = cut(id, 12), cut(target, 20)
		}
		t.row(d.At.Local().Format("2006-01-02 15:04:05Z07:00"), id, target, change(d), outcome(d), took(d, now), why(d),
			d.ByName, strings.Join(d.Victims, " "), unless0(d.Index), unless0(d.Epoch))
	}
	if !wide {
		t.fit(logWidth)
	}
	return t.write(w)
}

// change is what became of the target, or would have.
func change(d *console.Decision) string {
	if d.From == d.To {
		return fmt.Sprint(d.From)
	}
	return fmt.Sprintf("%d->%d", d.From, d.To)
}

// outcome is how a decision ended, in a word: on paper only, where its actuator is a dry
// run.
func outcome(d *console.Decision) string {
	if d.DryRun {
		return "recorded"
	}
	return cmp.Or(d.Outcome, "under way")
}

// took is how long a decision took, or has been under way.
func took(d *console.Decision, now time.Time) string {
	var t time.Duration
	switch {
	case d.Refused != "":
		return ""
	case d.DoneAt != nil:
		t = d.DoneAt.Sub(d.At)
	case d.Outcome == "":
		t = now.Sub(d.At)
	default:
		return ""
	}
	if t = max(0, t); t < 10*time.Second {
		return t.Round(100 * time.Millisecond).String()
	}
	return t.Round(time.Second).String()
}

// why says in one line what a decision was taken on and, where it did not go as it
// should, how it went; or why a plan was refused.
func why(d *console.Decision) string {
	switch {
	case d.Refused != "":
		s := d.Refused
		if d.Count > 1 && d.Since != nil {
			s += fmt.Sprintf(", %d times since %s", d.Count, d.Since.Local().Format(time.TimeOnly))
		}
		if d.Detail != "" {
			s += ": " + d.Detail
		}
		return s
	case d.Detail != "" && d.Outcome != "done":
		return d.Detail + "; " + d.Reason
	}
	return d.Reason
}

// whoRefuses says where refusals are to be had, if not here.
func whoRefuses(cmd *cobra.Command, a *admin, w io.Writer) error {
	var st console.Status
	if _, err := a.call(cmd.Context(), "GET", "status", nil, &st); err != nil {
		return nil // the log is there
	}
	r := st.Router.Raft
	if r.Leader == "" || r.Leader == st.Router.ID {
		return nil
	}
	var members []console.Member
	if _, err := a.call(cmd.Context(), "GET", "members", nil, &members); err != nil {
		members = nil // then less can be said
	}
	fmt.Fprintf(w, "refusals are known to the leader alone: %s\n", howToAsk(&st.Router, members))
	return nil
}

// howToAsk says how the leader is asked, by the admin address that it tells the others.
// One on loopback is for its own host. Earlier releases tell none: there its port may be
// the one that it has at the asked router, unless they share a host.
func howToAsk(asked *console.Info, members []console.Member) string {
	name := cmp.Or(asked.Raft.LeaderName, asked.Raft.Leader)
	var leader, own, admin, cluster, self string
	for i := range members {
		if m := &members[i]; m.ID == asked.Raft.Leader {
			leader, admin, cluster = m.API, m.Admin, m.Cluster
		} else if m.Self {
			own, self = m.API, m.Cluster
		}
	}
	host, _, err := net.SplitHostPort(leader)
	here, _, _ := net.SplitHostPort(own)
	if at, _, aerr := net.SplitHostPort(admin); aerr == nil {
		there, _, _ := net.SplitHostPort(cluster)
		near, _, _ := net.SplitHostPort(self)
		if ip := net.ParseIP(at); (at == "localhost" || ip != nil && ip.IsLoopback()) && (there != near || there == "") {
			return fmt.Sprintf("run this on the host of %s (%s) with --server %s", name, cmp.Or(there, "see hearsay members"), admin)
		}
		return fmt.Sprintf("ask %s with --server %s", name, admin)
	}
	listens, port, perr := net.SplitHostPort(asked.Admin)
	switch ip := net.ParseIP(listens); {
	case err != nil:
		return fmt.Sprintf("give --server the admin address of %s", name)
	case perr != nil || host == here || net.ParseIP(host).IsUnspecified():
		return fmt.Sprintf("give --server the admin address of %s, whose API is at %s", name, leader)
	case ip.IsLoopback():
		return fmt.Sprintf("run this at %s, whose API is at %s, or give --server its admin address", name, leader)
	}
	return fmt.Sprintf("ask %s with --server %s, if its admin port is this one's", name, net.JoinHostPort(host, port))
}

// fullDecision is one decision and what was refused between it and the next.
type fullDecision struct {
	console.Decision
	RefusedSince []console.Decision `json:"refused_since"`
}

// showDecision shows the decision whose id begins so.
func showDecision(cmd *cobra.Command, a *admin, id string) error {
	var list []console.Decision
	if _, err := a.call(cmd.Context(), "GET", "decisions?refusals=true", nil, &list); err != nil {
		return err
	}
	at, err := findDecision(list, id)
	if err != nil {
		return err
	}
	full := fullDecision{Decision: list[at], RefusedSince: []console.Decision{}}
	for _, d := range list {
		if d.Refused != "" && d.After == full.ID && d.Pool == full.Pool && d.Role == full.Role {
			full.RefusedSince = append(full.RefusedSince, d)
		}
	}
	if a.output == outputJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(full)
	}
	return full.print(os.Stdout, time.Now())
}

// findDecision finds the decision of an id, or the only one whose id begins so.
func findDecision(list []console.Decision, id string) (int, error) {
	var near []int
	id = strings.TrimSuffix(id, dots) // as the log shows it
	for i := range list {
		switch {
		case list[i].Refused != "":
		case list[i].ID == id:
			return i, nil
		case strings.HasPrefix(list[i].ID, id):
			near = append(near, i)
		}
	}
	switch len(near) {
	case 0:
		return 0, fmt.Errorf("no decision %s: 'hearsay scale log' lists them; of a pool: hearsay scale log --pool %s", id, id)
	case 1:
		return near[0], nil
	}
	return 0, fmt.Errorf("%d decisions begin with %s: say more of the id", len(near), id)
}

// print shows all that is known of a decision.
func (f *fullDecision) print(w io.Writer, now time.Time) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-9s %s\n", name, strings.Map(printable, fmt.Sprintf(format, args...)))
	}
	stamp := func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }
	d := &f.Decision
	line("decision", "%s", d.ID)
	line("target", "%s/%s, %d to %d", d.Pool, d.Role, d.From, d.To)
	line("made", "%s by %s", stamp(d.At), cmp.Or(d.ByName, d.By))
	line("fence", "epoch %d, decision %d", d.Epoch, d.Index)
	line("reason", "%s", d.Reason)
	switch {
	case d.Outcome == "":
		line("outcome", "under way for %s", took(d, now))
	case d.DoneAt != nil:
		line("outcome", "%s after %s, at %s", outcome(d), took(d, now), stamp(*d.DoneAt))
	default:
		line("outcome", "%s", outcome(d))
	}
	if d.Detail != "" {
		line("detail", "%s", d.Detail)
	}
	if len(d.Victims) > 0 {
		line("victims", "%s", strings.Join(d.Victims, " "))
	}
	name := "evidence"
	for _, k := range slices.Sorted(maps.Keys(d.Evidence)) {
		line(name, "%-24s %s", k, strconv.FormatFloat(d.Evidence[k], 'f', -1, 64))
		name = ""
	}
	name = "refused"
	for i := range f.RefusedSince {
		r := &f.RefusedSince[i]
		line(name, "%s %s, %s", stamp(r.At), change(r), why(r))
		name = ""
	}
	if len(f.RefusedSince) == 0 {
		line(name, "nothing since, as far as the asked router knows")
	}
	return nil
}

// dots stand for what was cut off.
const dots = ".."

// cut shortens a text to n characters, and shows that it did.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-len(dots))]) + dots
}

func unless0(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// fit shortens the last column so that no line is longer than width.
func (t *table) fit(width int) {
	last := len(t.rows[0]) - 1
	room := width
	for i := range last {
		widest := 0
		for _, r := range t.rows {
			widest = max(widest, utf8.RuneCountInString(r[i]))
		}
		room -= widest + 2
	}
	for _, r := range t.rows {
		r[last] = cut(r[last], max(8, room))
	}
}
