package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest is the SHA-256 of a key. Keys are long and random, so that a digest without
// salt or stretching gives nothing away.
type Digest [sha256.Size]byte

// DigestOf is the digest of a key as a client sends it.
func DigestOf(key []byte) Digest { return sha256.Sum256(key) }

// digestPrefix names how a digest was made.
const digestPrefix = "sha256:"

// ParseDigest reads sha256:<64 hex digits>. Errors do not repeat what was found: it may
// be a key itself.
func ParseDigest(s string) (d Digest, err error) {
	digits, ok := strings.CutPrefix(s, digestPrefix)
	b, bad := hex.DecodeString(digits)
	switch {
	case !ok:
		err = fmt.Errorf("has %d characters and does not begin with '%s'", len(s), digestPrefix)
	case len(digits) != 2*len(d):
		err = fmt.Errorf("has %d characters behind '%s', not %d", len(digits), digestPrefix, 2*len(d))
	case bad != nil:
		err = fmt.Errorf("has something else than hex digits behind '%s'", digestPrefix)
	}
	if err == nil {
		copy(d[:], b)
	}
	return d, err
}

// String is the digest's beginning, enough to tell it from others.
func (d Digest) String() string { return digestPrefix + hex.EncodeToString(d[:4]) + "..." }
