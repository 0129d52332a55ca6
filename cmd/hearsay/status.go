package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

func newStatus() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "status", Short: "One page about a router and its cluster", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s console.Status
			return show(cmd, a, "status", &s, func(w io.Writer) error { return printStatus(w, &s) })
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
	if a.json {
		_, err = os.Stdout.Write(raw)
		return err
	}
	return print(os.Stdout)
}

func printStatus(w io.Writer, s *console.Status) error {
	ready := "ready"
	if !s.Ready {
		ready = "not ready: " + strings.Join(s.Reasons, ", ")
	}
	r := s.Router
	leader := r.Raft.Leader
	if leader == "" {
		leader = "none"
	}
	sharing := "on"
	if !r.Sharing {
		sharing = "off"
	}
	fmt.Fprintf(w, "router   %s (%s), %s, up %s, version %s\n", r.Name, r.ID, ready, (time.Duration(s.UptimeS) * time.Second).String(), r.Version)
	fmt.Fprintf(w, "listens  api %s, admin %s, cluster %s\n", r.API, r.Admin, r.Cluster)
	fmt.Fprintf(w, "cluster  %s, %d of %d routers alive, sharing %s\n", id(r.Raft.ClusterID), s.Alive, s.Members, sharing)
	fmt.Fprintf(w, "raft     %s, leader %s, term %d, facts at %d, voters %s\n\n", r.Raft.Role, leader, r.Raft.Term, r.Raft.Facts, strings.Join(r.Raft.Voters, " "))
	t := newTable("pool", "model", "policy", "replicas", "ready", "in flight", "queued tokens", "skew", "target", "bounds", "actuator")
	for _, p := range s.Pools {
		target := "-"
		if p.Target > 0 {
			target = fmt.Sprint(p.Target)
		}
		if p.Held {
			target = fmt.Sprint(p.Target)
			target += " (held)"
		}
		t.row(p.Name, p.Model, p.Policy, p.Replicas, p.Ready, p.InFlight, count(float64(p.Queued)),
			fmt.Sprintf("%.2f", p.Skew), target, fmt.Sprintf("%d-%d", p.Min, p.Max), p.Actuator)
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

func id(s string) string {
	if s == "" {
		return "not formed yet"
	}
	return s
}

func newMembers() *cobra.Command {
	a := &admin{}
	cmd := &cobra.Command{
		Use: "members", Short: "The routers of the cluster", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []console.Member
			return show(cmd, a, "members", &list, func(w io.Writer) error {
				t := newTable("name", "id", "state", "raft", "api", "cluster", "mesh", "heard", "delay", "in flight", "facts", "note")
				for _, m := range list {
					role := "learner"
					if m.Voter {
						role = "voter"
					}
					if m.Leader {
						role = "leader"
					}
					heard, delay := millis(m.HeardMS), millis(m.DelayMS)
					if m.Self {
						heard, delay = "self", "-"
					}
					t.row(m.Name, m.ID, m.State, role, m.API, m.Cluster, m.Mesh, heard, delay, m.InFlight, m.Facts, m.Degraded)
				}
				return t.write(w)
			})
		},
	}
	a.addOutput(cmd)
	return cmd
}

func newReplicas() *cobra.Command {
	a := &admin{}
	var pool string
	cmd := &cobra.Command{
		Use: "replicas", Short: "The replicas: load, readings, what they hold", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []console.Replica
			path := "replicas"
			if pool != "" {
				path += "?pool=" + pool
			}
			return show(cmd, a, path, &list, func(w io.Writer) error {
				t := newTable("replica", "pool", "engine", "state", "in flight", "own", "foreign", "queued tok", "running", "waiting", "kv", "capacity", "sketch tok", "c_eff", "rho", "reading", "reason")
				for _, r := range list {
					t.row(replicaName(&r), r.Pool, r.Engine, r.State, r.InFlight, r.Own, count(float64(r.Foreign)), count(float64(r.Queued)),
						count(r.Running), count(r.Waiting), percent(r.KVUsage), count(r.Capacity),
						count(r.Sketch.LiveTokens), count(r.Sketch.CEff), fmt.Sprintf("%.2f", r.Sketch.Rho), millis(r.ReadingMS), r.Reason)
				}
				return t.write(w)
			})
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only this pool's replicas")
	return cmd
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
		Use: "models", Short: "The model names clients may use", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []console.Model
			return show(cmd, a, "models", &list, func(w io.Writer) error {
				t := newTable("name", "pool", "kind")
				for _, m := range list {
					kind := "model"
					if m.Alias {
						kind = "alias"
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
