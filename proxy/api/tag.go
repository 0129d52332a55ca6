package api

import (
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// Tag names the replica that keeps a response, and the start of its process. It stands at
// the end of the response's id, so that whoever reads the id knows whom to ask.
type Tag struct {
	Owner uint64 // of the pool and the replica: OwnerOf
	Boot  uint32 // of the process's start: BootOf; 0: not known
}

const (
	// tagMark begins a tag. What follows are tagDigits of base 32.
	tagMark   = "_hsy"
	tagDigits = 12
	ownerBits = 40
	bootBits  = 20
)

// OwnerOf is the number of a replica in tags, 40 bits.
func OwnerOf(pool, replica string) uint64 {
	return xxh3.HashString(pool+"\x00"+replica) >> (64 - ownerBits)
}

// BootOf is the number of a process's start in tags, 20 bits and not 0. started is in
// Unix seconds by the engine's own clock; 0 is unknown and stays that.
func BootOf(started float64) uint32 {
	if started <= 0 {
		return 0
	}
	return max(1, uint32(xxh3.HashString(strconv.FormatInt(int64(started*1000), 10))>>(64-bootBits)))
}

// String is the tag as it stands in an id: letters, digits and underscores, always as
// many.
func (t Tag) String() string {
	s := strconv.FormatUint(t.Owner<<bootBits|uint64(t.Boot), 32)
	return tagMark + strings.Repeat("0", tagDigits-len(s)) + s
}

// SplitTag takes the tag off an id. It returns false where there is none.
func SplitTag(id string) (rest string, t Tag, ok bool) {
	at := len(id) - tagDigits
	if at <= len(tagMark) || !strings.HasSuffix(id[:at], tagMark) {
		return id, t, false
	}
	for i := at; i < len(id); i++ {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'v') {
			return id, t, false
		}
	}
	n, err := strconv.ParseUint(id[at:], 32, ownerBits+bootBits)
	if err != nil {
		return id, t, false
	}
	return id[:at-len(tagMark)], Tag{n >> bootBits, uint32(n & (1<<bootBits - 1))}, true
}
