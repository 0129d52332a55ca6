package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
)

// The libraries' versions. Those for Go are in go.mod: openai-go's in that of this module,
// Anthropic's in that of messages, a module of its own.
const (
	openaiPython    = "2.8.1"
	openaiNode      = "6.9.1"
	anthropicPython = "2.14.0"
	anthropicNode   = "1.14.0"
)

//go:embed chat.py
var chatPython []byte

//go:embed chat.mjs
var chatNode []byte

//go:embed chat.sh
var chatCurl []byte

//go:embed messages.py
var messagesPython []byte

//go:embed messages.mjs
var messagesNode []byte

// client is one that is tried.
type client struct {
	name   string
	api    string // that it speaks: openai or anthropic
	script []byte // written to file, nil when set-up makes that
	file   string
	setUp  func(ctx context.Context, dir string) error // once
	run    func(dir string) []string                   // the command, the file's path to follow
}

// openaiClients speak OpenAI's API.
var openaiClients = []client{
	goClient("openai-go (Go)", "openai", "chat", ".", "./test/clients/chat"),
	pythonClient("openai", "openai", openaiPython, "chat.py", chatPython),
	nodeClient("openai", "openai", openaiNode, "chat.mjs", chatNode),
	{
		name: "curl", api: "openai", script: chatCurl, file: "chat.sh",
		setUp: func(ctx context.Context, dir string) error { return procs.Do(ctx, dir, "curl", "--version") },
		run:   func(string) []string { return []string{"sh"} },
	},
}

// messagesClients speak Anthropic's.
var messagesClients = []client{
	goClient("anthropic-sdk-go (Go)", "anthropic", "messages", "test/clients/messages", "."),
	pythonClient("anthropic", "anthropic", anthropicPython, "messages.py", messagesPython),
	nodeClient("@anthropic-ai/sdk", "anthropic", anthropicNode, "messages.mjs", messagesNode),
}

// goClient is a package of the module in a directory.
func goClient(library, api, file, module, pkg string) client {
	return client{
		name: library, api: api, file: file,
		setUp: func(ctx context.Context, dir string) error {
			return procs.Do(ctx, module, "go", "build", "-o", filepath.Join(dir, file), pkg)
		},
		run: func(string) []string { return nil },
	}
}

func pythonClient(library, api, version, file string, script []byte) client {
	return client{
		name: library + " " + version + " (Python)", api: api, script: script, file: file,
		setUp: func(ctx context.Context, dir string) error {
			if err := procs.Do(ctx, dir, "python3", "-m", "venv", "venv"); err != nil {
				return err
			}
			return procs.Do(ctx, dir, "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", library+"=="+version)
		},
		run: func(dir string) []string { return []string{filepath.Join(dir, "venv/bin/python")} },
	}
}

func nodeClient(library, api, version, file string, script []byte) client {
	return client{
		name: library + " " + version + " (Node)", api: api, script: script, file: file,
		setUp: func(ctx context.Context, dir string) error {
			return procs.Do(ctx, dir, "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, library+"@"+version)
		},
		run: func(string) []string { return []string{"node"} },
	}
}

// prepare installs a client below a directory.
func (c *client) prepare(ctx context.Context, dir string) error {
	fmt.Fprintf(os.Stderr, "setting up %s\n", c.name)
	if err := c.setUp(ctx, dir); err != nil {
		return fmt.Errorf("set up %s: %w", c.name, err)
	}
	if c.script == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, c.file), c.script, 0o644)
}
