package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/autoscale/actuator"
)

// orphans are processes that an actuator has started and that nobody looks after: their
// pool is not in the configuration any more, or something else scales it now.
type orphans struct {
	pool string
	gone bool // the pool is; else its actuator is another one
	list []actuator.Running
}

// orphaned lists them, in order of their pools, by the records that this router keeps:
// of pools that a reload took out, and what a configuration of before left in its own
// directory.
func (n *Node) orphaned() (out []orphans) {
	now := n.now()
	for _, dir := range n.leftDirs(now) {
		list, err := actuator.RunningIn(dir)
		if err != nil {
			continue // whoever scales by it says so
		}
		for _, r := range list {
			if now.hasProcesses(r.Pool) {
				continue
			}
			i := slices.IndexFunc(out, func(o orphans) bool { return o.pool == r.Pool })
			if i < 0 {
				i, out = len(out), append(out, orphans{pool: r.Pool, gone: now.pool(r.Pool) == nil})
			}
			out[i].list = append(out[i].list, r)
		}
	}
	slices.SortFunc(out, func(a, b orphans) int { return strings.Compare(a.pool, b.pool) })
	return out
}

// hasProcesses reports whether the process actuator scales a pool.
func (c *Config) hasProcesses(pool string) bool {
	p := c.pool(pool)
	return p != nil && p.Scale.Actuator == "process"
}

// leftDirs are the directories with records of processes of pools that have none now.
func (n *Node) leftDirs(now *Config) (list []string) {
	own := filepath.Join(n.cfg.Node.DataDir, ownProcesses)
	entries, _ := os.ReadDir(own) // none: nothing was started
	for _, e := range entries {
		if !now.hasProcesses(e.Name()) {
			list = append(list, filepath.Join(own, e.Name()))
		}
	}
	for i := range n.cfg.Pools {
		p := &n.cfg.Pools[i]
		if dir := n.processDir(p); n.cfg.hasProcesses(p.Name) && !now.hasProcesses(p.Name) && !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list
}

// names are the processes, as somebody who is to end them needs them.
func (o *orphans) names() (list []string) {
	for _, r := range o.list {
		list = append(list, fmt.Sprintf("%s (pid %d, port %d)", r.ID, r.PID, r.Port))
	}
	return list
}

// orphansFor is how long what was found is told again: finding it reads directories, and
// status asks often.
const orphansFor = 2 * time.Second

// orphanTold is what orphanWarnings said.
type orphanTold struct {
	at   time.Time
	of   *Config
	list []string
}

// orphanWarnings say what runs and is looked after by nobody, as of the last two seconds.
func (n *Node) orphanWarnings() []string {
	now := n.now()
	if t := n.orphansTold.Load(); t != nil && t.of == now && time.Since(t.at) < orphansFor {
		return t.list
	}
	t := &orphanTold{at: time.Now(), of: now, list: n.findOrphans()}
	n.orphansTold.Store(t)
	return t.list
}

// findOrphans is orphanWarnings as of now.
func (n *Node) findOrphans() (list []string) {
	for _, o := range n.orphaned() {
		why, mend := "is not in the configuration any more", "put the pool back"
		if !o.gone {
			why, mend = "is not scaled by the process actuator any more", "set scale.actuator to process again"
		}
		list = append(list, fmt.Sprintf("pool %s %s, and what was started for it runs on, looked after by nobody: %s. End them by hand, or %s",
			o.pool, why, strings.Join(o.names(), ", "), mend))
	}
	return list
}

// tellOrphans logs what a reload has left running: was is the configuration before it.
func (n *Node) tellOrphans(was *Config) {
	for _, o := range n.orphaned() {
		if o.gone && was.pool(o.pool) != nil {
			n.log.Warn().Str("pool", o.pool).Strs("replicas", o.names()).Msg("pool was taken out, and its processes run on")
		}
	}
}
