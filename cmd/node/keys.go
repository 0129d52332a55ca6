package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/state"
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
	b, err := state.ReadFile(path, maxNamed)
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
	if len(list) == 0 {
		return nil, fmt.Errorf("%s is empty: make a secret with 'openssl rand -hex 32'", path)
	}
	if len(list) > most {
		return nil, fmt.Errorf("%s has %d secrets, one a line: want %d at most", path, len(list), most)
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
		case <-n.rekey:
		}
		list, err := readSecrets(path, maxSecrets)
		if err == nil {
			err = runTogether(path, list, n.keys)
		}
		if err == nil && !slices.EqualFunc(list, n.keys, bytes.Equal) {
			err = n.changeKeys(list)
		}
		switch {
		case err == nil && said != "":
			said = ""
			n.keysFault.Store(nil)
			n.log.Info().Str("file", path).Msg("the file of shared keys is good again")
		case err == nil:
		case err.Error() != said:
			said = err.Error()
			n.keysFault.Store(&said)
			n.log.Warn().Err(err).Msg("shared keys stay as they are")
		}
	}
}

// runTogether finds a secret in use that has become one with another: it was the last
// line of a file, without an end, to which that one was appended.
func runTogether(path string, list, inUse [][]byte) error {
	for _, s := range list {
		for _, old := range inUse {
			if len(s) > len(old) && bytes.Contains(s, old) {
				return fmt.Errorf("a line of %s holds a secret in use (%s) and more: is a newline missing between two secrets?",
					path, fingerprints([][]byte{old})[0])
			}
		}
	}
	return nil
}

// changeKeys takes new secrets, and warns when none is left of those that other
// routers are known to accept.
func (n *Node) changeKeys(list [][]byte) error {
	old, r := n.keys, n.replaced.Load()
	if r != nil && !n.cutOff() {
		r = nil // the others have them by now
	}
	if err := n.setKeys(list); err != nil {
		return err
	}
	n.log.Info().Strs("keys", fingerprints(list)).Msg("shared keys changed")
	inBoth := func(former [][]byte) bool {
		return slices.ContainsFunc(list, func(s []byte) bool {
			return slices.ContainsFunc(former, func(f []byte) bool { return bytes.Equal(f, s) })
		})
	}
	switch {
	case r != nil && !inBoth(r.former): // as before
	case r != nil || inBoth(old):
		n.replaced.Store(nil)
	default:
		n.replaced.Store(&replaced{at: time.Now(), former: old})
		n.log.Warn().Str("file", n.cfg.Cluster.SecretFile).Strs("former", fingerprints(old)).Msg(noFormerKey)
	}
	return nil
}

// replaced is that all secrets were replaced at once.
type replaced struct {
	at     time.Time
	former [][]byte // the last ones that others are known to accept
}

const noFormerKey = "none of the secrets in use until now is in the file any more: routers that still have only those refuse this one"

// cutOffAfter is how long it takes membership to find out that keys differ, and to
// be one again when they do not.
const cutOffAfter = 15 * time.Second

// cutOff says that all secrets were replaced, and that not all other routers are
// known to have the new ones.
func (n *Node) cutOff() bool {
	r := n.replaced.Load()
	if r == nil {
		return false
	}
	early := time.Since(r.at) < cutOffAfter
	return slices.ContainsFunc(n.gossip.Members(), func(m gossip.Member) bool {
		return !m.Self && m.State != gossip.Left && (early || m.State == gossip.Dead || m.Degraded != "")
	})
}

// setKeys gives both planes the secrets. Only changeKeys calls it once the node runs.
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
