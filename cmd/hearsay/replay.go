package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hearsay-llm/hearsay/test/replay"
	"github.com/hearsay-llm/hearsay/test/traces"
)

// agentsTrace is the generated workload that replay knows beside recorded traces.
const agentsTrace = "agents"

type replayFlags struct {
	trace    string
	rate     float64
	requests int
	jsonPath string
	plotDir  string
	quiet    bool
	cfg      replay.Config
	whatIf   whatIfFlags
}

func newReplay() *cobra.Command {
	f := replayFlags{cfg: replay.Config{Model: "sim-70b", Speed: 1, Seed: 1, Timeout: 10 * time.Minute}}
	cmd := &cobra.Command{
		Use: "replay", Short: "Replay a trace against routers and measure what users would see",
		Long: `replay sends a trace's requests at their due times, whatever the state of earlier ones
(open loop), each to a random target, and reports TTFT, TPOT and end-to-end
percentiles, the cache-hit rate, goodput and errors.

--trace takes a file (Mooncake JSON lines, Azure CSV, or requests that a router recorded:
'hearsay events --kinds request -o json'; plain or gzip), one of the embedded traces ` + strings.Join(traces.Names(), ", ") + `,
or "` + agentsTrace + `" for generated multi-turn chats.

With --what-if nothing is sent: the trace runs through simulated routers and replicas
once for every combination of what is named, and a table shows the differences from
the first, such as --what-if policy=ttft,round_robin --what-if kv_tokens=200000,400000.
It takes the first ` + strconv.Itoa(whatIfRequests) + ` requests unless --requests says otherwise. With --target, then the admin
address of a router (token in HEARSAY_TOKEN), the simulated cluster is like its own. Of
recorded requests the last row is what really came of them.

Before it begins every target is asked for its models (GET /v1/models): one that can't
be reached, or lists models without --model, ends it.

Ctrl-C ends it early: what was measured until then is reported, and the exit code
is 130. A second Ctrl-C ends it at once.`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error { return runReplay(cmd, &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.trace, "trace", traces.MooncakeConversation, "trace to replay")
	fl.StringSliceVar(&f.cfg.Targets, "target", []string{"http://127.0.0.1:8080"}, "routers or engines, by URL or host:port; each request goes to one at random; with --what-if: the admin address of a router whose cluster is simulated")
	fl.StringVar(&f.cfg.Model, "model", f.cfg.Model, "model to ask for")
	fl.Float64Var(&f.rate, "rate", 1, "multiplies the trace's arrival rate")
	fl.IntVar(&f.requests, "requests", 0, "only the first N requests; 0 = all")
	fl.Float64Var(&f.cfg.Speed, "speed", 1, "the simulated engines' speed: trace times are divided by it, measured ones multiplied")
	fl.DurationVar(&f.cfg.Warmup, "warmup", 0, "leave out requests due before this (trace time)")
	fl.DurationVar(&f.cfg.SLO.TTFT, "slo-ttft", 2*time.Second, "time to first token that a good request meets")
	fl.DurationVar(&f.cfg.SLO.TPOT, "slo-tpot", 100*time.Millisecond, "time per output token that a good request meets")
	fl.Uint64Var(&f.cfg.Seed, "seed", 1, "decides texts, spreading and targets")
	fl.IntVar(&f.cfg.Concurrency, "concurrency", 0, "most requests in flight; 0 = 2048")
	fl.DurationVar(&f.cfg.Timeout, "timeout", f.cfg.Timeout, "of one request")
	fl.StringVar(&f.cfg.APIKey, "api-key", "", "bearer token to send")
	fl.BoolVar(&f.cfg.Debug, "debug", true, "ask routers for pick headers, for figures per replica and of predictions; they need api.debug: true")
	fl.StringVar(&f.jsonPath, "json", "", "write the report as JSON to this file; - for standard output")
	fl.StringVar(&f.plotDir, "plot", "", "write plots (SVG) into this directory")
	f.whatIf.register(fl)
	fl.BoolVar(&f.quiet, "quiet", false, "no progress")
	return cmd
}

func runReplay(cmd *cobra.Command, f *replayFlags) error {
	if err := f.whatIf.misplaced(cmd.Flags()); err != nil {
		return err
	}
	switch {
	case !(f.rate >= 1e-6 && f.rate <= 1e6): // further times fit no duration
		return usageError{fmt.Errorf("--rate: %v is not 0.000001 to 1000000", f.rate)}
	case f.cfg.Speed == 0: // which is the default's to replay
		return usageError{errors.New("--speed: 0 is not 0.001 to 1000000")}
	case f.requests < 0 || f.requests > maxRequests:
		return usageError{fmt.Errorf("--requests: %d is not 0 to %d", f.requests, maxRequests)}
	}
	if len(f.whatIf.lists) > 0 {
		return runWhatIf(cmd, f)
	}
	src, closer, err := openTrace(cmd.Context(), f)
	if err != nil {
		return err
	}
	defer closer()
	f.cfg.Source, f.cfg.Name = src, f.trace
	f.cfg.IgnoreEOS = true
	line := newLiveLine(os.Stderr)
	switch {
	case f.quiet:
	case line != nil:
		f.cfg.Observe = func(s replay.Snapshot) { line.show(s.Fit) }
	default:
		f.cfg.Progress = os.Stderr
	}
	if err := f.cfg.Validate(); err != nil {
		return asFlags(cmd, err)
	}
	switch err := replay.Check(cmd.Context(), f.cfg); {
	case cmd.Context().Err() != nil:
		return errInterrupted
	case err != nil:
		return fmt.Errorf("nothing was sent: %w", err)
	}
	if err := f.writable(); err != nil {
		return err
	}
	report, err := replay.Run(cmd.Context(), f.cfg)
	line.end()
	if err != nil {
		return err
	}
	if f.jsonPath != "-" {
		if err := report.WriteText(os.Stdout); err != nil {
			return err
		}
	}
	if err := writeJSON(f.jsonPath, report); err != nil {
		return err
	}
	if f.plotDir != "" {
		files, err := report.WritePlot(f.plotDir)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "plots: "+strings.Join(files, " "))
	}
	if report.Interrupted {
		of := ""
		if n := f.cfg.Expect.Requests; n > 0 {
			of = fmt.Sprintf(" of %d", n)
		}
		return fmt.Errorf("%w after %d%s requests, %d of them unfinished: the report is of the others", errInterrupted, report.Sent, of, report.Unfinished)
	}
	if report.Warmup == report.Sent && report.Sent > 0 {
		return fmt.Errorf("all %d requests were due within --warmup, so nothing was measured: give a shorter one, or more requests", report.Sent)
	}
	if report.OK == 0 && report.Sent > 0 {
		return fmt.Errorf("no request succeeded: see the errors above; is the target a router or an engine that serves %q?", f.cfg.Model)
	}
	return nil
}

// writable says before a run whether its results can be kept.
func (f *replayFlags) writable() error {
	if f.jsonPath != "" && f.jsonPath != "-" {
		file, err := os.OpenFile(f.jsonPath, os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return fmt.Errorf("--json: %w", err)
		}
		_ = file.Close()
	}
	if f.plotDir == "" {
		return nil
	}
	if err := os.MkdirAll(f.plotDir, 0o755); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	file, err := os.CreateTemp(f.plotDir, ".hearsay-plot-*")
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	_ = file.Close()
	return os.Remove(file.Name())
}

func writeJSON(path string, v any) error {
	var w io.Writer = os.Stdout
	switch path {
	case "":
		return nil
	case "-":
	default:
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		w = file
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// maxRequests bounds a replay: a trace is read through before it begins, and a
// generated one ends nowhere else.
const maxRequests = 1_000_000

// sourceFunc is a traces.Source.
type sourceFunc func() (*traces.Request, error)

// Next implements traces.Source.
func (f sourceFunc) Next() (*traces.Request, error) { return f() }

// openTrace opens what the flags name, cut and scaled, and sets what to expect of
// it for the progress line.
func openTrace(ctx context.Context, f *replayFlags) (src traces.Source, closer func(), err error) {
	open := func() (traces.Source, func(), error) {
		if f.trace == agentsTrace {
			n := f.requests
			if n == 0 {
				n = 200
			}
			a, err := traces.Agents(traces.AgentsConfig{Seed: f.cfg.Seed, Sessions: n, RealAnswers: true, Tools: 3})
			return a, func() {}, err
		}
		t, err := traces.Open(f.trace, traces.OpenConfig{Seed: f.cfg.Seed, Pool: f.whatIf.pool})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil, usageError{fmt.Errorf("--trace: there is no file %q, and the traces known by name are %s, %s",
				f.trace, strings.Join(traces.Names(), ", "), agentsTrace)}
		case err != nil:
			return nil, nil, err
		}
		return t, func() { _ = t.Close() }, nil
	}
	shape := func(s traces.Source) traces.Source {
		s = traces.Scale(s, f.rate)
		if f.requests > 0 {
			s = traces.Head(s, f.requests)
		}
		return s
	}
	s, done, err := open()
	if err != nil {
		return nil, nil, err
	}
	defer warnLost(s)
	whole := shape(s)
	stats, err := traces.Summarize(sourceFunc(func() (*traces.Request, error) {
		if ctx.Err() != nil {
			return nil, errInterrupted
		}
		return whole.Next()
	}))
	done()
	if err != nil {
		return nil, nil, fmt.Errorf("trace %s: %w", f.trace, err)
	}
	f.cfg.Expect = replay.Expect{Requests: stats.Requests, Duration: stats.Duration}
	s, done, err = open()
	if err != nil {
		return nil, nil, err
	}
	return shape(s), done, nil
}

// warnLost says that a recording is not whole.
func warnLost(s traces.Source) {
	if t, ok := s.(*traces.Trace); ok && t.Lost() > 0 {
		fmt.Fprintf(os.Stderr, "warning: %d events are missing in the recording, whose reader was too slow: there was more load than it has\n", t.Lost())
	}
}
