package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// ProcsConfig says what cluster of real processes to start.
type ProcsConfig struct {
	Bin     string // the hearsay binary
	Dir     string // for data, configuration and logs
	Routers int
	Engines int
	Model   string

	EngineArgs []string // further flags of engine-sim

	// EngineCommand is the command that runs an engine on a loopback port, in place of
	// the simulated one, which EngineArgs is for. It may start processes of its own if
	// they stay in its group.
	EngineCommand func(port int) []string
	EngineReady   time.Duration // how long an engine may take to load; 0 = 30 s

	Policy     string // default ttft
	NoSharing  bool   // routers tell each other nothing
	PoolYAML   string // further lines of the pool, indented by four blanks
	SharedYAML string // further top-level lines of every router's file
	MorePools  string // further entries of pools, indented by two blanks

	Voters     int           // default 3
	DrainDelay time.Duration // of routers that stop

	// Place gives a process, by its name, a host of its own; nil: all are on loopback.
	Place func(name string) (*Place, error)
}

// Place is a host of its own for a process.
type Place struct {
	IP   string
	Do   func(start func() error) error // starts a process there
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Procs is a running cluster of processes. Its methods are for one goroutine.
type Procs struct {
	cfg     ProcsConfig
	Routers []*Proc
	Engines []*Proc
	join    []string
}

// Proc is one process of a cluster.
type Proc struct {
	Name, API, Admin string // base URLs; an engine has no Admin
	args             []string
	command          bool // args are the whole command, which has a group of its own
	ready            time.Duration
	log              string
	cmd              *exec.Cmd
	exited           chan error
	place            *Place       // nil: loopback
	client           *http.Client // of its place
}

// readyWithin is how long a process may take until it is ready.
const readyWithin = 30 * time.Second

// StartProcs starts engines, then routers, and waits until all are ready. On an
// error nothing is left running.
func StartProcs(ctx context.Context, cfg ProcsConfig) (p *Procs, err error) {
	if cfg.Policy == "" {
		cfg.Policy = "ttft"
	}
	if cfg.EngineReady == 0 {
		cfg.EngineReady = readyWithin
	}
	p = &Procs{cfg: cfg}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if cfg.Voters == 0 {
		p.cfg.Voters = 3
	}
	ports, err := Ports(cfg.Engines + 4*cfg.Routers)
	if err != nil {
		return p, err
	}
	if cfg.Place != nil {
		if err := os.WriteFile(p.secretFile(), []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
			return p, err
		}
	}
	for i := range cfg.Engines {
		e := &Proc{Name: fmt.Sprintf("e%d", i+1), ready: cfg.EngineReady}
		if err := p.settle(e); err != nil {
			return p, err
		}
		e.API = fmt.Sprintf("http://%s:%d", e.ip(), ports[i])
		if cfg.EngineCommand != nil {
			e.args, e.command = cfg.EngineCommand(ports[i]), true
		} else {
			e.args = append([]string{"engine-sim", "--listen", fmt.Sprintf("%s:%d", e.ip(), ports[i]), "--model", cfg.Model}, cfg.EngineArgs...)
		}
		p.Engines = append(p.Engines, e)
		if err := p.start(e); err != nil {
			return p, err
		}
	}
	for i := range cfg.Routers {
		r := &Proc{Name: fmt.Sprintf("r%d", i+1)}
		if err := p.settle(r); err != nil {
			return p, err
		}
		p.Routers = append(p.Routers, r)
		p.join = append(p.join, fmt.Sprintf("%s:%d", r.ip(), ports[cfg.Engines+4*i+2]))
	}
	for i, r := range p.Routers {
		if err := p.router(r, ports[cfg.Engines+4*i:]); err != nil {
			return p, err
		}
		if err := p.start(r); err != nil {
			return p, err
		}
	}
	for _, proc := range append(append([]*Proc{}, p.Engines...), p.Routers...) {
		if err := proc.WaitReady(ctx, max(proc.ready, readyWithin)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// settle gives a process its host.
func (p *Procs) settle(proc *Proc) (err error) {
	if p.cfg.Place == nil {
		return nil
	}
	if proc.place, err = p.cfg.Place(proc.Name); err != nil {
		return err
	}
	proc.client = &http.Client{Transport: &http.Transport{DialContext: proc.place.Dial, IdleConnTimeout: 2 * time.Second}}
	return nil
}

func (proc *Proc) ip() string {
	if proc.place == nil {
		return "127.0.0.1"
	}
	return proc.place.IP
}

// Client reaches the process from its own host, its admin address too.
func (proc *Proc) Client() *http.Client {
	if proc.client == nil {
		return http.DefaultClient
	}
	return proc.client
}

func (p *Procs) secretFile() string { return filepath.Join(p.cfg.Dir, "secret") }

// router writes a router's configuration file and says how it is run.
func (p *Procs) router(r *Proc, ports []int) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "node: {name: %s, data_dir: %q}\n", r.Name, filepath.Join(p.cfg.Dir, r.Name))
	fmt.Fprintf(&b, "listen: {api: \"%s:%d\", admin: \"127.0.0.1:%d\", cluster: \"%s:%d\"}\n", r.ip(), ports[0], ports[1], r.ip(), ports[2])
	fmt.Fprintf(&b, "api: {debug: true, drain_delay: %v}\n", p.cfg.DrainDelay)
	join, _ := json.Marshal(p.join)
	if len(p.join) == 1 {
		join = []byte("[]")
	}
	secret := ""
	if r.place != nil { // beyond loopback there must be one
		secret = fmt.Sprintf(", secret_file: %q", p.secretFile())
	}
	fmt.Fprintf(&b, "cluster: {join: %s, bootstrap_expect: %d, voters: %d, sharing: %v%s}\n",
		join, min(3, p.cfg.Routers), p.cfg.Voters, !p.cfg.NoSharing, secret)
	fmt.Fprintf(&b, "%spools:\n  - name: chat\n    model: %s\n    policy: %s\n%s    replicas:\n", p.cfg.SharedYAML, p.cfg.Model, p.cfg.Policy, p.cfg.PoolYAML)
	for _, e := range p.Engines {
		fmt.Fprintf(&b, "      - {url: %q}\n", e.API)
	}
	b.WriteString(p.cfg.MorePools)
	file := filepath.Join(p.cfg.Dir, r.Name+".yaml")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		return err
	}
	r.args = []string{"serve", "--config", file}
	r.API, r.Admin = fmt.Sprintf("http://%s:%d", r.ip(), ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	return nil
}

func (p *Procs) start(proc *Proc) error {
	proc.log = filepath.Join(p.cfg.Dir, proc.Name+".log")
	f, err := os.OpenFile(proc.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if proc.command {
		proc.cmd = exec.Command(proc.args[0], proc.args[1:]...)
	} else {
		proc.cmd = exec.Command(p.cfg.Bin, proc.args...)
	}
	proc.cmd.Stdout, proc.cmd.Stderr = f, f
	proc.cmd.Dir = p.cfg.Dir
	KillWithParent(proc.cmd)
	if proc.command {
		ownGroup(proc.cmd)
	}
	run := proc.cmd.Start
	if proc.place != nil {
		run = func() error { return proc.place.Do(proc.cmd.Start) }
	}
	if err := run(); err != nil {
		return fmt.Errorf("start %s: %w", proc.Name, err)
	}
	proc.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(proc.cmd, proc.exited)
	return nil
}

// Start starts a process again that has ended.
func (p *Procs) Start(proc *Proc) error { return p.start(proc) }

// Kill ends a process at once, as kill -9 does, and waits for its end.
func (proc *Proc) Kill() {
	if proc.cmd == nil {
		return
	}
	if proc.command {
		_ = syscall.Kill(-proc.cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = proc.cmd.Process.Kill()
	<-proc.exited
	proc.cmd = nil
}

// Signal sends a signal to the process.
func (proc *Proc) Signal(sig syscall.Signal) error {
	if proc.cmd == nil {
		return fmt.Errorf("signal %s: it does not run", proc.Name)
	}
	return proc.cmd.Process.Signal(sig)
}

// Wait waits until the process has ended by itself, or was told to, and kills it
// after bound. The error is nil when it exited with code 0, and an
// *exec.ExitError for any other end of its own.
func (proc *Proc) Wait(bound time.Duration) error {
	if proc.cmd == nil {
		return nil
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-proc.exited:
		proc.cmd = nil
		return err
	case <-timer.C:
		proc.Kill()
		return errors.New(proc.Name + " did not stop in time and was killed")
	}
}

// Stop ends a process with SIGTERM and gives it a while before it is killed.
func (proc *Proc) Stop(bound time.Duration) error {
	if proc.cmd == nil {
		return nil
	}
	_ = proc.cmd.Process.Signal(syscall.SIGTERM)
	return proc.Wait(bound)
}

// PID is the process's id, 0 when it does not run.
func (proc *Proc) PID() int {
	if proc.cmd == nil {
		return 0
	}
	return proc.cmd.Process.Pid
}

// Log is what the process has written so far.
func (proc *Proc) Log() string {
	b, _ := os.ReadFile(proc.log)
	return string(b)
}

// WaitReady polls the process's readiness (an engine's health) until it is ready,
// it ends, or bound has passed. An engine of a kind that has no health path is ready
// when it answers 404.
func (proc *Proc) WaitReady(ctx context.Context, bound time.Duration) error {
	url := proc.API + "/health"
	if proc.Admin != "" {
		url = proc.Admin + "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	last := "no answer"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := proc.Client().Do(req)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK || proc.Admin == "" && resp.StatusCode == http.StatusNotFound {
				return nil
			}
			last = string(body)
		}
		select {
		case err := <-proc.exited:
			proc.exited <- err
			return fmt.Errorf("%s ended: %w\n%s", proc.Name, err, proc.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %s\n%s", proc.Name, bound, last, proc.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// APIs are the routers' client URLs.
func (p *Procs) APIs() []string {
	var out []string
	for _, r := range p.Routers {
		out = append(out, r.API)
	}
	return out
}

// GetAdmin fetches one admin path of a router into out.
func (proc *Proc) GetAdmin(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, proc.Admin+"/admin/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := proc.Client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: status %d", path, proc.Name, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// Close ends all processes: routers with SIGTERM, engines at once, also those that
// the process actuator started and that outlive the routers by design. Those are
// found if the pool's scale.dir lies in the cluster's directory.
func (p *Procs) Close() {
	for _, r := range p.Routers {
		if r.cmd != nil {
			_ = r.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, r := range p.Routers {
		_ = r.Stop(5 * time.Second)
	}
	for _, e := range p.Engines {
		e.Kill()
	}
	for _, pid := range p.Started() {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}
