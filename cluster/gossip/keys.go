package gossip

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

const maxSecrets = 8

func checkSecrets(secrets [][]byte) error {
	if len(secrets) > maxSecrets {
		return fmt.Errorf("more than %d shared keys", maxSecrets)
	}
	return nil
}

// SetSecrets replaces the shared keys of membership, the one to use first, like
// the mesh's of the same name: what is encrypted with none of them is refused from
// now on.
func (g *Gossip) SetSecrets(secrets [][]byte) error {
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	return g.roster.setSecrets(secrets)
}

// keyring makes memberlist's from the secrets; nil without any.
func (r *roster) keyring() (*memberlist.Keyring, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.secrets) == 0 {
		return nil, nil
	}
	keys, err := memberKeys(r.secrets)
	if err != nil {
		return nil, err
	}
	r.ring, err = memberlist.NewKeyring(keys, keys[0])
	return r.ring, err
}

// memberKeys derives what encrypts datagrams, so that the mesh's keys are others.
func memberKeys(secrets [][]byte) ([][]byte, error) {
	keys := make([][]byte, len(secrets))
	for i, s := range secrets {
		var err error
		if keys[i], err = hkdf.Key(sha256.New, s, nil, "hearsay membership 1", 32); err != nil {
			return nil, fmt.Errorf("derive membership key: %w", err)
		}
	}
	return keys, nil
}

func (r *roster) setSecrets(secrets [][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (len(secrets) == 0) != (len(r.secrets) == 0) {
		return errors.New("shared keys cannot be introduced or abolished while routers run")
	}
	if r.ring != nil {
		keys, err := memberKeys(secrets)
		if err != nil {
			return err
		}
		if err := install(r.ring, keys); err != nil {
			return err
		}
	}
	r.secrets = make([][]byte, len(secrets))
	for i, s := range secrets {
		r.secrets[i] = slices.Clone(s)
	}
	return nil
}

// install makes keys those of the ring. memberlist reads the ring's slice without
// its lock while RemoveKey closes gaps in it, so keys are only ever taken off its
// end; and none that the others may not have yet is used for a moment.
func install(ring *memberlist.Keyring, keys [][]byte) error {
	has := func(list [][]byte, key []byte) bool {
		return slices.ContainsFunc(list, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if err := ring.AddKey(keys[0]); err != nil {
		return fmt.Errorf("add membership key: %w", err)
	}
	before := ring.GetKeys()
	if slices.ContainsFunc(before, func(k []byte) bool { return !has(keys, k) }) {
		for _, k := range slices.Backward(keys[1:]) {
			if has(before, k) { // to the front
				if err := ring.UseKey(k); err != nil {
					return fmt.Errorf("order membership keys: %w", err)
				}
			}
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("use membership key: %w", err)
	}
	for _, k := range slices.Backward(ring.GetKeys()) {
		if has(keys, k) {
			break
		}
		if err := ring.RemoveKey(k); err != nil {
			return fmt.Errorf("remove membership key: %w", err)
		}
	}
	for _, k := range keys {
		if err := ring.AddKey(k); err != nil {
			return fmt.Errorf("add membership key: %w", err)
		}
	}
	return nil
}
