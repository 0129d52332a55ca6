package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

func genID(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"", "a", "http://10.0.0.1:8000", "http://10.0.0.2:8000#1", "ключ"}).Draw(t, what)
}

func genBoot(t *rapid.T, what string) state.BootID {
	return state.BootID(rapid.SampledFrom([]uint64{0, 1, 1 << 40, ^uint64(0)}).Draw(t, what))
}

func genDuration(t *rapid.T, what string) time.Duration {
	return time.Duration(rapid.Int64().Draw(t, what))
}

func genOp(t *rapid.T) sketch.Op {
	k := sketch.OpKind(rapid.IntRange(int(sketch.OpInsert), int(sketch.OpCapacity)).Draw(t, "kind"))
	op := sketch.Op{
		Kind: k, Replica: state.ReplicaID(genID(t, "replica")), Boot: genBoot(t, "boot"),
		Seq:   rapid.Uint64().Draw(t, "seq"),
		Stamp: state.Stamp{Boot: genBoot(t, "stamp boot"), At: genDuration(t, "stamp")},
	}
	if hasLinks(k) {
		for range rapid.IntRange(0, 4).Draw(t, "links") {
			op.Links = append(op.Links, sketch.Link{
				Hash: rapid.Uint64().Draw(t, "hash"), Tokens: rapid.Uint32().Draw(t, "tokens"),
				Scale: rapid.Uint16().Draw(t, "scale"), Answer: rapid.Bool().Draw(t, "answer"),
			})
		}
		op.Parent = rapid.SampledFrom([]uint64{0, 7}).Draw(t, "parent")
	}
	pick := func(what string) uint64 {
		if len(op.Links) > 0 && rapid.Bool().Draw(t, what+" is last") {
			return op.Links[len(op.Links)-1].Hash
		}
		return rapid.SampledFrom([]uint64{0, 9}).Draw(t, what)
	}
	if hasMark(k) {
		op.Mark = pick("mark")
	}
	if k == sketch.OpEnd {
		op.Answer = pick("answer")
	}
	if hasPlacement(k) {
		op.Placement = rapid.Uint64().Draw(t, "placement")
	}
	if hasAge(k) {
		op.Age = genDuration(t, "age")
	}
	switch k {
	case sketch.OpEvidence:
		op.Scale, op.Count = rapid.Uint16().Draw(t, "scale"), rapid.Uint32().Draw(t, "count")
		op.Sample = sketch.Sample{
			Verdict:  sketch.Verdict(rapid.Byte().Draw(t, "verdict")),
			Distance: rapid.Float32().Draw(t, "distance"), Trust: -1, Ratio: 0.5,
		}
	case sketch.OpCapacity:
		op.Learn = sketch.Learned{
			Given: rapid.Float64().Draw(t, "given"), Source: 2, Tokens: 123456, Trust: 0.25, Rho: 1.5,
			Count: rapid.Uint64().Draw(t, "count"),
		}
	}
	return op
}

func TestEveryMessageComesBackAsItWas(t *testing.T) {
	var d Decoder // shared: what it remembers must not leak between messages
	same := func(t *rapid.T, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v (%v)\nwant %+v", got, err, want)
		}
	}
	f := func(name string, check func(t *rapid.T)) {
		t.Run(name, func(t *testing.T) { rapid.Check(t, check) })
	}
	f("rows", func(t *rapid.T) {
		m := Rows{Sent: genDuration(t, "sent"), Rows: state.Rows{
			Router: state.RouterID(genID(t, "router")), Boot: genBoot(t, "boot"),
			Seq: rapid.Uint64().Draw(t, "seq"), Full: rapid.Bool().Draw(t, "full"),
			FactsIndex: rapid.Uint64().Draw(t, "facts"), Rows: []state.Row{},
		}}
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			m.Rows.Rows = append(m.Rows.Rows, state.Row{Replica: state.ReplicaID(genID(t, "replica")), Load: state.Load{
				InFlight: rapid.Int64Range(0, maxCount).Draw(t, "in"), Prefill: rapid.Int64Range(0, 9).Draw(t, "pre"),
				UncachedTokens: rapid.Int64Range(0, maxCount).Draw(t, "tokens"),
			}, Failures: rapid.Uint32().Draw(t, "failures")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "pools") {
			m.Backlogs = append(m.Backlogs, state.Backlog{
				Pool: genID(t, "pool"), Requests: rapid.Int64Range(0, maxCount).Draw(t, "waiting"), Tokens: rapid.Int64Range(0, maxCount).Draw(t, "waiting tokens"),
			})
		}
		for range rapid.IntRange(0, 3).Draw(t, "asked") {
			x := state.Traffic{Pool: genID(t, "pool")}
			for _, n := range x.Counts() {
				*n = rapid.Int64Range(0, maxCount).Draw(t, "count")
			}
			m.Traffic = append(m.Traffic, x)
		}
		got, err := d.Rows(AppendRows([]byte(nil), &m))
		same(t, got, m, err)
	})
	f("readings", func(t *rapid.T) {
		list := []state.Reading{}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			x := state.UnknownReading(state.ReplicaID(genID(t, "replica")))
			x.Reader = state.RouterID(genID(t, "reader"))
			x.At = state.Stamp{Boot: genBoot(t, "boot"), At: genDuration(t, "at")}
			x.OK, x.Loading, x.Refused = rapid.Bool().Draw(t, "ok"), rapid.Bool().Draw(t, "loading"), rapid.Bool().Draw(t, "refused")
			x.Answered = rapid.Bool().Draw(t, "answered")
			x.WrongModel = rapid.SampledFrom([]string{"", "m", "llama-3.1-8b"}).Draw(t, "wrong model")
			if x.WrongModel != "" { // of the others it is no matter
				x.Models = rapid.SampledFrom([][]string{nil, {"other"}, {"other", "adapter", "other"}}).Draw(t, "models")
			}
			x.Err, x.Kind, x.Version = genID(t, "err"), state.EngineVLLM, "0.9"
			x.Started, x.Running = 1.7e9+0.25, rapid.Float64().Draw(t, "running")
			names := func(what string) []string {
				return rapid.SampledFrom([][]string{nil, {"a"}, {"a", "b", "a"}, {"org/A b:c"}}).Draw(t, what)
			}
			x.AdaptersRunning = names("running adapters")
			if x.AdapterSlots = rapid.SampledFrom([]int{0, 1, state.MaxAdapters}).Draw(t, "slots"); x.AdapterSlots > 0 {
				x.AdaptersWaiting, x.Adapters = names("waiting adapters"), names("adapters")
				x.AdaptersSum = rapid.SampledFrom([]uint64{0, 1, math.MaxUint64, state.SumAdapters(x.Adapters)}).Draw(t, "sum")
			}
			list = append(list, x)
		}
		got, err := d.Readings(AppendReadings(nil, list))
		same(t, got, list, err)
	})
	f("ops", func(t *rapid.T) {
		m := Ops{From: rapid.Uint64().Draw(t, "from"), Next: rapid.Uint64().Draw(t, "next"), Ops: []sketch.Op{}}
		var b OpBatch
		if rapid.Bool().Draw(t, "used before") {
			op := genOp(t)
			b.Add(&op)
			b.Reset()
		}
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			op := genOp(t)
			b.Add(&op)
			m.Ops = append(m.Ops, op)
		}
		got, err := d.Ops(b.Append(nil, m.From, m.Next))
		same(t, got, m, err)
	})
	f("lessons", func(t *rapid.T) {
		m := Lessons{Boot: genBoot(t, "boot"), Seq: rapid.Uint64().Draw(t, "seq"), Lessons: []state.Lesson{}}
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			l := state.Lesson{Kind: state.LessonKind(rapid.Byte().Draw(t, "kind")), Subject: genID(t, "subject"), Pool: genID(t, "pool")}
			for range rapid.IntRange(0, state.MaxLessonValues).Draw(t, "values") {
				l.Values = append(l.Values, rapid.Float32().Draw(t, "value"))
			}
			m.Lessons = append(m.Lessons, l)
		}
		got, err := d.Lessons(AppendLessons(nil, &m))
		same(t, got, m, err)
	})
	f("hello", func(t *rapid.T) {
		m := Hello{
			Router: "r1", Boot: genBoot(t, "boot"), Name: genID(t, "name"), Cluster: "default", ClusterID: genID(t, "id"),
			MinVersion: 1, Version: rapid.Uint64().Draw(t, "version"), Scheme: "1", Proto: 'm',
			Nonce: []byte("nonce"), Public: []byte("key"), Keys: [][]byte{{1}, {2, 3}}, Want: state.RouterID(genID(t, "want")),
		}
		got, err := d.Hello(AppendHello(nil, &m))
		same(t, got, m, err)
	})
	f("control", func(t *rapid.T) {
		beacon := Beacon{Router: "r1", Boot: genBoot(t, "boot"), Sent: genDuration(t, "sent"), UDPQuiet: true, Hears: []state.BootID{1, 2}, Leaving: rapid.Bool().Draw(t, "leaving"), Addr: genID(t, "addr"), Version: 2 + rapid.Uint64Range(0, 9).Draw(t, "version"), Same: rapid.Bool().Draw(t, "same")}
		b, err := d.Beacon(AppendBeacon(nil, &beacon))
		same(t, b, beacon, err)
		reply := BeaconReply{Boot: 7, Sent: beacon.Sent}
		r, err := d.BeaconReply(AppendBeaconReply(nil, &reply))
		same(t, r, reply, err)
		resume := Resume{Boot: beacon.Boot, Cursor: rapid.Uint64().Draw(t, "cursor"), Tail: rapid.Bool().Draw(t, "tail")}
		s, err := d.Resume(AppendResume(nil, &resume))
		same(t, s, resume, err)
		end := SnapshotEnd{Cursor: resume.Cursor}
		e, err := d.SnapshotEnd(AppendSnapshotEnd(nil, &end))
		same(t, e, end, err)
		call := Call{ID: resume.Cursor, Method: "m", Payload: []byte{0, 1}}
		c, err := d.Call(AppendCall(nil, &call))
		same(t, c, call, err)
		rep := Reply{ID: 1, Code: 2, Err: "why", Payload: []byte{3}}
		p, err := d.Reply(AppendReply(nil, &rep))
		same(t, p, rep, err)
		at, err := d.Ping(AppendPing(nil, beacon.Sent))
		same(t, at, beacon.Sent, err)
		meta := Meta{Boot: beacon.Boot, MinVersion: 1, Version: 2, Scheme: "1", MeshAddr: "10.0.0.1:1", APIAddr: ":2", Name: genID(t, "name"), AdminAddr: rapid.SampledFrom([]string{"", ":3"}).Draw(t, "admin")}
		mt, err := d.Meta(AppendMeta(nil, &meta))
		same(t, mt, meta, err)
		why, err := d.Refuse(AppendRefuse(nil, "scheme"))
		same(t, why, "scheme", err)
	})
}

// A later release appends fields to messages and to items, and has op kinds we do
// not know.
func TestALaterReleasesFieldsAreSkipped(t *testing.T) {
	var d Decoder
	// A row with a field more, written by hand.
	e := encoder{}
	e.str("r1")
	e.fixed(7)
	e.uint(3)
	e.bool(true)
	e.uint(0)
	e.duration(0)
	e.uint(2)
	for _, id := range []string{"a", "b"} {
		e.item(func() {
			e.str(id)
			e.count(1)
			e.count(1)
			e.count(10)
			e.bytes([]byte("from the future"))
		})
	}
	e.uint(0) // no backlogs
	e.uint(0) // no traffic
	e.bytes([]byte("and this too"))
	m, err := d.Rows(e.b)
	if err != nil || len(m.Rows.Rows) != 2 || m.Rows.Rows[1].Replica != "b" || m.Rows.Rows[1].UncachedTokens != 10 {
		t.Errorf("%+v %v", m, err)
	}

	var b OpBatch
	touch := sketch.Op{Kind: sketch.OpTouch, Replica: "a", Boot: 5, Seq: 10, Stamp: state.Stamp{Boot: 5, At: 100}, Mark: 1}
	b.Add(&touch)
	b.n++
	b.e.item(func() {
		b.e.byte(200)
		b.e.byte(0)
		b.e.str("b")
		b.e.boot(6)
		b.e.int(1)
		b.e.boot(8)
		b.e.int(50)
		b.e.bytes([]byte("whatever it means"))
	})
	b.prev = opBase{11, 150}
	last := sketch.Op{Kind: sketch.OpDead, Replica: "b", Boot: 8, Seq: 12, Stamp: state.Stamp{Boot: 8, At: 160}}
	b.Add(&last)
	ops, err := d.Ops(b.Append(nil, 0, 3))
	if err != nil || ops.Unknown != 1 || !reflect.DeepEqual(ops.Ops, []sketch.Op{touch, last}) {
		t.Errorf("%+v %v", ops, err)
	}
}

func TestTruncationIsAnErrorEverywhere(t *testing.T) {
	var d Decoder
	m := Rows{Rows: state.Rows{Router: "r1", Boot: 7, Seq: 3, Rows: []state.Row{{Replica: "a"}, {Replica: "b"}}}}
	whole := AppendRows(nil, &m)
	for i := range whole {
		if _, err := d.Rows(whole[:i]); !errors.Is(err, ErrMalformed) {
			t.Errorf("cut at %d of %d: %v", i, len(whole), err)
		}
	}
}

func TestFrames(t *testing.T) {
	var b []byte
	want := [][]byte{{}, []byte("x"), bytes.Repeat([]byte("y"), 300<<10), []byte("z")}
	for i, p := range want {
		b = AppendFrame(b, Kind(i), p)
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(b), "by bytes": iotest.OneByteReader(bytes.NewReader(b)),
		"with the end": iotest.DataErrReader(bytes.NewReader(b)),
	} {
		f := NewFrameReader(r, MaxFrame)
		for i, p := range want {
			h, got, err := f.Next()
			if err != nil || h.Kind != Kind(i) || h.Version != Version || !bytes.Equal(got, p) {
				t.Fatalf("%s: frame %d: %+v %d bytes, %v", name, i, h, len(got), err)
			}
		}
		if _, _, err := f.Next(); err != io.EOF {
			t.Errorf("%s: end: %v", name, err)
		}
	}
	if _, _, err := NewFrameReader(bytes.NewReader(b[:len(b)-1]), MaxFrame).Next(); err != nil {
		t.Error(err)
	}
	f := NewFrameReader(bytes.NewReader(AppendFrame(nil, KindRows, make([]byte, 100))), 99)
	if _, _, err := f.Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("frame past the bound: %v", err)
	}
	f = NewFrameReader(bytes.NewReader(AppendFrame(nil, KindRows, make([]byte, 100))[:50]), 100)
	if _, _, err := f.Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("frame cut short: %v", err)
	}
}

func TestMetaFitsItsBound(t *testing.T) {
	long := func(c string) string { return strings.Repeat(c, 1000) }
	m := Meta{
		Boot: 1 << 63, MinVersion: 1 << 63, Version: 1 << 63,
		Scheme: long("a"), MeshAddr: long("b"), APIAddr: long("c"), Name: long("d"), AdminAddr: long("e")[:maxAdminAddr],
	}
	if n := len(AppendMeta(nil, &m)); n > MaxMeta {
		t.Errorf("%d bytes", n)
	}
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range [][2]Kind{{KindHello, KindReply}, {KindRows, KindStreamOps}} {
		for k := r[0]; k <= r[1]; k++ {
			if name := k.String(); name == "unknown" || seen[name] {
				t.Errorf("kind %d is called %q", k, name)
			}
			seen[k.String()] = true
		}
	}
	if Kind(99).String() != "unknown" {
		t.Error("an unknown kind has a name")
	}
}

// Sizes are what the gossip bound is computed from (cluster/DESIGN.md).
func TestSizes(t *testing.T) {
	f := func(name string, n int, most float64, bytes int) {
		t.Helper()
		per := float64(bytes) / float64(n)
		t.Logf("%s: %.1f bytes each", name, per)
		if per > most {
			t.Errorf("%s takes %.1f bytes, at most %.1f are allowed for", name, per, most)
		}
	}
	id := func(i int) state.ReplicaID { return state.ReplicaID(fmt.Sprintf("http://10.0.0.%d:8000", i%64)) }
	rows := Rows{Rows: state.Rows{Router: "0123456789abcdef", Boot: 1 << 60, Seq: 1e6}}
	for i := range 64 {
		rows.Rows.Rows = append(rows.Rows.Rows, state.Row{Replica: id(i), Load: state.Load{InFlight: 9, Prefill: 2, UncachedTokens: 20000}})
	}
	f("row", 64, 32, len(AppendRows(nil, &rows)))
	rows.Rows.Rows = rows.Rows.Rows[:1]
	f("rows message of one", 1, 80, len(AppendRows(nil, &rows)))
	batch := func(k sketch.OpKind, links int) int {
		var b OpBatch
		for i := range 100 {
			op := sketch.Op{
				Kind: k, Replica: id(i), Boot: 1 << 60, Seq: uint64(i) + 1000, Placement: uint64(i) + 1e6, Mark: 1 << 50,
				Stamp: state.Stamp{Boot: 1 << 60, At: time.Hour + time.Duration(i)*time.Millisecond}, Age: time.Second,
			}
			for range links {
				op.Links = append(op.Links, sketch.Link{Hash: 1 << 50, Tokens: 300})
			}
			b.Add(&op)
		}
		return len(b.Append(nil, 1e6, 1e6+100))
	}
	// In a batch of 100 over 64 replicas an id is written out for two ops in three.
	f("touch", 100, 38, batch(sketch.OpTouch, 0))
	f("first", 100, 36, batch(sketch.OpFirst, 0))
	f("place with 8 links", 100, 120, batch(sketch.OpPlace, 8))
	f("link", 800, 11, batch(sketch.OpPlace, 8)-batch(sketch.OpPlace, 0))
}
