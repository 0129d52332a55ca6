package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/table"
	"github.com/hearsay-llm/hearsay/test/whatif"
)

// Result is one cell with one seed.
type Result struct {
	Group    string             `json:"group"`
	Name     string             `json:"name"`
	Seed     uint64             `json:"seed"`
	Routers  int                `json:"routers"`
	Replicas int                `json:"replicas"`
	Sharing  bool               `json:"sharing"`
	Workload string             `json:"workload"`
	Size     int                `json:"size"` // of the workload: requests, or rounds of K01
	KVTokens int                `json:"kv_tokens"`
	Policy   string             `json:"policy"`
	Rate     float64            `json:"rate"` // of the workload's own
	Figures  Figures            `json:"figures"`
	Extra    map[string]float64 `json:"extra,omitempty"` // of a case that is not a plain replay
}

// Options says which part of a matrix to run.
type Options struct {
	Scale  Scale
	Groups []string // empty: all
	Match  string   // regular expression that finds a cell by its name; empty: all
	First  int      // seed; default 1
	Seeds  int      // per cell; default 3, 1 for Quick
	Pick   []string // weights of the pick, each "stream_weight=0.3": see whatif.Settings
	Out    string   // directory of figures; empty: none are written
	Keep   bool     // what Out holds of other cells stays, and is part of the result
	Images string   // directory of plots; empty: none
	Trace  string   // directory of one file a cell and seed, with every pick; empty: none
	Log    io.Writer
}

// Run runs cells one after another, each in a bubble of its own, tells progress on
// o.Log, and writes what it has after each.
func Run(t *testing.T, o Options) []Result {
	t.Helper()
	if o.Seeds == 0 {
		o.Seeds = 3
		if o.Scale == Quick {
			o.Seeds = 1
		}
	}
	match, err := regexp.Compile(o.Match)
	if err != nil {
		t.Fatal(err)
	}
	var todo []Cell
	for _, g := range Groups() {
		if len(o.Groups) > 0 && !slices.Contains(o.Groups, g) {
			continue
		}
		for _, c := range Matrix(o.Scale) {
			if c.Group == g && match.MatchString(c.Name) {
				todo = append(todo, c)
			}
		}
	}
	var lib library
	results, err := kept(o)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for seed := uint64(max(1, o.First)); seed <= uint64(o.Seeds); seed++ {
		for i, cell := range todo {
			if cell.Seeds > 0 && seed > uint64(cell.Seeds) {
				continue
			}
			w, err := lib.get(cell.Work, seed, cell.Size)
			if err != nil {
				t.Fatal(err)
			}
			if err := cell.weigh(o.Pick); err != nil {
				t.Fatal(err)
			}
			run := runCell
			if cell.Bisect {
				run = findKnee
			}
			if cell.Run != nil {
				run = cell.Run
			}
			if o.Trace != "" {
				cell.Trace, cell.TraceFile = true, filepath.Join(o.Trace, traceName(&cell, seed))
			}
			r, err := run(t, cell, seed, w)
			if err != nil {
				t.Errorf("%s, %s, seed %d: %v", cell.Group, cell.Name, seed, err)
				continue
			}
			results = slices.DeleteFunc(results, func(x Result) bool { return x.Group == r.Group && x.Name == r.Name && x.Seed == r.Seed })
			results = append(results, r)
			if o.Log != nil {
				f := &r.Figures
				fmt.Fprintf(o.Log, "[%6.0f s] seed %d cell %d/%d  %-12s %-44s hit %.3f  TTFT %.3f s  virtual %.0f s  CPU %.1f s\n",
					time.Since(began).Seconds(), seed, i+1, len(todo), r.Group, r.Name, f.HitRate, f.TTFTMean, f.Virtual, f.CPU)
			}
			if err := write(o, results); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.Images != "" {
		if err := Plot(o.Images, results); err != nil {
			t.Error(err)
		}
	}
	return results
}

// weigh sets weights of the pick.
func (c *Cell) weigh(settings []string) error {
	base := whatif.DefaultConfig()
	base.Routing = c.Pick
	v, err := whatif.Variants(base, settings)
	if err == nil {
		c.Pick = v[0].Routing
	}
	return err
}

// kept is what an earlier run wrote.
func kept(o Options) (results []Result, err error) {
	if !o.Keep || o.Out == "" {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(o.Out, "sim.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &results); err != nil {
		return nil, fmt.Errorf("figures of an earlier run: %w", err)
	}
	return results, nil
}

// runCell runs one cell in a bubble.
func runCell(t *testing.T, cell Cell, seed uint64, w *Workload) (r Result, err error) {
	cell.Config.Seed = seed
	spent := cpu()
	t.Run(fmt.Sprintf("%s/%s/%d", cell.Group, cell.Name, seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var c *Cluster
			if c, err = NewCluster(t.Context(), cell.Config, w); err != nil {
				c.Close()
				return
			}
			r = Result{
				Group: cell.Group, Name: cell.Name, Seed: seed, Routers: c.cfg.Routers, Replicas: c.cfg.Replicas,
				Sharing: !c.cfg.NoSharing, Workload: w.Name, Size: cell.Size, KVTokens: c.cfg.KVTokens,
				Policy: c.cfg.Policy, Rate: c.cfg.Rate,
			}
			if cell.Drive != nil {
				r.Extra = cell.Drive(c)
			} else {
				c.Run()
			}
			r.Figures = c.Figures()
			if cell.TraceFile != "" {
				if err = c.writeTrace(cell.TraceFile); err != nil {
					t.Error(err)
				}
			}
			if cell.Group == "scale" {
				r.Figures.HeapBytes = c.weigh()
				return
			}
			c.Close()
		})
	})
	r.Figures.CPU = cpu() - spent
	return r, err
}

// cpu is what this process has used, seconds.
func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// heap is what is in use after collections, bytes: what pools keep goes with the second.
func heap() float64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// weigh stops the cluster and returns what letting go of its routers frees, per
// router.
func (c *Cluster) weigh() float64 {
	c.Close()
	with := heap()
	n := float64(len(c.all))
	c.mu.Lock()
	c.routers, c.all = make([]*Router, c.cfg.Routers), nil
	clear(c.boots)
	c.mu.Unlock()
	return (with - heap()) / n
}

// write writes results as JSON and, one row per cell and seed, as CSV.
func write(o Options, results []Result) error {
	if o.Out == "" {
		return nil
	}
	if err := table.Save(o.Out, "sim.json", results); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Out, "sim.csv"), csvOf(results), 0o644)
}
