// Command clients lets client libraries of other languages than Go, and curl, talk to
// routers as their users do: models, completions, embeddings, streams with tools,
// errors. It installs the libraries below -dir, starts three routers and two
// simulated engines as processes, and fails when any check of any client does.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/harness"
)

const model = "sim-70b"

// The libraries' versions.
const (
	openaiPython = "2.8.1"
	openaiNode   = "6.9.1"
)

//go:embed chat.py
var python []byte

//go:embed chat.mjs
var node []byte

//go:embed chat.sh
var curl []byte

// client is one that is tried.
type client struct {
	name   string
	script []byte
	file   string
	setUp  func(ctx context.Context, dir string) error // once
	run    func(dir string) []string                   // the command, the script's path to follow
}

var clients = []client{
	{
		name: "openai " + openaiPython + " (Python)", script: python, file: "chat.py",
		setUp: func(ctx context.Context, dir string) error {
			if err := do(ctx, dir, "python3", "-m", "venv", "venv"); err != nil {
				return err
			}
			return do(ctx, dir, "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "openai=="+openaiPython)
		},
		run: func(dir string) []string { return []string{filepath.Join(dir, "venv/bin/python")} },
	},
	{
		name: "openai " + openaiNode + " (Node)", script: node, file: "chat.mjs",
		setUp: func(ctx context.Context, dir string) error {
			return do(ctx, dir, "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, "openai@"+openaiNode)
		},
		run: func(string) []string { return []string{"node"} },
	},
	{
		name: "curl", script: curl, file: "chat.sh",
		setUp: func(ctx context.Context, dir string) error { return do(ctx, dir, "curl", "--version") },
		run:   func(string) []string { return []string{"sh"} },
	},
}

// check is one thing a client was asked to do, a line of JSON that its script prints.
type check struct {
	Name  string `json:"name"`
	Error string `json:"error"` // empty: it went well
}

// do runs a command in a directory; what it printed is the error's.
func do(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, out)
	}
	return nil
}

func main() {
	bin := flag.String("bin", "bin/hearsay", "the hearsay binary")
	dir := flag.String("dir", "bin/clients", "where the libraries are installed")
	flag.Parse()
	procs.Main("clients", func(ctx context.Context) error { return run(ctx, *bin, *dir) })
}

func run(ctx context.Context, bin, dir string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range clients {
		c := &clients[i]
		fmt.Fprintf(os.Stderr, "setting up %s\n", c.name)
		if err := c.setUp(ctx, dir); err != nil {
			return fmt.Errorf("set up %s: %w", c.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), c.script, 0o644); err != nil {
			return err
		}
	}
	cluster, err := procs.Start(ctx, harness.ProcsConfig{Bin: bin, Routers: 3, Engines: 2, Model: model, EngineArgs: []string{"--speed", "20"}})
	if err != nil {
		return err
	}
	defer cluster.Close()
	head := []string{"client", "check"}
	var rows [][]string
	failed, all := 0, 0
	for i := range clients {
		c, first := &clients[i], len(rows)
		for k, r := range cluster.Routers {
			if i == 0 {
				head = append(head, r.Name)
			}
			checks, err := c.try(ctx, dir, r.API)
			if err != nil {
				return fmt.Errorf("%s with %s: %w", c.name, r.Name, err)
			}
			if k > 0 && len(checks) != len(rows)-first {
				return fmt.Errorf("%s with %s: %d checks, %d with the router before", c.name, r.Name, len(checks), len(rows)-first)
			}
			for n, x := range checks {
				if k == 0 {
					rows = append(rows, []string{c.name, x.Name})
				}
				result := "ok"
				if x.Error != "" {
					failed++
					result = x.Error
				}
				all++
				rows[first+n] = append(rows[first+n], result)
			}
		}
	}
	table.Print(os.Stdout, "Official clients through three routers", len(head), head, rows)
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, all)
	}
	fmt.Printf("\nAll %d checks passed.\n", all)
	return nil
}

// try runs a client's script against a router.
func (c *client) try(ctx context.Context, dir, api string) (checks []check, err error) {
	args := append(c.run(dir), filepath.Join(dir, c.file), api, model)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &errOut)
	}
	for dec := json.NewDecoder(&out); dec.More(); {
		var x check
		if err := dec.Decode(&x); err != nil {
			return nil, err
		}
		checks = append(checks, x)
	}
	if len(checks) == 0 {
		return nil, errors.New("it checked nothing")
	}
	return checks, nil
}
