package replay

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	liveEvery  = 250 * time.Millisecond
	linesEvery = 5 * time.Second
)

// showProgress writes and hands out snapshots until stop is closed, and a last one then.
func showProgress(cfg *Config, b *book, stop <-chan struct{}) {
	every := linesEvery
	if cfg.Progress == nil {
		every = liveEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			showSnapshot(cfg, b.snapshot(now))
		case <-stop:
			showSnapshot(cfg, b.snapshot(time.Now()))
			return
		}
	}
}

// showSnapshot writes one snapshot; what can't be written is not seen, and ends nothing.
func showSnapshot(cfg *Config, s Snapshot) {
	if cfg.Observe != nil {
		cfg.Observe(s)
	}
	if cfg.Progress != nil {
		_, _ = io.WriteString(cfg.Progress, s.String()+"\n")
	}
}

// String is the progress line without a line end.
func (s Snapshot) String() string { return s.Fit(math.MaxInt) }

// figure is one of a progress line. Where the line is too long, the one of the highest
// rank goes first.
type figure struct {
	text string
	rank int
}

// Fit is String with as many figures, the most telling ones, as width columns hold; one
// at least. All are ASCII.
func (s Snapshot) Fit(width int) string {
	const gap = "  "
	list := s.figures()
	for {
		texts := make([]string, len(list))
		least := 0
		for i := range list {
			texts[i] = list[i].text
			if list[i].rank > list[least].rank {
				least = i
			}
		}
		line := strings.Join(texts, gap)
		if len(line) <= width || len(list) == 1 {
			return line
		}
		list = slices.Delete(list, least, least+1)
	}
}

func (s Snapshot) figures() []figure {
	// Sent is what is done and what runs; errors tell most once there are any.
	list := []figure{
		{clock(s.Elapsed), 0},
		{fmt.Sprintf("sent %d", s.Sent), 8},
		{fmt.Sprintf("done %d", s.Done-s.Unfinished), 6},
		{fmt.Sprintf("running %d", s.InFlight), 5},
	}
	errors := figure{fmt.Sprintf("errors %d", s.Errors), 7}
	if s.Errors > 0 {
		errors.rank = 1
	}
	list = append(list, errors)
	if s.Unfinished > 0 {
		list = append(list, figure{fmt.Sprintf("unfinished %d", s.Unfinished), 4})
	}
	if s.TTFT > 0 {
		list = append(list, figure{"TTFT p50 " + seconds(s.TTFT), 3})
	}
	if s.HitRate != nil {
		list = append(list, figure{fmt.Sprintf("hit rate %.1f %%", 100**s.HitRate), 2})
	}
	switch {
	case s.ETA > 0:
		list = append(list, figure{"last sent in " + clock(s.ETA), 4})
	case !s.Sending && s.InFlight > 0:
		list = append(list, figure{"all sent, waiting for the rest", 4})
	}
	return list
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
