package actuator

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// markerName is the environment variable by which a process is found whose pid was
// not recorded before its starter died.
const markerName = "HEARSAY_PROCESS"

// launch starts r's process. The intent is recorded first: a router that dies in
// between leaves a process that the next one finds by its marker.
func (p *Process) launch(b *book, r *record) error {
	if r.Port == 0 || !r.WasReady {
		port, err := p.freePort(b)
		if err != nil {
			return err
		}
		r.Port = port
	}
	r.Marker = rand.Text()
	if err := b.write(); err != nil {
		return err
	}
	pid, err := p.exec(r)
	if err != nil {
		r.Marker = ""
		r.Problem = err.Error()
		return err
	}
	r.Problem = ""
	r.PID, r.Started, r.StartedAt, r.ReadyAt = pid, started(pid), time.Now(), time.Time{}
	p.log.Info().Str("replica", r.ID).Int("pid", pid).Int("port", r.Port).Str("decision", r.Decision).Msg("process started")
	return b.write()
}

// args are the program and the arguments that start r.
func (p *Process) args(r *record) []string {
	fill := strings.NewReplacer("{port}", strconv.Itoa(r.Port), "{pool}", r.Pool, "{model}", r.Model,
		"{role}", string(r.Role), "{id}", r.ID)
	args := make([]string, len(p.cfg.Command))
	for i, a := range p.cfg.Command {
		args[i] = fill.Replace(a)
	}
	return args
}

// notStarted says why a command could not be started, with the command.
func notStarted(args []string, err error) error {
	var path *fs.PathError
	var lookup *exec.Error
	switch {
	case errors.As(err, &path): // without "fork/exec" and the path once more
		err = path.Err
	case errors.As(err, &lookup):
		err = lookup.Err
	}
	err = fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	if dir, derr := os.Getwd(); derr == nil && strings.ContainsRune(args[0], filepath.Separator) && !filepath.IsAbs(args[0]) {
		err = fmt.Errorf("%w (from %s)", err, dir)
	}
	return err
}

func (p *Process) exec(r *record) (int, error) {
	args, path := p.args(r), p.logFile(r)
	p.boundLog(r)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = log, log
	c.Env = append(os.Environ(), markerName+"="+r.Marker)
	// A group of its own: a signal to the router's is not one to the engines.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return 0, notStarted(args, err)
	}
	pid := c.Process.Pid
	return pid, c.Process.Release() // reap collects it
}

func (p *Process) freePort(b *book) (int, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range 64 {
		l, err := net.Listen("tcp", net.JoinHostPort(p.cfg.Address, "0"))
		if err != nil {
			return 0, fmt.Errorf("find a port: %w", err)
		}
		held = append(held, l)
		port := l.Addr().(*net.TCPAddr).Port
		if !slices.ContainsFunc(b.Processes, func(r *record) bool { return r.Port == port }) {
			return port, nil
		}
	}
	return 0, errors.New("find a port: none is free")
}

// reap collects an ended child. For a process that is not this one's child it does
// nothing: its parent, or init, collects it.
func reap(pid int) {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

func isGroupLeader(pid int) bool {
	g, err := syscall.Getpgid(pid)
	return err == nil && g == pid
}

// findMarked finds the process that was started with the marker in its
// environment, 0 if there is none. Children of the engine inherit its environment: the
// leader of the group is the engine.
func findMarked(marker string) (int, error) {
	list, err := marked(marker)
	for _, pid := range list {
		if isGroupLeader(pid) {
			return pid, nil
		}
	}
	return 0, err
}
