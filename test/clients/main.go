// Command clients lets official client libraries, and curl, talk to routers as their
// users do: models, completions, embeddings, streams with tools, images, errors. It installs the
// libraries below -dir, starts routers and simulated engines of each kind as processes, and
// fails when any check of any client does. Clients of Anthropic's Messages API go to
// engines that speak OpenAI's, to a simulated Anthropic, and to that without a router.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/harness"
)

const model = "sim-70b"

// engineKey is the variable that holds the engines' credential.
const engineKey = "E2E_ENGINE_KEY"

// check is one thing a client was asked to do, a line of JSON that its script prints.
type check struct {
	Name  string `json:"name"`
	Error string `json:"error"` // empty: it went well
}

func main() {
	bin := flag.String("bin", "bin/hearsay", "the hearsay binary")
	dir := flag.String("dir", "bin/clients", "where the libraries are installed")
	direct := flag.Bool("direct", false, "only what goes to an engine without a router")
	flag.Parse()
	procs.Main("clients", func(ctx context.Context) error { return run(ctx, *bin, *dir, *direct) })
}

// trial is the clients that are tried with one cluster.
type trial struct {
	title   string
	clients []client
	cluster harness.ProcsConfig

	// What clients' scripts are told of the engines, by the API that they speak.
	flags map[string]string
}

// What scripts are told.
var (
	// Messages are translated: there are no thoughts, since the simulated engine tells
	// none in a chat, and counts of tokens are estimates. Responses are kept.
	chats = map[string]string{"openai": "responses", "anthropic": "translated"}
	// The same without Responses, which the simulated llama.cpp has not.
	chatsOnly = map[string]string{"anthropic": "translated"}
)

func trials(bin string, direct bool) []trial {
	engine := trial{
		"Official clients at a simulated Anthropic", messagesClients,
		harness.ProcsConfig{Bin: bin, Engines: 1, Model: model, EngineArgs: []string{"--speed", "20", "--engine", "anthropic"}},
		nil,
	}
	if direct {
		return []trial{engine}
	}
	face := func(engine, title string, flags map[string]string) trial {
		return trial{
			"Official clients through a router to a simulated " + title, slices.Concat(openaiClients, messagesClients),
			harness.ProcsConfig{Bin: bin, Routers: 1, Engines: 2, Model: model, EngineArgs: []string{"--speed", "20", "--engine", engine}},
			flags,
		}
	}
	return []trial{
		{
			"Official clients through three routers to a simulated vLLM", slices.Concat(openaiClients, messagesClients),
			harness.ProcsConfig{Bin: bin, Routers: 3, Engines: 2, Model: model, EngineArgs: []string{"--speed", "20"}},
			chats,
		},
		face("sglang", "SGLang", chats),
		face("llamacpp", "llama.cpp", chatsOnly),
		{
			"Official clients through a router to a simulated Anthropic", messagesClients,
			harness.ProcsConfig{
				Bin: bin, Routers: 1, Engines: 2, Model: model, EngineArgs: []string{"--speed", "20", "--engine", "anthropic"},
				PoolYAML: "    engine: anthropic\n    api_key_env: " + engineKey + "\n",
			},
			nil,
		},
		engine,
	}
}

func run(ctx context.Context, bin, dir string, direct bool) (err error) {
	if err := os.Setenv(engineKey, "simulated"); err != nil {
		return err
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ready := map[string]bool{}
	failed, all := 0, 0
	for _, t := range trials(bin, direct) {
		for i := range t.clients {
			c := &t.clients[i]
			if ready[c.name] {
				continue
			}
			if err := c.prepare(ctx, dir); err != nil {
				return err
			}
			ready[c.name] = true
		}
		f, n, err := t.run(ctx, dir)
		if err != nil {
			return err
		}
		failed, all = failed+f, all+n
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, all)
	}
	fmt.Printf("\nAll %d checks passed.\n", all)
	return nil
}

// run starts the cluster, tries the clients and prints what came of it: a row for each
// check, a column for each router, or for each engine where there are no routers.
func (t *trial) run(ctx context.Context, dir string) (failed, all int, err error) {
	cluster, err := procs.Start(ctx, t.cluster)
	if err != nil {
		return 0, 0, err
	}
	defer cluster.Close()
	targets := cluster.Routers
	if len(targets) == 0 {
		targets = cluster.Engines
	}
	head := []string{"client", "check"}
	for _, target := range targets {
		head = append(head, target.Name)
	}
	var rows [][]string
	for i := range t.clients {
		c, first := &t.clients[i], len(rows)
		for k, target := range targets {
			checks, err := c.try(ctx, dir, target.API, t.flags[c.api])
			if err != nil {
				return 0, 0, fmt.Errorf("%s with %s: %w", c.name, target.Name, err)
			}
			if k > 0 && len(checks) != len(rows)-first {
				return 0, 0, fmt.Errorf("%s with %s: %d checks, %d with the one before", c.name, target.Name, len(checks), len(rows)-first)
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
	table.Print(os.Stdout, t.title, len(head), head, rows)
	return failed, all, nil
}

// try runs a client's script against a base URL.
func (c *client) try(ctx context.Context, dir, api, flag string) (checks []check, err error) {
	args := append(c.run(dir), filepath.Join(dir, c.file), api, model)
	if flag != "" {
		args = append(args, flag)
	}
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
