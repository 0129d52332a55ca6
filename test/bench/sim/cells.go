package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Cell is one cluster and what it is put through. The zero Drive replays the
// workload.
type Cell struct {
	Group string // what it belongs to: m1-agents, scale, ...
	Name  string // unique in its group
	Work  string
	Size  int // of the workload: requests, or rounds of K01
	Config
	Seeds int // at most so many; 0: all
	Drive func(*Cluster) map[string]float64
	// Bisect finds the knee: the cell runs at several rates, from Config.Rate on.
	Bisect bool
	// Run runs cells that are not of a Cluster.
	Run func(t *testing.T, c Cell, seed uint64, w *Workload) (Result, error)

	TraceFile string // where its picks are written; empty: nowhere
}

// Scale is how much of the matrix is run.
type Scale int

// The scales. Quick is what a test affords; Usual is what `make sim` runs.
const (
	Quick Scale = iota
	Usual
	Full
)

// lan is the links between routers, unless a cell says otherwise.
var lan = simnet.Link{Delay: 200 * time.Microsecond, Jitter: 200 * time.Microsecond}

// rough is a network with delay and loss.
var rough = simnet.Link{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.01}

// Groups lists the groups in the order they are run.
func Groups() []string { return append(RouterGroups(), PolicyGroups()...) }

// RouterGroups are about routers beside each other.
func RouterGroups() []string {
	return []string{"k01", "k02", "k03", "k06", "m1-agents", "m1-mooncake", "why", "m3", "scale"}
}

// PolicyGroups are about policies beside each other, and what the default one bears.
func PolicyGroups() []string {
	return []string{"knee", "policies", "llmd", "hot", "k07", "k05", "k12", "learn", "mixed"}
}

// Matrix is all cells of a scale.
func Matrix(s Scale) (cells []Cell) {
	add := func(c Cell) {
		if c.Link == (simnet.Link{}) {
			c.Link = lan
		}
		cells = append(cells, c)
	}
	pick := func(quick, usual, full int) int { return []int{quick, usual, full}[s] }
	k01Cells(add, pick)
	m1Cells(add, pick)
	whyCells(add, pick)
	m3Cells(add, pick)
	scaleCells(add, pick)
	kneeCells(add, pick)
	policyCells(add, pick)
	llmdCells(add, pick)
	hotCells(add, pick)
	learnCells(add, pick)
	mixedCells(add, pick)
	return cells
}

type adder func(Cell)

type picked func(quick, usual, full int) int

// onOff names a cell by its routers and whether they share.
func onOff(n int, off bool) string {
	switch {
	case n == 1:
		return "1 router"
	case off:
		return fmt.Sprintf("%d routers, sharing off", n)
	}
	return fmt.Sprintf("%d routers", n)
}

// k01Cells are the cases of cluster.md.
func k01Cells(add adder, pick picked) {
	for _, work := range []string{"k01", "k01-new"} {
		for _, n := range []int{1, 2, 4, 8} {
			for _, off := range []bool{false, true} {
				if off && n == 1 {
					continue
				}
				name := "repeated, "
				if work == "k01-new" {
					name = "fresh, "
				}
				add(Cell{
					Group: "k01", Name: name + onOff(n, off), Work: work, Size: pick(2, 3, 5),
					Config: Config{Routers: n, NoSharing: off, KVTokens: K01KV, Watch: true},
				})
			}
		}
	}
	add(Cell{Group: "k02", Name: "one of 4 routers", Work: "k01-fast", Size: 3, Config: Config{Routers: 4, KVTokens: K01KV}, Drive: driveRestart})
	add(Cell{
		Group: "k02", Name: "the only router", Work: "k01-fast", Size: 5,
		Config: Config{Routers: 1, KVTokens: K01KV, KeepDisk: true}, Drive: driveRestart,
	})
	add(Cell{Group: "k03", Name: "a fourth router", Work: "k01-fast", Size: 3, Config: Config{Routers: 4, Late: 1, KVTokens: K01KV}, Drive: driveJoin})
	for _, n := range []int{1, 4} {
		add(Cell{Group: "k06", Name: onOff(n, false) + ", 16 replicas", Work: "burst", Size: 32, Config: Config{Routers: n, Replicas: 16, InTurn: true}, Drive: driveBurst})
	}
	add(Cell{Group: "k06", Name: "4 routers, 1 replica", Work: "burst", Size: 32, Config: Config{Routers: 4, Replicas: 1, InTurn: true}, Drive: driveBurst})
}

// AgentsKV is each of 8 engines' cache under the agents: about what the live chats
// need, so that it must be used well.
const AgentsKV = 40_000

// m1Cells are hit rate and TTFT by number of routers.
func m1Cells(add adder, pick picked) {
	for _, work := range []string{"agents", "mooncake"} {
		kv, size := AgentsKV, pick(300, 1000, 4000)
		if work == "mooncake" {
			kv, size = 400_000, pick(150, 1000, 4000)
		}
		for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
			most := pick(4, 32, 64)
			if work == "mooncake" {
				most = pick(4, 32, 32)
			}
			if n > most {
				break
			}
			seeds := 0
			if n > 8 {
				seeds = pick(1, 3, 3)
			}
			for _, off := range []bool{false, true} {
				if off && n == 1 {
					continue
				}
				add(Cell{
					Group: "m1-" + work, Name: onOff(n, off), Work: work, Size: size, Seeds: seeds,
					Config: Config{Routers: n, NoSharing: off, KVTokens: kv, Watch: true, Delays: true},
				})
			}
		}
		add(Cell{
			Group: "m1-" + work, Name: "1 router, true caches", Work: work, Size: size,
			Config: Config{Routers: 1, KVTokens: kv, Watch: true, Truth: true},
		})
	}
}

// whyCells change one thing at a time on the Mooncake trace with 4 routers.
func whyCells(add adder, pick picked) {
	const n = 4
	ms := time.Millisecond
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"1 router", Config{Routers: 1}},
		{"as built", Config{}},
		{"no lessons", Config{NoLessons: true}},
		{"one store, one sketch, one calibration, one ratio", Config{OneStore: true, OneIndex: true, OneCalibration: true, OneRatio: true, NoLessons: true}},
		{"one store, one sketch, no lessons", Config{OneStore: true, OneIndex: true, NoLessons: true}},
		{"one sketch", Config{OneIndex: true}},
		{"one store", Config{OneStore: true}},
		{"one calibration and ratio", Config{OneCalibration: true, OneRatio: true, NoLessons: true}},
		{"links of 10 ms", Config{Link: simnet.Link{Delay: 10 * ms}}},
		{"links of 50 ms", Config{Link: simnet.Link{Delay: 50 * ms}}},
		{"rows and ops every 100 ms", Config{RowsEvery: 100 * ms, OpsEvery: 100 * ms}},
		{"engines do not say what runs", Config{NoForeign: true}},
		{"readings every 50 ms", Config{ReadEvery: 50 * ms}},
		{"readings every 1 s", Config{ReadEvery: time.Second}},
		{"pending placements count in full", Config{Pick: routing.Config{PendingCredit: 1}}},
		{"pending placements count half", Config{Pick: routing.Config{PendingCredit: 0.5}}},
	} {
		if c.cfg.Routers == 0 {
			c.cfg.Routers = n
		}
		c.cfg.Watch = true
		add(Cell{Group: "why", Name: c.name, Work: "mooncake", Size: pick(100, 1000, 4000), Seeds: pick(1, 1, 3), Config: c.cfg})
	}
}

// m3Cells offer requests to all routers at one instant.
func m3Cells(add adder, pick picked) {
	for _, w := range []struct {
		work string
		size int
		kv   []int
	}{
		{"agents", pick(200, 1000, 4000), []int{AgentsKV / 2, AgentsKV, AgentsKV * 2}},
		{"mooncake", pick(100, 600, 4000), []int{200_000, 400_000, 800_000}},
	} {
		for i, kv := range w.kv {
			for _, factor := range []float64{1, 2, 0.5} {
				if factor != 1 && i != 1 {
					continue
				}
				name := fmt.Sprintf("%s, KV %dk", w.work, kv/1000)
				if factor != 1 {
					name += fmt.Sprintf(", said to be %gx", factor)
				}
				add(Cell{
					Group: "m3", Name: name, Work: w.work, Size: w.size, Seeds: pick(1, 3, 3),
					Config: Config{Routers: 4, KVTokens: kv, CapacityFactor: factor, Watch: true, Probe: 5},
				})
			}
		}
	}
}

// scaleCells scale routers and replicas apart.
func scaleCells(add adder, pick picked) {
	for _, c := range []struct{ routers, replicas, requests int }{
		{3, 8, 240}, {10, 8, 240}, {32, 8, 240}, {3, 64, 1600}, {10, 64, 1600}, {32, 64, 1600}, {100, 64, 1000}, {3, 400, 8000}, {10, 1000, 16_000},
	} {
		if c.routers*c.replicas > pick(24, 1<<20, 1<<20) {
			continue
		}
		work := fmt.Sprintf("agents-%d", c.replicas)
		add(Cell{
			Group: "scale", Name: fmt.Sprintf("%d x %d", c.routers, c.replicas), Work: work, Size: pick(100, c.requests, 3*c.requests), Seeds: 1,
			Config: Config{Routers: c.routers, Replicas: c.replicas, KVTokens: AgentsKV, Link: rough, Delays: true, Probe: pick(10, max(20, c.requests/20), 50)},
		})
	}
}
