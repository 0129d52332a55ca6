package wire

import (
	"bytes"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// FuzzDecoders gives every decoder the same bytes. What a decoder takes must come
// back the same when written and read again.
func FuzzDecoders(f *testing.F) {
	rows := Rows{Rows: state.Rows{Router: "r1", Boot: 7, Seq: 3, Rows: []state.Row{{Replica: "a"}, {Replica: "b"}}}}
	f.Add(AppendRows(nil, &rows))
	rows.Backlogs = []state.Backlog{{Pool: "chat", Requests: 3, Tokens: 900}}
	f.Add(AppendRows(nil, &rows))
	rows.Traffic = []state.Traffic{{Pool: "chat", Requests: 9, Uncached: 1000, FirstsMet: 2}}
	f.Add(AppendRows(nil, &rows))
	reading := state.UnknownReading("a")
	reading.AdaptersRunning, reading.AdaptersWaiting, reading.Adapters = []string{"x", "y"}, []string{"z"}, []string{"x", "y", "z"}
	reading.AdaptersSum, reading.AdapterSlots = state.SumAdapters(reading.Adapters), 2
	f.Add(AppendReadings(nil, []state.Reading{reading, reading}))
	var b OpBatch
	for k := sketch.OpInsert; k <= sketch.OpCapacity; k++ {
		b.Add(&sketch.Op{
			Kind: k, Replica: "a", Boot: 5, Seq: 10, Stamp: state.Stamp{Boot: 6, At: 100}, Mark: 1, Answer: 2,
			Parent: 3, Links: []sketch.Link{{Hash: 1, Tokens: 4, Scale: 5, Answer: true}},
		})
	}
	f.Add(b.Append(nil, 1, 10))
	f.Add(AppendLessons(nil, &Lessons{Boot: 7, Seq: 3, Lessons: []state.Lesson{
		{Kind: state.LessonSpeed, Subject: "a", Pool: "p", Values: []float32{1, 2.5, 1e6}}, {Kind: 200, Subject: "a"},
	}}))
	f.Add(AppendHello(nil, &Hello{Router: "r1", Boot: 7, Nonce: make([]byte, 32), Keys: [][]byte{{1}}}))
	f.Add(AppendBeacon(nil, &Beacon{Router: "r1", Boot: 7, Hears: []state.BootID{1, 2}}))
	f.Add(AppendCall(nil, &Call{ID: 1, Method: "m", Payload: []byte("p")}))
	f.Add(AppendReply(nil, &Reply{ID: 1, Err: "m", Payload: []byte("p")}))
	f.Add(AppendResume(nil, &Resume{Boot: 1, Cursor: 5}))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d Decoder
		again := func(what string, first []byte, err error, second func([]byte) ([]byte, error)) {
			if err != nil {
				return
			}
			got, err := second(first)
			if err != nil || !bytes.Equal(got, first) {
				t.Fatalf("%s: % x\nbecame % x (%v)", what, first, got, err)
			}
		}
		round := func(what string, decode func([]byte) ([]byte, error)) {
			first, err := decode(in)
			again(what, first, err, decode)
		}
		round("rows", func(b []byte) ([]byte, error) {
			m, err := d.Rows(b)
			return AppendRows(nil, &m), err
		})
		round("readings", func(b []byte) ([]byte, error) {
			m, err := d.Readings(b)
			return AppendReadings(nil, m), err
		})
		round("ops", func(b []byte) ([]byte, error) {
			m, err := d.Ops(b)
			var batch OpBatch
			for i := range m.Ops {
				batch.Add(&m.Ops[i])
			}
			return batch.Append(nil, m.From, m.Next), err
		})
		round("lessons", func(b []byte) ([]byte, error) {
			m, err := d.Lessons(b)
			return AppendLessons(nil, &m), err
		})
		round("hello", func(b []byte) ([]byte, error) {
			m, err := d.Hello(b)
			return AppendHello(nil, &m), err
		})
		round("beacon", func(b []byte) ([]byte, error) {
			m, err := d.Beacon(b)
			return AppendBeacon(nil, &m), err
		})
		round("beacon reply", func(b []byte) ([]byte, error) {
			m, err := d.BeaconReply(b)
			return AppendBeaconReply(nil, &m), err
		})
		round("resume", func(b []byte) ([]byte, error) {
			m, err := d.Resume(b)
			return AppendResume(nil, &m), err
		})
		round("snapshot end", func(b []byte) ([]byte, error) {
			m, err := d.SnapshotEnd(b)
			return AppendSnapshotEnd(nil, &m), err
		})
		round("call", func(b []byte) ([]byte, error) {
			m, err := d.Call(b)
			return AppendCall(nil, &m), err
		})
		round("reply", func(b []byte) ([]byte, error) {
			m, err := d.Reply(b)
			return AppendReply(nil, &m), err
		})
		round("meta", func(b []byte) ([]byte, error) {
			m, err := d.Meta(b)
			return AppendMeta(nil, &m), err
		})
		round("ping", func(b []byte) ([]byte, error) {
			m, err := d.Ping(b)
			return AppendPing(nil, m), err
		})
		round("refuse", func(b []byte) ([]byte, error) {
			m, err := d.Refuse(b)
			return AppendRefuse(nil, m), err
		})
	})
}

// FuzzStream gives a stream's decoders foreign messages between good ones: they
// never panic, and a sender that starts over is understood at once.
func FuzzStream(f *testing.F) {
	var t Table
	good := []Rows{{Rows: state.Rows{Router: "r1", Boot: 7, Seq: 3, Rows: []state.Row{{Replica: "a"}, {Replica: "b", Failures: 2}}}}}
	f.Add(t.AppendLoads(nil, good), t.AppendLoads(nil, good), true)
	var b OpBatch
	t.Reset()
	b.On(&t)
	for k := sketch.OpInsert; k <= sketch.OpCapacity; k++ {
		b.Add(&sketch.Op{Kind: k, Replica: "a", Boot: 5, Seq: 10, Mark: 1, Links: []sketch.Link{{Hash: 1, Tokens: 4}}})
	}
	f.Add(b.AppendOn(nil, 1, 10), t.AppendLoads(nil, good), false)
	f.Add([]byte{0, 0}, []byte{0, 1, 0xff, 0xff, 0xff, 0xff}, true)
	f.Fuzz(func(t *testing.T, first, second []byte, loads bool) {
		var d Decoder
		var receiver Table
		for _, in := range [][]byte{first, second, first} {
			if loads {
				if list, err := d.Loads(&receiver, in); err == nil {
					var s, r Table
					if again, err := d.Loads(&r, s.AppendLoads(nil, list)); err != nil || len(again) != len(list) {
						t.Fatalf("%+v became %+v (%v)", list, again, err)
					}
				}
			} else if m, err := d.OpsOn(&receiver, in); err == nil && len(m.Ops) > len(in) {
				t.Fatalf("%d ops from %d bytes", len(m.Ops), len(in))
			}
			loads = !loads
		}
		var s Table
		if list, err := d.Loads(&receiver, s.AppendLoads(nil, good)); err != nil || list[0].Rows.Rows[1].Replica != "b" {
			t.Fatalf("after starting over: %+v, %v", list, err)
		}
	})
}

// FuzzFrames reads arbitrary bytes as frames; what was read makes up the input.
func FuzzFrames(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, KindRows, []byte("abc")), KindPing, nil), 100)
	f.Add([]byte{0xff, 0xff, 0xff, 1, 1}, MaxFrame)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		r := NewFrameReader(bytes.NewReader(in), limit)
		var out []byte
		for {
			h, p, err := r.Next()
			if err != nil {
				break
			}
			if len(p) != h.Length || len(p) > limit {
				t.Fatalf("%d bytes of payload, header %+v, limit %d", len(p), h, limit)
			}
			at := len(out)
			out = AppendFrame(out, h.Kind, p)
			out[at+4] = h.Version
		}
		if !bytes.HasPrefix(in, out) {
			t.Fatalf("read % x from % x", out, in)
		}
	})
}
