package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
)

// What is done to the shared secrets of all routers.
const (
	keyList   = "list"
	keyAdd    = "add"    // as the last one: accepted, not used
	keyUse    = "use"    // as the first one
	keyRemove = "remove" // not accepted any more
)

// keyWait is how long one router may take to change its file and go by it.
const keyWait = 5 * time.Second

// keyCall is one change, as it goes to each router over the encrypted mesh.
type keyCall struct {
	Op     string `json:"op"`
	Secret []byte `json:"secret,omitempty"` // add
	Print  string `json:"print,omitempty"`  // use, remove
}

type keyAnswer struct {
	Prints []string `json:"prints"` // in use, the first one first
	Err    string   `json:"error,omitempty"`
}

// Keyring changes the shared secrets on all live routers, or lists them. A change is
// refused, and nothing done, unless all live routers answer and it leaves every two of
// them a secret in common; and where routers are away, unless it is forced.
func (n *Node) Keyring(ctx context.Context, op, fingerprint string, force bool) ([]console.Keys, error) {
	if n.cfg.Cluster.SecretFile == "" {
		return nil, invalid("no shared secret is in use: set cluster.secret_file on all routers, and restart them")
	}
	n.keyring.Lock()
	defer n.keyring.Unlock()
	now := n.askKeys(ctx, &keyCall{Op: keyList})
	if op == keyList {
		return now, nil
	}
	c := keyCall{Op: op, Print: fingerprint}
	if err := keysAllow(now, op, fingerprint, force); err != nil {
		return nil, err
	}
	if op == keyAdd {
		var err error
		if c.Secret, err = n.secretToAdd(fingerprint); err != nil {
			return nil, err
		}
	}
	out := n.askKeys(ctx, &c)
	if op == keyAdd {
		markAdded(out, fingerprints([][]byte{c.Secret})[0])
	}
	return out, nil
}

// markAdded tells the secret that was added from those that were there.
func markAdded(list []console.Keys, print string) {
	for i := range list {
		if slices.Contains(list[i].Keys, print) {
			list[i].Added = print
		}
	}
}

func invalid(format string, args ...any) error {
	return &state.Refusal{Code: state.RefusedInvalid, Reason: fmt.Sprintf(format, args...)}
}

// keysAllow says why a change is not to be made, given what each live router has.
func keysAllow(now []console.Keys, op, print string, force bool) error {
	var away []string
	known := slices.ContainsFunc(now, func(k console.Keys) bool { return slices.Contains(k.Keys, print) })
	switch {
	case op != keyAdd && op != keyUse && op != keyRemove:
		return invalid("%.64q is nothing that is done to secrets: use add, use or remove", op)
	case !known && (op != keyAdd || print != ""):
		return &state.Refusal{Code: state.RefusedUnknown, Reason: fmt.Sprintf("no router has a secret %.64s: see hearsay keyring list", cmp.Or(print, "without a fingerprint"))}
	}
	for _, k := range now {
		switch {
		case k.Away:
			away = append(away, k.Name)
		case k.Error != "":
			return invalid("nothing was changed: router %s does not say which secrets it has: %s", k.Name, k.Error)
		case op == keyAdd && len(k.Keys) >= maxSecrets && !slices.Contains(k.Keys, print):
			return invalid("nothing was changed: router %s has %d secrets already: remove one first", k.Name, len(k.Keys))
		case op == keyUse && !slices.Contains(k.Keys, print):
			return invalid("nothing was changed: router %s has no secret %s: hearsay keyring add %s", k.Name, print, print)
		case op == keyRemove && slices.Index(k.Keys, print) == 0:
			return invalid("nothing was changed: router %s uses secret %s: hearsay keyring use another first", k.Name, print)
		}
	}
	if len(away) > 0 && !force { // they may never come back
		return invalid("nothing was changed: %d of %d routers are away (%s), whose files would stay as they are: start them first, "+
			"or repeat it with --force, and change cluster.secret_file of those that are to come back by hand before they do",
			len(away), len(now), strings.Join(away, ", "))
	}
	return nil
}

// secretToAdd is a new secret, or the one of this router's that others lack.
func (n *Node) secretToAdd(print string) ([]byte, error) {
	if print == "" {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails
		return hex.AppendEncode(nil, b[:]), nil
	}
	list, err := readSecrets(n.cfg.Cluster.SecretFile, maxSecrets)
	if err != nil {
		return nil, err
	}
	i := slices.Index(fingerprints(list), print)
	if i < 0 {
		return nil, invalid("this router has no secret %s: ask one that has", print)
	}
	return list[i], nil
}

// askKeys has every live router make a change, this one last: until then it accepts
// what the others used before.
func (n *Node) askKeys(ctx context.Context, c *keyCall) (out []console.Keys) {
	payload, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	var asked sync.WaitGroup
	members := slices.DeleteFunc(n.gossip.Members(), func(m gossip.Member) bool { return m.Self || m.State == gossip.Left })
	out = make([]console.Keys, len(members))
	for i, m := range members {
		out[i] = console.Keys{ID: string(m.ID), Name: m.Name}
		if m.State != gossip.Alive {
			out[i].Away, out[i].Error = true, "it is away: change its file by hand before it comes back"
			continue
		}
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, keyWait)
			defer cancel()
			b, err := n.mesh.Call(ctx, m.ID, callKeyring, payload)
			out[i] = keysOf(out[i], b, err)
		})
	}
	asked.Wait()
	b, err := n.changeOwnKeys(ctx, payload)
	return append(out, keysOf(console.Keys{ID: string(n.id), Name: n.cfg.Node.Name}, b, err))
}

func keysOf(k console.Keys, answer []byte, err error) console.Keys {
	var a keyAnswer
	if err == nil {
		err = json.Unmarshal(answer, &a)
	}
	if err == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	if k.Keys = a.Prints; err != nil {
		k.Error = err.Error()
	}
	return k
}

// changeOwnKeys is one router's side: it changes its file, and answers when it goes by
// it. The payload is another router's.
func (n *Node) changeOwnKeys(ctx context.Context, payload []byte) ([]byte, error) {
	var c keyCall
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	a := keyAnswer{}
	if err := n.editKeys(ctx, &c); err != nil {
		a.Err = err.Error()
	}
	a.Prints = n.secretPrints()
	return json.Marshal(&a)
}

func (n *Node) editKeys(ctx context.Context, c *keyCall) error {
	path := n.cfg.Cluster.SecretFile
	if path == "" {
		return errors.New("it has no cluster.secret_file")
	}
	if c.Op == keyList {
		return nil
	}
	n.keysFile.Lock()
	defer n.keysFile.Unlock()
	list, err := readSecrets(path, maxSecrets)
	if err != nil {
		return err
	}
	next, err := changedKeys(list, c)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(list, next, bytes.Equal) {
		if err := replaceSecrets(path, next); err != nil {
			return err
		}
		n.log.Info().Str("op", c.Op).Strs("keys", fingerprints(next)).Msg("file of shared keys changed for the keyring")
		select {
		case n.rekey <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithTimeout(ctx, keyWait-keysEvery/2)
	defer cancel()
	t := time.NewTicker(keysEvery / 100)
	defer t.Stop()
	for want := fingerprints(next); !slices.Equal(n.secretPrints(), want); {
		select {
		case <-t.C:
		case <-ctx.Done():
			return errors.New("its file is changed, and is not taken yet: see its status")
		}
	}
	return nil
}

// changedKeys is a list of secrets after a change.
func changedKeys(list [][]byte, c *keyCall) ([][]byte, error) {
	if c.Op == keyAdd {
		if len(c.Secret) < minSecret || bytes.ContainsAny(c.Secret, "\r\n \t") {
			return nil, errors.New("this is no secret")
		}
		if slices.ContainsFunc(list, func(s []byte) bool { return bytes.Equal(s, c.Secret) }) {
			return list, nil
		}
		return append(slices.Clone(list), c.Secret), nil
	}
	i := slices.Index(fingerprints(list), c.Print)
	switch {
	case c.Op == keyUse && i < 0:
		return nil, errors.New("it has no such secret")
	case c.Op == keyUse:
		next := [][]byte{list[i]}
		return append(next, slices.Concat(list[:i], list[i+1:])...), nil
	case c.Op == keyRemove && i == 0:
		return nil, errors.New("it uses that secret")
	case c.Op == keyRemove && i > 0:
		return slices.Concat(list[:i], list[i+1:]), nil
	case c.Op == keyRemove:
		return list, nil
	}
	return nil, fmt.Errorf("%.64q is not known here", c.Op)
}

// replaceSecrets writes a file of secrets, whole, readable for whom it was before. A
// link is followed: what it names is replaced.
func replaceSecrets(path string, list [][]byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range list {
		b.Write(s)
		b.WriteByte('\n')
	}
	if err := WriteFile(path, []byte(b.String())); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm())
}
