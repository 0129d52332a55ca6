package sketch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/state"
)

// saved is an index with a bit of everything, and its file.
func saved(t testing.TB, w *world) (*Index, []byte) {
	t.Helper()
	x := w.index(1, Bounds{})
	x.SetCapacity("a", 10_000, CapacityEngine)
	for i := range 20 {
		m, d := prompt(i%3, 3, i, 4)
		p := x.Place([]state.ReplicaID{"a", "b"}[i%2], m, d, w.at(time.Duration(i+1)*time.Second))
		p.First(w.now)
		more, md := prompt(i%3, 3, i, 6)
		p.Answer(more, md)
		p.End(w.now)
		p.Evidence(192, 7*64+20, 192)
	}
	x.Clear("b", x.clock.Stamp(at(4*time.Second)))
	var file bytes.Buffer
	if err := x.Save(&file); err != nil {
		t.Fatal(err)
	}
	return x, file.Bytes()
}

func TestRestartKeepsKnowledgeAtItsAge(t *testing.T) {
	w := newWorld()
	x, file := saved(t, w)
	const down = 10 * time.Minute
	boot := w.now.Add(down)
	clock := state.NewClock(2, boot)
	y := New(Config{Clock: clock, Slots: w.slot, Now: func() time.Time { return boot }})
	if err := y.Load(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	check(t, y)
	if got, want := y.Totals().Entries, x.Totals().Entries; got != want || got == 0 {
		t.Fatalf("%d marks of %d", got, want)
	}
	shift := int64(boot.Sub(epoch))
	x.table.each(func(was *entry) {
		e := y.table.get(was.hash, was.slot)
		if e == nil || e.use.Load() != was.use.Load()-shift || e.began != was.began-shift || e.tokens() != was.tokens() || e.answer() != was.answer() {
			t.Fatalf("mark %x differs", was.hash)
		}
	})
	a, b := x.Stats("a"), y.Stats("a")
	if a.CEff != b.CEff || a.Given != b.Given || a.Trust != b.Trust || a.Rho != b.Rho || a.Samples != b.Samples {
		t.Errorf("learned %+v, was %+v", b, a)
	}
	if d := y.Stats("b").DeadBefore; !d.Equal(at(4 * time.Second)) {
		t.Errorf("dead_before %v", d.Sub(epoch))
	}
	// The engine's figure, heard again, changes nothing.
	y.SetCapacity("a", 10_000, CapacityEngine)
	if got := y.Stats("a").CEff; got != a.CEff {
		t.Errorf("C_eff %v, was %v", got, a.CEff)
	}
}

func TestAFileFromTheFutureIsOfNow(t *testing.T) {
	w := newWorld()
	_, file := saved(t, w)
	w.now = w.now.Add(-time.Hour)
	y := w.index(2, Bounds{})
	if err := y.Load(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	for _, r := range *y.bySlot.Load() {
		if r != nil && r.ages.newest > y.ownTime(w.now)+1000 {
			t.Errorf("used in the future: %v", time.Duration(r.ages.newest))
		}
	}
}

func TestDamagedFilesAreRefusedWhole(t *testing.T) {
	w := newWorld()
	_, file := saved(t, w)
	f := func(name string, data []byte) {
		t.Helper()
		y := w.index(2, Bounds{})
		if err := y.Load(bytes.NewReader(data)); err == nil || y.Totals().Entries != 0 {
			t.Errorf("%s: err %v, %d marks", name, err, y.Totals().Entries)
		}
	}
	f("empty", nil)
	f("cut short", file[:len(file)-1])
	f("half", file[:len(file)/2])
	flip := bytes.Clone(file)
	flip[len(flip)/2] ^= 4
	f("one bit off", flip)
	f("not ours", append([]byte("SOMETHING"), file...))
	next := bytes.Clone(file)
	next[len(fileMagic)]++
	f("of another version", next)
	if err := w.index(3, Bounds{}).Load(bytes.NewReader(flip)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("err %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	w := newWorld()
	_, file := saved(f, w)
	body := file[len(fileMagic)+1 : len(file)-8]
	f.Add(body)
	f.Add(body[:len(body)/3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld()
		w.at(time.Hour)
		x := w.index(1, Bounds{Entries: 1000, Replicas: 8, Journal: 64})
		sealed := append([]byte(fileMagic), fileVersion)
		sealed = append(sealed, data...)
		sealed = binary.LittleEndian.AppendUint64(sealed, xxh3.Hash(sealed))
		if len(data) < 8 {
			return
		}
		_ = x.Load(bytes.NewReader(sealed))
		check(t, x)
		if n := x.Totals(); n.Entries > 1000 || n.Replicas > 8 {
			t.Fatalf("bounds broken: %+v", n)
		}
		// What was taken can be saved and taken again.
		var again bytes.Buffer
		if err := x.Save(&again); err != nil {
			t.Fatal(err)
		}
		if err := w.index(2, Bounds{Journal: 64}).Load(&again); err != nil {
			t.Fatalf("own file: %v", err)
		}
	})
}

// wild reads ops off fuzzed bytes: few replicas, boots, marks and instants, so
// that they meet.
func wild(d *decoder) Op {
	marks := func() uint64 { return uint64(d.byte() % 24) }
	op := Op{
		Kind: OpKind(d.byte() % uint8(opKinds+1)), Replica: state.ReplicaID("abcdefghijkl"[d.byte()%12:][:1]),
		Boot: state.BootID(d.byte() % 12), Seq: uint64(d.byte()), Stamp: state.Stamp{Boot: state.BootID(d.byte() % 12), At: time.Duration(d.byte()) * time.Second},
		Mark: marks(), Answer: marks(), Parent: marks(), Placement: uint64(d.byte() % 6), Age: time.Duration(d.byte()) * time.Second,
		Scale: uint16(d.byte()) << 8, Count: uint32(d.byte()),
		Sample: Sample{Verdict: Verdict(d.byte() % 6), Distance: float32(d.byte()) * 100, Trust: float32(d.byte()) / 200, Ratio: float32(d.byte()) / 30},
		Learn:  Learned{Given: float64(d.byte()) * 10, Source: CapacitySource(d.byte() % 4), Tokens: float64(d.byte()) * 10, Trust: float64(d.byte()) / 200, Rho: 1, Count: uint64(d.byte())},
	}
	for range d.byte() % 6 {
		op.Links = append(op.Links, Link{Hash: marks(), Tokens: uint32(d.byte()) << (d.byte() % 18), Scale: uint16(d.byte()) << 8, Answer: d.byte()&1 != 0})
	}
	return op
}

func FuzzApply(f *testing.F) {
	f.Add(bytes.Repeat([]byte{3, 0, 1, 1, 1, 5, 7, 2, 3, 4, 5, 6, 7, 8}, 40))
	f.Add(bytes.Repeat([]byte{250, 17, 99, 4, 3, 2, 1, 0, 5, 129}, 60))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld()
		x := w.index(1, Bounds{Entries: 40, EntriesPerReplica: 30, Replicas: 6, Placements: 5, UnknownCapacity: 3000, Journal: 64})
		d := decoder{b: data}
		var open []*Placement
		for n := 0; len(d.b) > 0 && n < 300; n++ {
			w.at(time.Duration(n) * time.Second)
			switch d.byte() % 8 {
			case 0:
				m, depth := prompt(int(d.byte()%3), 2, int(d.byte()%4), 3)
				for i := range m {
					m[i].Hash = uint64(d.byte() % 24)
				}
				open = append(open, x.Place("a", m, depth, w.now))
			case 1:
				if len(open) > 0 {
					open[0].First(w.now)
					open[0].Evidence(int(d.byte()), 320, int(d.byte()))
					open[0].End(w.now)
					open = open[1:]
				}
			case 2:
				x.DropBoot(state.BootID(d.byte()%12), w.now)
			default:
				x.Apply(wild(&d), w.now)
			}
		}
		check(t, x)
		if n := x.Totals(); n.Entries > 40 || n.Replicas > 6 {
			t.Fatalf("bounds broken: %+v", n)
		}
		x.Snapshot(func(op Op) bool {
			if !op.Valid() {
				t.Fatalf("snapshot op is invalid: %+v", op)
			}
			return true
		})
	})
}
