package actuator

import (
	"fmt"
	"path/filepath"

	"github.com/hearsay-llm/hearsay/state"
)

// Running is a process that was started as a replica, and runs.
type Running struct {
	Pool string
	ID   state.ReplicaID
	PID  int
	Port int // that it listens on
}

// RunningIn lists the processes of a Process's directory that run now. It touches
// neither them nor their records, so it may be called for a directory that nobody uses
// any more, and beside those who do. None where there are no records.
func RunningIn(dir string) (list []Running, err error) {
	b, err := readBook(filepath.Join(dir, bookFile))
	if err != nil {
		return nil, fmt.Errorf("read process records: %w", err)
	}
	for _, r := range b.Processes {
		if r.alive() {
			list = append(list, Running{Pool: r.Pool, ID: state.ReplicaID(r.ID), PID: r.PID, Port: r.Port})
		}
	}
	return list, nil
}
