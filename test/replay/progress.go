package replay

import (
	"fmt"
	"io"
	"time"
)

const (
	liveEvery  = 250 * time.Millisecond
	linesEvery = 5 * time.Second
)

// showProgress writes and hands out snapshots until stop is closed, and a last one then.
func showProgress(cfg *Config, b *book, stop <-chan struct{}) {
	every := linesEvery
	if cfg.ProgressLive || cfg.Progress == nil {
		every = liveEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			showSnapshot(cfg, b.snapshot(now), false)
		case <-stop:
			showSnapshot(cfg, b.snapshot(time.Now()), true)
			return
		}
	}
}

// showSnapshot writes one snapshot; what can't be written is not seen, and ends nothing.
func showSnapshot(cfg *Config, s Snapshot, last bool) {
	if cfg.Observe != nil {
		cfg.Observe(s)
	}
	if cfg.Progress == nil {
		return
	}
	line := s.String()
	switch {
	case !cfg.ProgressLive:
		line += "\n"
	case last:
		line = "\r\x1b[K" + line + "\n"
	default:
		line = "\r\x1b[K" + line
	}
	_, _ = io.WriteString(cfg.Progress, line)
}

// String is the progress line without a line end.
func (s Snapshot) String() string {
	line := fmt.Sprintf("%s  sent %d  done %d  running %d  errors %d", clock(s.Elapsed), s.Sent, s.Done-s.Unfinished, s.InFlight, s.Errors)
	if s.Unfinished > 0 {
		line += fmt.Sprintf("  unfinished %d", s.Unfinished)
	}
	if s.TTFT > 0 {
		line += "  TTFT p50 " + seconds(s.TTFT)
	}
	if s.HitRate != nil {
		line += fmt.Sprintf("  hit rate %.1f %%", 100**s.HitRate)
	}
	switch {
	case s.ETA > 0:
		line += "  ETA " + clock(s.ETA)
	case !s.Sending && s.InFlight > 0:
		line += "  all sent, waiting for the rest"
	}
	return line
}

// clock shows a duration as minutes and seconds, with hours when there are any.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, sec := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%02d", h, m, sec)
	}
	return fmt.Sprintf("%d:%02d", m, sec)
}

// seconds shows a time with three digits and its unit.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 0.001:
		return fmt.Sprintf("%.0f us", s*1e6)
	case s < 0.01:
		return fmt.Sprintf("%.2f ms", s*1e3)
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 100:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}
