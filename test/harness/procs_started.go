package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Started lists the living engines that the process actuator has started in the
// cluster's directory.
func (p *Procs) Started() []int { return StartedIn(p.cfg.Dir) }

// StartedIn lists the living engines that the process actuator has started below a
// directory: the actuator's records say which, and the marker in each process's
// environment that it is still the same one.
func StartedIn(dir string) []int {
	var pids []int
	for _, pattern := range []string{"*/processes.json", "*/*/processes.json", "*/*/*/processes.json"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			var book struct {
				Processes []struct {
					PID    int    `json:"pid"`
					Marker string `json:"marker"`
				} `json:"processes"`
			}
			if json.Unmarshal(b, &book) != nil {
				continue
			}
			for _, r := range book.Processes {
				if r.PID > 1 && r.Marker != "" && marked(r.PID, r.Marker) {
					pids = append(pids, r.PID)
				}
			}
		}
	}
	return pids
}

// marked reports whether a living process was started with the marker.
func marked(pid int, marker string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(env, []byte("HEARSAY_PROCESS="+marker))
}

// Alive reports whether a process of this id exists and is no zombie.
func Alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && len(b) > i+2 && b[i+2] != 'Z' && b[i+2] != 'X'
}
