package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Files in the data directory that keep what was learned over a restart. Either may
// be removed while the router does not run: it is learned again.
const (
	sketchFile  = "sketch"       // what replicas hold
	lessonsFile = "lessons.json" // how fast they are, bytes per token, outputs
)

func (n *Node) data(file string) string { return filepath.Join(n.cfg.Node.DataDir, file) }

// loadKnown reads what was saved. Damaged files are passed over.
func (n *Node) loadKnown() {
	b, err := os.ReadFile(n.data(sketchFile))
	if err == nil {
		err = n.index.Load(bytes.NewReader(b))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn().Err(err).Msg("saved sketch is unreadable, starting without it")
	}
	var list []state.Lesson
	if b, err = os.ReadFile(n.data(lessonsFile)); err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn().Err(err).Msg("saved lessons are unreadable, starting without them")
		return
	}
	for _, l := range list {
		n.lessons.Learn(l)
	}
}

// knownEvery is how often what was learned is written to disk.
const knownEvery = 30 * time.Second

// keepKnown writes what was learned now and then, and when ctx ends.
func (n *Node) keepKnown(ctx context.Context) error {
	tick := time.NewTicker(knownEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return n.saveKnown()
		case now := <-tick.C:
			n.index.Sweep(now)
			if err := n.saveKnown(); err != nil {
				n.log.Warn().Err(err).Msg("what was learned could not be saved")
			}
		}
	}
}

func (n *Node) saveKnown() error {
	var sketch bytes.Buffer
	if err := n.index.Save(&sketch); err != nil {
		return err
	}
	lessons, err := json.Marshal(n.lessons.All(nil))
	if err != nil {
		return err
	}
	return errors.Join(
		WriteFile(n.data(sketchFile), sketch.Bytes()),
		WriteFile(n.data(lessonsFile), lessons),
	)
}
