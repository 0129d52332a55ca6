package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	minSecret  = 16 // bytes
	maxSecrets = 8  // in cluster.secret_file
	// keysEvery is how often cluster.secret_file is looked at.
	keysEvery = 2 * time.Second
)

// readSecrets reads the secrets of a file, one a line, the one to use first. An
// empty path has none.
func readSecrets(path string, most int) (list [][]byte, err error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for i, line := range bytes.Split(b, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(line) < minSecret {
			return nil, fmt.Errorf("line %d of %s has fewer than %d bytes: make a secret with 'openssl rand -hex 32'", i+1, path, minSecret)
		}
		if slices.ContainsFunc(list, func(x []byte) bool { return bytes.Equal(x, line) }) {
			return nil, fmt.Errorf("line %d of %s repeats a secret", i+1, path)
		}
		list = append(list, line)
	}
	if len(list) == 0 || len(list) > most {
		return nil, fmt.Errorf("%s has %d secrets, one a line: want 1 to %d", path, len(list), most)
	}
	return list, nil
}

// watchKeys takes new secrets from cluster.secret_file as it changes, without a
// restart. A file that can't be used changes nothing.
func (n *Node) watchKeys(ctx context.Context) error {
	path := n.cfg.Cluster.SecretFile
	if path == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		list, err := readSecrets(path, maxSecrets)
		if err == nil && !slices.EqualFunc(list, n.keys, bytes.Equal) {
			if err = n.setKeys(list); err == nil {
				n.log.Info().Strs("keys", fingerprints(list)).Msg("shared keys changed")
			}
		}
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			n.log.Warn().Err(err).Msg("shared keys stay as they are")
		}
	}
}

// setKeys gives both planes the secrets. Only watchKeys calls it once the node runs.
func (n *Node) setKeys(list [][]byte) error {
	if err := n.mesh.SetSecrets(list); err != nil {
		return err
	}
	if err := n.gossip.SetSecrets(list); err != nil {
		return err
	}
	n.keep(list)
	return nil
}

// keep remembers the secrets in use.
func (n *Node) keep(list [][]byte) {
	n.keys = list
	prints := fingerprints(list)
	n.prints.Store(&prints)
}

// fingerprints name secrets without telling them.
func fingerprints(list [][]byte) (out []string) {
	for _, s := range list {
		h := sha256.Sum256(s)
		out = append(out, hex.EncodeToString(h[:4]))
	}
	return out
}
