package actuator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	firstBackOff = time.Second // after a child's first unexpected end
	maxBackOff   = time.Minute
	soundAfter   = time.Minute // ready for this long, earlier ends are forgotten
	crashLoop    = 3           // ends in a row that are one
	probeTimeout = time.Second
)

// MaxProcesses bounds those of a directory.
const MaxProcesses = 256

// ProcessConfig is what a Process needs.
type ProcessConfig struct {
	// Dir keeps the record of the processes, their logs, and the lock. Routers on
	// one machine that share it share the processes: whichever leads, adopts them.
	Dir string
	// Host names this machine in the replicas' ids. Default: the host name. The
	// replicas of another host are never touched: leadership moving there means
	// that nobody resizes what runs here until it returns.
	Host string
	// Command is the argument list that starts one engine. In each argument {port},
	// {pool}, {model}, {role} and {id} are replaced.
	Command []string
	// Address is where the engine listens and is probed. Default 127.0.0.1.
	Address string
	// HealthPath answers 200 once the engine is ready. Default /health.
	HealthPath string
	Engine     state.EngineKind // of the replicas. Default: the pool's
	Log        zerolog.Logger
}

// Process runs engines as processes of this machine. They outlive the router that
// started them: another router that leads here adopts them, by pid and start time.
// Safe for concurrent use, also by several processes that share Dir.
type Process struct {
	cfg    ProcessConfig
	log    zerolog.Logger
	http   *http.Client
	maxLog int64 // bytes of a log file before it is set aside
}

// NewProcess checks the configuration and starts nothing.
func NewProcess(cfg ProcessConfig) (*Process, error) {
	if cfg.Dir == "" {
		return nil, errors.New("process actuator: dir is empty")
	}
	if len(cfg.Command) == 0 || !slices.ContainsFunc(cfg.Command, func(a string) bool { return strings.Contains(a, "{port}") }) {
		return nil, errors.New("process actuator: the command must name {port}")
	}
	if cfg.Host == "" {
		h, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("process actuator: %w", err)
		}
		cfg.Host = h
	}
	cfg.Address = cmp.Or(cfg.Address, "127.0.0.1")
	cfg.HealthPath = cmp.Or(cfg.HealthPath, "/health")
	return &Process{
		cfg: cfg, maxLog: maxLogBytes,
		log: cfg.Log.With().Str("component", "actuator").Logger(),
		http: &http.Client{
			Timeout:       probeTimeout,
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// prefix begins the ids of a directory's replicas. What another directory has started is
// as foreign here as another host's: it is on no list of this one, and yet runs.
func (p *Process) prefix(b *book) string {
	if b.Place == "" {
		return "process:" + p.cfg.Host + ":"
	}
	return "process:" + p.cfg.Host + "." + b.Place + ":"
}

// List says what runs for a target.
func (p *Process) List(ctx context.Context, k state.TargetKey) (state.Actual, error) {
	ready, err := p.probeAll(ctx)
	if err != nil {
		return state.Actual{}, err
	}
	var a state.Actual
	err = p.locked(ctx, func(b *book) error {
		p.refresh(b, ready)
		a = p.actual(b, k, ready)
		return nil
	})
	return a, err
}

// Ensure starts what is missing, starts again what ended unasked, and stops what
// may be removed.
func (p *Process) Ensure(ctx context.Context, d state.Desired) (state.Actual, error) {
	ready, err := p.probeAll(ctx)
	if err != nil {
		return state.Actual{}, err
	}
	var a state.Actual
	err = p.locked(ctx, func(b *book) error {
		if err := b.pass(&d); err != nil {
			return err
		}
		p.refresh(b, ready)
		p.stop(b, &d)
		err := p.start(b, &d)
		a = p.actual(b, d.Target, ready)
		return err
	})
	return a, err
}

// probeAll asks every recorded process whether it is ready, without holding the
// lock meanwhile. The key is the marker, which no two starts share.
func (p *Process) probeAll(ctx context.Context) (map[string]bool, error) {
	var list []*record
	err := p.locked(ctx, func(b *book) error {
		list = b.Processes
		return nil
	})
	ready := map[string]bool{}
	for _, r := range list {
		if r.PID != 0 && started(r.PID) == r.Started {
			ready[r.Marker] = p.probe(ctx, r)
		}
	}
	return ready, err
}

func (p *Process) probe(ctx context.Context, r *record) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(r)+p.cfg.HealthPath, nil)
	if err != nil {
		return false
	}
	res, err := p.http.Do(req)
	if err != nil {
		return false
	}
	return res.Body.Close() == nil && res.StatusCode == http.StatusOK
}

func (p *Process) url(r *record) string {
	return "http://" + net.JoinHostPort(p.cfg.Address, strconv.Itoa(r.Port))
}

// refresh brings the records up to what the system says.
func (p *Process) refresh(b *book, ready map[string]bool) {
	now := time.Now()
	for _, r := range b.Processes {
		if r.PID == 0 && r.Marker != "" { // a start whose end was not recorded
			pid, err := findMarked(r.Marker)
			if err != nil {
				p.log.Warn().Err(err).Str("replica", r.ID).Msg("interrupted start not looked for")
			}
			if pid != 0 {
				r.PID, r.Started = pid, started(pid)
				p.log.Info().Str("replica", r.ID).Int("pid", pid).Msg("process adopted")
			}
		}
		if r.PID != 0 {
			reap(r.PID)
		}
		if r.alive() {
			r.noteReady(ready[r.Marker], now)
			p.boundLog(r)
			continue
		}
		if r.PID == 0 && r.Marker == "" {
			continue // known to have ended
		}
		if p.leftBehind(r, now) {
			continue
		}
		r.PID, r.Started, r.Marker = 0, "", ""
		if r.StopAt.IsZero() {
			p.noteEnd(r, now)
		}
	}
	p.forget(b)
}

// leftBehind sees to what an ended process leaves: workers of an engine keep its
// accelerators, and the next one would not find them free. Those of one that was asked to
// end may take as long as it might; true: that time is not over.
func (p *Process) leftBehind(r *record, now time.Time) bool {
	if r.Marker == "" {
		return false
	}
	pids, err := marked(r.Marker)
	if err != nil || len(pids) == 0 {
		return false
	}
	if now.Before(r.StopAt) {
		return true
	}
	p.log.Warn().Str("replica", r.ID).Ints("pids", pids).Msg("process has ended and left others: killed")
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			p.log.Warn().Err(err).Str("replica", r.ID).Int("pid", pid).Msg("process not signalled")
		}
	}
	return false
}

// noteReady remembers that a process has served. Ends before a lasting one are forgotten.
func (r *record) noteReady(ready bool, now time.Time) {
	switch {
	case !ready:
		return
	case r.ReadyAt.IsZero():
		r.ReadyAt = now
	case r.Ends > 0 && now.Sub(r.ReadyAt) >= soundAfter:
		r.Ends = 0
	}
	r.WasReady = true
}

// noteEnd puts off the next start of a process that has ended unasked: the longer, the
// more ends there were without a minute of service between.
func (p *Process) noteEnd(r *record, now time.Time) {
	r.NotBefore = now.Add(min(maxBackOff, firstBackOff<<min(r.Ends, 10)))
	r.Ends++
	r.ReadyAt = time.Time{}
	said := p.log.Warn().Str("replica", r.ID).Int("ends", r.Ends).Dur("dur_ms", r.NotBefore.Sub(now))
	if r.Ends < crashLoop {
		said.Msg("process ended unasked")
		return
	}
	said.Str("reason", lastLine(p.logFile(r))).Str("file", p.logFile(r)).Msg("process ends again and again")
}

// forget drops what was told to stop and has, with its log.
func (p *Process) forget(b *book) {
	b.Processes = slices.DeleteFunc(b.Processes, func(r *record) bool {
		over := r.PID == 0 && !r.StopAt.IsZero()
		if over {
			for _, f := range []string{p.logFile(r), p.logFile(r) + ".1"} {
				if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
					p.log.Warn().Err(err).Str("replica", r.ID).Msg("log not removed")
				}
			}
			p.log.Info().Str("replica", r.ID).Msg("process is gone")
		}
		return over
	})
}

// stop takes those that may be removed one step further: asked to end, then
// killed, then forgotten.
func (p *Process) stop(b *book, d *state.Desired) {
	now := time.Now()
	for _, r := range b.Processes {
		if !r.of(d.Target) {
			continue
		}
		if r.StopAt.IsZero() {
			if !slices.Contains(d.Remove, state.ReplicaID(r.ID)) {
				continue
			}
			r.StopAt = now.Add(d.Grace)
			p.log.Info().Str("replica", r.ID).Int("pid", r.PID).Str("decision", d.ID).Msg("process asked to end")
			p.signal(r, syscall.SIGTERM)
			continue
		}
		if now.After(r.StopAt) {
			p.log.Warn().Str("replica", r.ID).Int("pid", r.PID).Msg("process killed")
			p.signal(r, syscall.SIGKILL)
		}
	}
	p.forget(b)
}

// signal goes to the process group of a process that is surely the recorded one.
func (p *Process) signal(r *record, s syscall.Signal) {
	if !r.alive() {
		return
	}
	if err := syscall.Kill(-r.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.log.Warn().Err(err).Str("replica", r.ID).Int("pid", r.PID).Msg("process not signalled")
	}
}

// start makes up the number and revives what ended.
func (p *Process) start(b *book, d *state.Desired) error {
	now := time.Now()
	have := 0
	for _, r := range b.Processes {
		if r.of(d.Target) && r.StopAt.IsZero() && !slices.Contains(d.Remove, state.ReplicaID(r.ID)) {
			have++
		}
	}
	for ; have < d.Want; have++ {
		if len(b.Processes) >= MaxProcesses {
			return fmt.Errorf("start engine: there are %d processes already", MaxProcesses)
		}
		b.Processes = append(b.Processes, &record{
			ID:   p.prefix(b) + d.Target.Pool + "-" + string(d.Target.Role) + "-" + strings.ToLower(rand.Text()[:8]),
			Pool: d.Target.Pool, Role: d.Target.Role, Model: d.Pool.UpstreamName(),
			Engine: cmp.Or(p.cfg.Engine, d.Pool.Engine), Epoch: d.Epoch, Decision: d.ID,
		})
	}
	var errs []error
	for _, r := range b.Processes {
		if !r.of(d.Target) || r.PID != 0 || !r.StopAt.IsZero() || now.Before(r.NotBefore) {
			continue
		}
		if err := p.launch(b, r); err != nil {
			r.NotBefore = now.Add(min(maxBackOff, firstBackOff<<min(r.Ends, 10)))
			r.Ends++
			errs = append(errs, fmt.Errorf("start engine: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (p *Process) actual(b *book, k state.TargetKey, ready map[string]bool) state.Actual {
	a := state.Actual{Prefix: p.prefix(b)}
	for _, r := range b.Processes {
		if !r.of(k) {
			continue
		}
		i := state.Instance{
			Replica: state.Replica{
				ID: state.ReplicaID(r.ID), Pool: r.Pool, Role: r.Role, Engine: r.Engine,
				URL: p.url(r), Source: state.SourceCommitted,
			},
			Ready: r.Marker != "" && ready[r.Marker], Stopping: !r.StopAt.IsZero(),
		}
		switch {
		case i.Stopping || i.Ready:
		case r.PID == 0 && r.Problem != "":
			i.Problem = "start engine: " + r.Problem
		case r.Ends >= crashLoop, r.PID == 0 && r.Ends > 0: // a crash loop also while the next try starts
			i.Problem = fmt.Sprintf("ended %d times, last said %q: %s; see %s", r.Ends, lastLine(p.logFile(r)), strings.Join(p.args(r), " "), p.logFile(r))
		default:
			i.Problem = "not ready yet"
		}
		a.Instances = append(a.Instances, i)
	}
	slices.SortFunc(a.Instances, func(x, y state.Instance) int { return cmp.Compare(x.Replica.ID, y.Replica.ID) })
	return a
}

func (p *Process) logFile(r *record) string {
	parts := strings.SplitN(r.ID, ":", 3) // process:host:name
	name := strings.Map(func(c rune) rune {
		if c == '/' || c == os.PathSeparator || c < ' ' {
			return '_'
		}
		return c
	}, parts[len(parts)-1])
	return filepath.Join(p.cfg.Dir, name+".log")
}
