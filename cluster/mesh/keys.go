package mesh

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// Bounds of shared keys.
const (
	minSecret  = 16 // bytes of one
	maxSecrets = 8
)

// SetSecrets replaces the shared keys, the one to use first. Streams that are up
// stay as they are; every handshake from now on goes by the new keys, and a peer
// that holds none of them is refused. To change keys without a gap, give all
// routers the new key beside the old one, then the new one first, then the new one
// alone. Keys can't be introduced or abolished at run time: routers with and
// without would refuse each other.
func (m *Mesh) SetSecrets(secrets [][]byte) error {
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	m.keysMu.Lock()
	defer m.keysMu.Unlock()
	if (len(secrets) == 0) != (len(m.keys) == 0) {
		return errors.New("shared keys cannot be introduced or abolished while routers run")
	}
	fresh := make([][]byte, len(secrets))
	for i, s := range secrets {
		fresh[i] = slices.Clone(s)
	}
	m.keys = fresh
	return nil
}

// secrets are the keys as of now. The caller does not change them.
func (m *Mesh) secrets() [][]byte {
	m.keysMu.Lock()
	defer m.keysMu.Unlock()
	return m.keys
}

func checkSecrets(secrets [][]byte) error {
	var errs []error
	if len(secrets) > maxSecrets {
		errs = append(errs, fmt.Errorf("more than %d shared keys", maxSecrets))
	}
	for _, k := range secrets {
		if len(k) < minSecret {
			errs = append(errs, fmt.Errorf("a shared key is shorter than %d bytes", minSecret))
			break
		}
	}
	return errors.Join(errs...)
}

// tag lets a peer find which of its keys is meant without giving the key away.
func tag(key, nonce []byte) []byte {
	mac := hmac.New(sha256.New, must(hkdf.Key(sha256.New, key, nil, "hearsay mesh 1 tag", 32)))
	mac.Write(nonce)
	return mac.Sum(nil)[:8]
}

func match(keys [][]byte, nonce, t []byte) []byte {
	for _, k := range keys {
		if hmac.Equal(tag(k, nonce), t) {
			return k
		}
	}
	return nil
}

// KeyID names a shared key for people, the same on every router, without giving it
// away. It is empty for none.
func KeyID(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	return hex.EncodeToString(must(hkdf.Key(sha256.New, key, nil, "hearsay mesh 1 key id", 4)))
}
