package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
)

// File layout: magic, version, wall clock of saving (ns, 8 bytes), records,
// XXH3 of all before (8 bytes). A record is a kind byte and its fields as varints;
// ages count back from the wall clock of saving. Placements in flight are not
// saved.
const (
	fileMagic    = "HEARSAYK"
	fileVersion  = 1
	fileHead     = len(fileMagic) + 1 + 8
	maxFileBytes = 1 << 28

	recReplica  = 1 // id; the records after it are of this replica
	recDead     = 2 // age
	recCapacity = 3
	recChain    = 4
)

// ErrCorrupt is returned by Load for a file that is damaged, cut short, or not
// one of ours.
var ErrCorrupt = errors.New("sketch file is corrupt")

// Save writes what is known, with ages by the wall clock. The caller makes the
// file whole (write aside, sync, rename).
func (x *Index) Save(w io.Writer) error {
	now := x.now()
	own := x.ownTime(now)
	h := xxh3.New()
	out := io.MultiWriter(w, h)
	b := append([]byte(fileMagic), fileVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(now.UnixNano()))
	for _, r := range *x.bySlot.Load() {
		if r == nil {
			continue
		}
		b = r.save(b, own)
		if _, err := out.Write(b); err != nil {
			return fmt.Errorf("write sketch: %w", err)
		}
		b = b[:0]
	}
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("write sketch: %w", err)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, h.Sum64())); err != nil {
		return fmt.Errorf("write sketch: %w", err)
	}
	return nil
}

func (r *replica) save(b []byte, own int64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := func(t int64) uint64 { return uint64(max(0, own-t)) }
	b = append(b, recReplica)
	b = binary.AppendUvarint(b, uint64(len(r.id)))
	b = append(b, r.id...)
	if r.dead != never {
		b = binary.AppendUvarint(append(b, recDead), age(r.dead))
	}
	if l := r.learn.export(); l.Count > 0 {
		b = append(b, recCapacity, byte(l.Source))
		for _, f := range []float64{l.Given, l.Tokens, l.Trust, l.Rho} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
		}
		b = binary.AppendUvarint(b, l.Count)
	}
	for _, c := range r.chains() {
		b = binary.AppendUvarint(append(b, recChain), age(c.use))
		b = binary.AppendUvarint(b, uint64(max(0, c.use-c.began)))
		b = binary.LittleEndian.AppendUint64(b, c.leaf)
		b = binary.LittleEndian.AppendUint64(b, c.parent)
		b = binary.AppendUvarint(b, uint64(len(c.links)))
		for _, l := range c.links {
			b = binary.LittleEndian.AppendUint64(b, l.Hash)
			b = binary.AppendUvarint(b, uint64(l.Tokens))
			s := uint64(l.Scale) << 1
			if l.Answer {
				s |= 1
			}
			b = binary.AppendUvarint(b, s)
		}
	}
	return b
}

// Load adds what a file of Save holds, as old as the wall clock says it is now (a
// clock set back in between counts as no time). A file with an error adds nothing,
// or, if it is well sealed but of nonsense, what came before the error. Not told
// to peers through the Journal: they have snapshots.
func (x *Index) Load(rd io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(rd, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("read sketch: %w", err)
	}
	if len(data) < fileHead+8 || len(data) > maxFileBytes || string(data[:len(fileMagic)]) != fileMagic {
		return ErrCorrupt
	}
	if v := data[len(fileMagic)]; v != fileVersion {
		return fmt.Errorf("sketch file has version %d, this build reads %d", v, fileVersion)
	}
	body, sum := data[:len(data)-8], data[len(data)-8:]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(sum) {
		return ErrCorrupt
	}
	return x.load(body[len(fileMagic)+1:])
}

// load reads the wall clock and the records.
func (x *Index) load(data []byte) error {
	d := decoder{b: data}
	now := x.now()
	saved := int64(d.fixed())
	gap := now.UnixNano() - saved
	if saved < 0 || gap < 0 {
		gap = 0
	}
	own := x.ownTime(now)
	at := func() int64 { // an instant from its age
		age := d.uvarint()
		if age > uint64(maxSpan) || gap > int64(maxSpan) {
			d.bad = true
			return own
		}
		return own - gap - int64(age)
	}
	var op Op
	for len(d.b) > 0 && !d.bad {
		kind := d.byte()
		op = Op{Replica: op.Replica, Boot: x.clock.Boot()}
		var t int64
		switch kind {
		case recReplica:
			op.Replica = state.ReplicaID(d.bytes(MaxIDBytes))
			continue
		case recDead:
			op.Kind, t = OpDead, at()
		case recCapacity:
			op.Kind, op.Learn.Source = OpCapacity, CapacitySource(d.byte())
			op.Learn.Given, op.Learn.Tokens, op.Learn.Trust, op.Learn.Rho = d.float(), d.float(), d.float(), d.float()
			op.Learn.Count = d.uvarint()
		case recChain:
			op.Kind, t = OpInsert, at()
			op.Age = time.Duration(min(d.uvarint(), uint64(maxSpan)))
			op.Mark, op.Parent = d.fixed(), d.fixed()
			n := d.uvarint()
			if n > MaxLinks || n > uint64(len(d.b)) {
				return ErrCorrupt
			}
			op.Links = make([]Link, n)
			for i := range op.Links {
				l := &op.Links[i]
				l.Hash = d.fixed()
				l.Tokens = uint32(min(d.uvarint(), math.MaxUint32))
				s := d.uvarint()
				l.Scale, l.Answer = uint16(min(s>>1, math.MaxUint16)), s&1 != 0
			}
		default:
			return ErrCorrupt
		}
		op.Stamp = state.Stamp{Boot: op.Boot, At: time.Duration(t)}
		if d.bad || !op.Valid() {
			return ErrCorrupt
		}
		r := x.replica(op.Replica, t, own)
		if r == nil {
			continue
		}
		x.makeRoom(r, len(op.Links)+2)
		r.apply(&op, t, own)
		r.settle()
		r.mu.Unlock()
	}
	if d.bad {
		return ErrCorrupt
	}
	return nil
}

// decoder takes values off the front of b; after the first that is cut short or
// malformed everything is zero and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) fixed() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) float() float64 { return math.Float64frombits(d.fixed()) }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.take(len(d.b) + 1)
		return 0
	}
	d.take(n)
	return v
}

func (d *decoder) bytes(limit uint64) []byte {
	n := d.uvarint()
	if n > limit {
		d.take(len(d.b) + 1)
		return nil
	}
	return d.take(int(n))
}
