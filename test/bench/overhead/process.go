package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is one that runs in the foreground until it is stopped.
type process struct {
	name, log string
	cmd       *exec.Cmd
	exited    chan struct{}
	err       error // set before exited is closed
}

// launch starts a program with its log in dir.
func launch(dir, name string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, f, f
	ownGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// ready waits until a URL answers 200.
func (p *process) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %v\n%s", p.name, p.err, p.said())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready\n%s", p.name, p.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) said() []byte {
	b, _ := os.ReadFile(p.log)
	return b[max(0, len(b)-2000):]
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process, with its children.
func (p *process) stop() {
	signalGroup(p.pid(), syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		signalGroup(p.pid(), syscall.SIGKILL)
		<-p.exited
	}
}
