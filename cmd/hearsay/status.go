package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func newStatus() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "status", Short: "One page about a router and its cluster", Args: positional,
		Long: `status shows a router, its cluster, and the pools as that router sees them.

  accuracy   what the last minutes' predictions were worth: tokens expected in caches
             against those that engines reported, and times to first token, which are known
             once something was streamed
  view       how old the oldest engine reading and the others' load figures are; of an
             engine that can't be read, since the last attempt to
  gossip     how long news takes to other routers, traffic with them, what was dropped
  opinions   how many picks other routers would have made alike; regret is what it cost
             where they would not
  WAITING    requests in a pool's queues at all routers, in brackets those at this one by
             priority; EST. WAIT what one that comes now would wait; REFUSED/MIN what
             this router refused in the last minute, by reason. Shown while there is any.
  SKEW       longest over mean queue of a pool's replicas, smoothed over 5 s; 1 is even,
             or next to nothing queued (a mean below 5 ms)

? stands for what is not known, which is neither zero nor full. docs/operate.md explains the rest.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s console.Status
			return show(cmd, a, "status", &s, func(w io.Writer) error { return printStatus(w, &s, a.output == outputWide) })
		},
	}
	a.addOutput(cmd)
	return cmd
}

// show fetches path into out and prints it, as a table or as it came.
func show(cmd *cobra.Command, a *admin, path string, out any, print func(io.Writer) error) error {
	raw, err := a.call(cmd.Context(), "GET", path, nil, out)
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		_, err = os.Stdout.Write(raw)
		return err
	}
	return print(os.Stdout)
}

func printStatus(w io.Writer, s *console.Status, wide bool) error {
	ready := "ready"
	if !s.Ready {
		ready = "not ready: " + strings.Join(s.Reasons, ", ")
	}
	r := s.Router
	sharing := "on"
	if !r.Sharing {
		sharing = "off"
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-8s %s\n", name, strings.Map(printable, fmt.Sprintf(format, args...)))
	}
	line("router", "%s, %s, up %s, version %s", r.Name, ready, time.Duration(s.UptimeS)*time.Second, r.Version)
	line("listens", "api %s, admin %s, cluster %s", r.API, r.Admin, r.Cluster)
	line("cluster", "%s, %d of %s alive, sharing %s", id(r.Raft.ClusterID), s.Alive, plural(s.Members, "router"), sharing)
	line("raft", "%s", agreement(&r.Raft))
	if r.Raft.Forming && r.Config.Revision == 0 {
		line("config", "%s, agreed on in a moment", r.Config.Digest)
	} else {
		line("config", "%s", configMark(&r.Config))
	}
	if wide {
		line("ids", "router %s, boot %s, leader %s, epoch %d, voters %s", r.ID, r.Boot, orNone(r.Raft.Leader), r.Raft.Epoch, orNone(strings.Join(r.Raft.Voters, " ")))
		line("secrets", "%s", orNone(strings.Join(r.Secrets, " ")))
	}
	printFigures(line, &s.Figures, s.Members > 1)
	if len(s.Refused) > 0 {
		line("refused", "in the last minute, before the pool was known: %s", reasons(s.Refused))
	}
	fmt.Fprintln(w)
	t := newTable("pool", "model", "policy", "replicas", "ready", "in flight", "queued tokens", "skew", "target", "bounds", "actuator")
	pressed := slices.ContainsFunc(s.Pools, isPressed)
	if pressed {
		t.more(pressure...)
	}
	for _, p := range s.Pools {
		t.row(p.Name, p.Model, policyOf(&p), p.Replicas, p.Ready, p.InFlight, count(float64(p.Queued)),
			unlessZero(p.Skew, ratio), target(&p, true), fmt.Sprintf("%d-%d", p.Min, p.Max), p.Actuator, waiting(&p), expected(&p), reasons(p.Refused))
	}
	if err := t.write(w); err != nil {
		return err
	}
	for i, warn := range s.Warn {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "warning: "+strings.Map(printable, warn))
	}
	return nil
}

// policyOf is a pool's policy, what it comes to if that is another one, and what stands
// in the file where operators gave the pool another.
func policyOf(p *console.Pool) string {
	s := p.Policy
	if p.Effective != "" && p.Effective != p.Policy {
		s += " (" + p.Effective + ")"
	}
	if p.FilePolicy != "" && p.FilePolicy != p.Policy {
		s += ", file: " + p.FilePolicy
	}
	return s
}

// agreement says how this router stands to the others' agreement. A learner takes
// part in no term and knows no voters: it has the facts, and who led when they were
// committed.
func agreement(r *console.Raft) string {
	leader := "leader " + r.LeaderName
	if r.Leader == "" {
		leader = "no leader"
	}
	switch {
	case r.Forming && r.Leader == "":
		return fmt.Sprintf("%s, alone, leads in a moment, facts at %d", r.Role, r.Facts)
	case r.Role == "returning":
		return fmt.Sprintf("a voter by its own log, which %s has not called since it started, facts at %d", leader, r.Facts)
	case r.Role == "learner" && r.ClusterID == "":
		return "learner: no cluster is formed yet"
	case r.Role == "learner" && r.Removed:
		return fmt.Sprintf("learner, %s, facts at %d: no longer a voter, its vote was given up while it was away; nothing to do, it serves as before, "+
			"and is given a vote again when one is missing", leader, r.Facts)
	case r.Role == "learner" && r.Leader == "":
		return fmt.Sprintf("learner, no leader, facts at %d: no voter that is alive is known here", r.Facts)
	case r.Role == "learner":
		return fmt.Sprintf("learner, %s, facts at %d (not one of the voters: ask one of them who they are)", leader, r.Facts)
	}
	return fmt.Sprintf("%s, %s, term %d, facts at %d, voters %s", r.Role, leader, r.Term, r.Facts, orNone(strings.Join(r.VoterNames, " ")))
}

// printFigures says how well the router's picture fits, and what it costs.
func printFigures(line func(name, format string, args ...any), f *console.Figures, peers bool) {
	span := time.Duration(f.WindowS * float64(time.Second)).Round(time.Second)
	ratio := "?"
	if f.Ratio >= 0 {
		ratio = fmt.Sprintf("%.2f", f.Ratio)
	}
	first := "time to first token: none yet"
	if f.TTFTErrorP50MS >= 0 {
		first = fmt.Sprintf("time to first token off by %s p50, %s p99", millis(f.TTFTErrorP50MS), millis(f.TTFTErrorP99MS))
	}
	line("accuracy", "last %s: %s cached tokens predicted, %s reported by engines, ratio %s; %s", span, count(f.Predicted), count(f.Reported), ratio, first)
	if f.Opinions > 0 {
		line("opinions", "%s", opinions(f))
	}
	rows := ""
	if peers {
		rows = ", other routers' load " + millis(f.RowsAgeMS)
	}
	line("view", "oldest engine reading %s%s; sketches %s entries%s", millis(f.ReadingAgeMS), rows, count(f.SketchEntries), inBytes(f.SketchBytes))
	if peers {
		var dropped []string
		for _, reason := range slices.Sorted(maps.Keys(f.Dropped)) {
			dropped = append(dropped, fmt.Sprintf("%s %s", count(f.Dropped[reason]), reason))
		}
		line("gossip", "delay %s p50, %s p99; %s/s in, %s/s out; dropped %s",
			millis(f.DelayP50MS), millis(f.DelayP99MS), size(f.BytesInPerSec), size(f.BytesOutPerSec), orNone(strings.Join(dropped, ", ")))
	}
}

// opinions says what other routers think of this one's picks.
func opinions(f *console.Figures) string {
	alike := fmt.Sprintf("%.0f %% alike", 100*f.Alike)
	if f.Alike >= 1 {
		alike = "all alike"
	}
	regret := "?"
	if f.RegretP95MS >= 0 {
		regret = fmt.Sprintf("%.3g ms", f.RegretP95MS)
	}
	return fmt.Sprintf("%s asked about, %s, regret p95 %s", plural(f.Opinions, "pick"), alike, regret)
}

func inBytes(n float64) string {
	if n < 0 {
		return ""
	}
	return ", " + size(n)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func id(s string) string {
	if s == "" {
		return "not formed yet"
	}
	return s
}

func newMembers() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "members", Short: "The routers of the cluster", Args: positional,
		Long: `members shows the cluster's routers as the asked one sees them. HEARD is how long ago it
was heard, ADMIN what --server takes (a loopback address: on that host), DELAY how long its gossip takes, FACTS how far it has applied what the leader
committed; a learner has no Raft vote and serves like any other. More: docs/operate.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []console.Member
			return show(cmd, a, "members", &list, func(w io.Writer) error {
				t := newTable("name", "state", "raft", "api", "admin", "cluster", "mesh", "heard", "delay", "in flight", "facts", "note").
					wide(a.output, "id", "boot", "config")
				shown := displayNames(list)
				for i, m := range list {
					role := m.Raft
					if role == "" {
						role = "?"
					}
					heard, delay := millis(m.HeardMS), millis(m.DelayMS)
					if m.Self {
						heard, delay = "self", "-"
					}
					t.row(shown[i], m.State, role, m.API, cmp.Or(m.Admin, "?"), m.Cluster, m.Mesh, heard, delay, known(m.InFlight), known(m.Facts), cmp.Or(m.Trouble, m.Degraded), m.ID, m.Boot, configMark(m.Config))
				}
				return t.write(w)
			})
		},
	}
	a.addOutput(cmd)
	return cmd
}

// known is what is there, or ? if nothing is.
func known[T any](v *T) any {
	if v == nil {
		return "?"
	}
	return *v
}

// displayNames are the routers' names as status shows them: name/id where several
// share one.
func displayNames(list []console.Member) []string {
	count := map[string]int{}
	for _, m := range list {
		count[m.Name]++
	}
	out := make([]string, len(list))
	for i, m := range list {
		switch {
		case m.Name == "":
			out[i] = m.ID
		case count[m.Name] > 1:
			out[i] = m.Name + "/" + m.ID
		default:
			out[i] = m.Name
		}
	}
	return out
}

func newReplicas() *cobra.Command {
	a := &admin{}
	var pool string
	cmd := &cobra.Command{
		Use: "replicas", Short: "The replicas: load, readings, what they hold", Args: positional,
		Long: `replicas shows each replica as the asked router sees it. IN FLIGHT counts all routers'
requests, OWN this router's, FOREIGN what the engine runs besides; C_EFF is the cache size
that predictions use, RHO reported over predicted cached tokens, READING how long ago the
engine was read, or was last tried to be. ? is unknown. Below the replicas stand the pools
in whose queues requests wait or were refused, if there are any. All columns are explained in
docs/operate.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []console.Replica
			path := "replicas"
			if pool != "" {
				path += "?pool=" + url.QueryEscape(pool)
			}
			return show(cmd, a, path, &list, func(w io.Writer) error {
				t := newTable("replica", "pool", "engine", "state", "in flight", "own", "foreign", "queued tok", "running", "waiting", "kv", "capacity", "sketch tok", "c_eff", "rho", "reading", "reason").
					wide(a.output, "role", "source", "url", "reader", "entries", "horizon", "sketch mem", "trust", "prefill tok/s", "first ms", "itl ms", "samples", "adapters")
				for _, r := range list {
					rho := "?" // nothing was reported yet
					if r.Sketch.Samples > 0 {
						rho = unlessZero(r.Sketch.Rho, ratio)
					}
					t.row(replicaName(&r), r.Pool, r.Engine, r.State, r.InFlight, r.Own, count(float64(r.Foreign)), count(float64(r.Queued)),
						count(r.Running), count(r.Waiting), percent(r.KVUsage), count(r.Capacity),
						count(r.Sketch.LiveTokens), unlessZero(r.Sketch.CEff, count), rho, millis(r.ReadingMS), cmp.Or(r.Trouble, r.Reason),
						r.Role, r.Source, r.URL, r.ReaderName, r.Sketch.Entries, millis(1e3*r.Sketch.HorizonS), size(float64(r.Sketch.Bytes)),
						fmt.Sprintf("%.2f", r.Sketch.Trust), count(r.Speed.PrefillRate), fmt.Sprintf("%.1f", r.Speed.FixedMS), fmt.Sprintf("%.1f", r.Speed.ITLMS), r.Speed.Samples, adapters(&r))
				}
				if err := t.write(w); err != nil {
					return err
				}
				return a.printPressure(cmd.Context(), w, pool)
			})
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool's replicas")
	return cmd
}

// adapters are the LoRA adapters of a replica, those in its slots marked.
func adapters(r *console.Replica) string {
	list := slices.Clone(r.Adapters)
	for i, a := range list {
		if slices.Contains(r.Loaded, a) {
			list[i] += "*"
		}
	}
	return strings.Join(list, ",")
}

// replicaName is a replica's id, and where it is if the id does not say so.
func replicaName(r *console.Replica) string {
	_, at, _ := strings.Cut(r.URL, "://")
	if at == r.ID {
		return r.ID
	}
	return r.ID + " (" + at + ")"
}

func newModels() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "models", Short: "The model names clients may use", Args: positional,
		Long: `models shows the names a client may give as "model": each pool's model, and its aliases
(pools[].aliases in the configuration), which lead to the same replicas; and the LoRA
adapters that replicas list, which lead to those that do.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []console.Model
			return show(cmd, a, "models", &list, func(w io.Writer) error {
				t := newTable("name", "pool", "kind")
				for _, m := range list {
					kind := "model"
					if m.Alias {
						kind = "alias"
					} else if m.Parent != "" {
						kind = "adapter of " + m.Parent
					}
					t.row(m.Name, m.Pool, kind)
				}
				return t.write(w)
			})
		},
	}
	a.addOutput(cmd)
	return cmd
}

// configMark is which configuration of the pools a router runs; nil: it has not said.
func configMark(m *console.ConfigMark) string {
	switch {
	case m == nil:
		return "?"
	case m.Revision == 0:
		return m.Digest + ", not agreed on"
	}
	return fmt.Sprintf("%s, revision %d", m.Digest, m.Revision)
}
