package consensus

import (
	"fmt"
	"io"
	"log"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// raftLog is Raft's logger on ours. Raft's word for everyday events is info and
// for a peer's absence error, so levels are mapped downwards: error to warn,
// warn and info to debug, the rest to trace.
type raftLog struct {
	log  zerolog.Logger
	name string
	args []any
}

func newRaftLog(l zerolog.Logger) hclog.Logger { return &raftLog{log: l, name: "raft"} }

func mapLevel(l hclog.Level) zerolog.Level {
	switch l {
	case hclog.Error:
		return zerolog.WarnLevel
	case hclog.Warn, hclog.Info:
		return zerolog.DebugLevel
	default:
		return zerolog.TraceLevel
	}
}

// unreachable are the beginnings of what Raft says, at level error and again and
// again, of peers that are away. Membership already reports them, once.
var unreachable = []string{
	"failed to make request", "failed to heartbeat", "failed to append", "failed to accept", "failed to decode incoming",
	"failed to flush response", "failed to contact",
}

// Log implements hclog.Logger.
func (r *raftLog) Log(level hclog.Level, msg string, args ...any) {
	if level == hclog.Error && slices.ContainsFunc(unreachable, func(p string) bool { return strings.HasPrefix(msg, p) }) {
		level = hclog.Info
	}
	if !r.enabled(level) {
		return
	}
	e := r.log.WithLevel(mapLevel(level))
	for _, list := range [][]any{r.args, args} {
		for i := 0; i+1 < len(list); i += 2 {
			k := fmt.Sprint(list[i])
			switch v := list[i+1].(type) {
			case error:
				e.AnErr(k, v)
			case string:
				e.Str(k, v)
			case fmt.Stringer:
				e.Stringer(k, v)
			case hclog.Format:
				if f, ok := first(v); ok {
					e.Str(k, fmt.Sprintf(f, v[1:]...))
				}
			default:
				e.Str(k, fmt.Sprint(v))
			}
		}
	}
	e.Str("source", r.name).Msg(msg)
}

func first(f hclog.Format) (string, bool) {
	if len(f) == 0 {
		return "", false
	}
	s, ok := f[0].(string)
	return s, ok
}

// Trace implements hclog.Logger.
func (r *raftLog) Trace(msg string, args ...any) { r.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (r *raftLog) Debug(msg string, args ...any) { r.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (r *raftLog) Info(msg string, args ...any) { r.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (r *raftLog) Warn(msg string, args ...any) { r.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (r *raftLog) Error(msg string, args ...any) { r.Log(hclog.Error, msg, args...) }

func (r *raftLog) enabled(l hclog.Level) bool {
	return mapLevel(l) >= max(r.log.GetLevel(), zerolog.GlobalLevel())
}

// IsTrace implements hclog.Logger.
func (r *raftLog) IsTrace() bool { return r.enabled(hclog.Trace) }

// IsDebug implements hclog.Logger.
func (r *raftLog) IsDebug() bool { return r.enabled(hclog.Debug) }

// IsInfo implements hclog.Logger.
func (r *raftLog) IsInfo() bool { return r.enabled(hclog.Info) }

// IsWarn implements hclog.Logger.
func (r *raftLog) IsWarn() bool { return r.enabled(hclog.Warn) }

// IsError implements hclog.Logger.
func (r *raftLog) IsError() bool { return r.enabled(hclog.Error) }

// ImpliedArgs implements hclog.Logger.
func (r *raftLog) ImpliedArgs() []any { return r.args }

// With implements hclog.Logger.
func (r *raftLog) With(args ...any) hclog.Logger {
	c := *r
	c.args = append(append([]any(nil), r.args...), args...)
	return &c
}

// Name implements hclog.Logger.
func (r *raftLog) Name() string { return r.name }

// Named implements hclog.Logger.
func (r *raftLog) Named(name string) hclog.Logger { return r.ResetNamed(r.name + "." + name) }

// ResetNamed implements hclog.Logger.
func (r *raftLog) ResetNamed(name string) hclog.Logger {
	c := *r
	c.name = name
	return &c
}

// SetLevel implements hclog.Logger; the level is the outer logger's affair.
func (r *raftLog) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (r *raftLog) GetLevel() hclog.Level {
	for _, l := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Error} {
		if r.enabled(l) {
			return l
		}
	}
	return hclog.Off
}

// StandardLogger implements hclog.Logger.
func (r *raftLog) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(r.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (r *raftLog) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{r} }

type lineWriter struct{ r *raftLog }

// Write implements io.Writer.
func (w lineWriter) Write(b []byte) (int, error) {
	w.r.Debug(string(b))
	return len(b), nil
}
