package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is one message of each kind, and how it is read and written again.
func golden() []struct {
	name string
	b    []byte
	read func(d *Decoder, b []byte) ([]byte, error)
} {
	rows := Rows{Sent: 90 * time.Second, Rows: state.Rows{
		Router: "router-1", Boot: 0x1122334455667788, Seq: 300, Full: true, FactsIndex: 7,
		Rows: []state.Row{{Replica: "http://10.0.0.1:8000", Load: state.Load{InFlight: 3, Prefill: 1, UncachedTokens: 20000}, Failures: 2}, {Replica: "b"}},
	}}
	queued := rows
	queued.Backlogs = []state.Backlog{{Pool: "chat", Requests: 12, Tokens: 34000}, {Pool: "code", Requests: 1}}
	asked := rows
	asked.Traffic = []state.Traffic{{Pool: "chat", Requests: 300, Uncached: 450000, Answers: 290, Output: 58000, Firsts: 295, FirstsMet: 280, Streams: 200, StreamsMet: 199}}
	reading := state.UnknownReading("http://10.0.0.1:8000")
	reading.Reader, reading.OK, reading.Running, reading.AdaptersRunning = "router-1", true, 5, []string{"lora"}
	reading.At = state.Stamp{Boot: 0x1122334455667788, At: time.Minute}
	op := sketch.Op{
		Kind: sketch.OpPlace, Replica: "http://10.0.0.1:8000", Boot: 0x1122334455667788, Seq: 41, Mark: 99, Parent: 5, Placement: 12,
		Stamp: state.Stamp{Boot: 0x1122334455667788, At: time.Minute}, Links: []sketch.Link{{Hash: 98, Tokens: 256}, {Hash: 99, Tokens: 300, Scale: 4000}},
	}
	var ops, onStream OpBatch
	ops.Add(&op)
	var t1, t2, t3, t4 Table
	onStream.On(&t2)
	onStream.Add(&op)
	lessons := Lessons{Boot: 9, Seq: 4, Lessons: []state.Lesson{{Kind: state.LessonSpeed, Subject: "a", Pool: "p", Values: []float32{1, 2.5}}}}
	hello := Hello{
		Router: "router-1", Boot: 1, Name: "n", Cluster: "c", ClusterID: "id", MinVersion: 1, Version: 1, Scheme: "1", Proto: 'm',
		Nonce: []byte("0123456789abcdef0123456789abcdef"), Public: []byte("key"), Keys: [][]byte{{1, 2}},
	}
	looking := hello
	looking.Want = "router-2"
	beacon := Beacon{Router: "router-1", Boot: 1, Sent: time.Second, UDPQuiet: true, Hears: []state.BootID{2, 3}, Addr: "10.0.0.1:7946", Version: 1}
	later := beacon
	later.Version, later.Same = 2, true
	meta := Meta{Boot: 1, MinVersion: 1, Version: 1, Scheme: "1", MeshAddr: ":7947", APIAddr: ":8080", Name: "n"}
	administered := meta
	administered.AdminAddr = ":8081"
	readMeta := func(d *Decoder, b []byte) ([]byte, error) {
		m, err := d.Meta(b)
		return AppendMeta(nil, &m), err
	}
	readOps := func(d *Decoder, b []byte) ([]byte, error) {
		m, err := d.Ops(b)
		var batch OpBatch
		for i := range m.Ops {
			batch.Add(&m.Ops[i])
		}
		return batch.Append(nil, m.From, m.Next), err
	}
	readBeacon := func(d *Decoder, b []byte) ([]byte, error) {
		m, err := d.Beacon(b)
		return AppendBeacon(nil, &m), err
	}
	return []struct {
		name string
		b    []byte
		read func(d *Decoder, b []byte) ([]byte, error)
	}{
		{"hello 1", AppendHello(nil, &hello), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Hello(b)
			return AppendHello(nil, &m), err
		}},
		{"hello 1 with whom it looks for", AppendHello(nil, &looking), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Hello(b)
			return AppendHello(nil, &m), err
		}},
		{"rows 1", AppendRows(nil, &rows), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Rows(b)
			return AppendRows(nil, &m), err
		}},
		{"readings 1", AppendReadings(nil, []state.Reading{reading}), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Readings(b)
			return AppendReadings(nil, m), err
		}},
		{"ops 1", ops.Append(nil, 40, 41), readOps},
		{"beacon 1", AppendBeacon(nil, &beacon), readBeacon},
		{"beacon 2", AppendBeacon(nil, &later), readBeacon},
		{"meta 1", AppendMeta(nil, &meta), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Meta(b)
			return AppendMeta(nil, &m), err
		}},
		{"resume 1", AppendResume(nil, &Resume{Boot: 1, Cursor: 300, Tail: true}), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Resume(b)
			return AppendResume(nil, &m), err
		}},
		{"lessons 2", AppendLessons(nil, &lessons), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Lessons(b)
			return AppendLessons(nil, &m), err
		}},
		{"stream_rows 2", t1.AppendLoads(nil, []Rows{rows}), func(d *Decoder, b []byte) ([]byte, error) {
			var in, out Table
			m, err := d.Loads(&in, b)
			return out.AppendLoads(nil, m), err
		}},
		{"rows 2 with backlogs", AppendRows(nil, &queued), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Rows(b)
			return AppendRows(nil, &m), err
		}},
		{"stream_rows 2 with backlogs", t3.AppendLoads(nil, []Rows{queued}), func(d *Decoder, b []byte) ([]byte, error) {
			var in, out Table
			m, err := d.Loads(&in, b)
			return out.AppendLoads(nil, m), err
		}},
		{"rows 2 with traffic", AppendRows(nil, &asked), func(d *Decoder, b []byte) ([]byte, error) {
			m, err := d.Rows(b)
			return AppendRows(nil, &m), err
		}},
		{"stream_rows 2 with traffic", t4.AppendLoads(nil, []Rows{asked}), func(d *Decoder, b []byte) ([]byte, error) {
			var in, out Table
			m, err := d.Loads(&in, b)
			return out.AppendLoads(nil, m), err
		}},
		{"meta 2 with an admin address", AppendMeta(nil, &administered), readMeta},
		{"stream_ops 2", onStream.AppendOn(nil, 40, 41), func(d *Decoder, b []byte) ([]byte, error) {
			var in, out Table
			m, err := d.OpsOn(&in, b)
			var batch OpBatch
			batch.On(&out)
			for i := range m.Ops {
				batch.Add(&m.Ops[i])
			}
			return batch.AppendOn(nil, m.From, m.Next), err
		}},
	}
}

// What a release wrote is read by the next: a changed byte here is a broken
// cluster there. The number is the wire version that a message came with.
func TestMessagesAreWhatTheyWere(t *testing.T) {
	const path = "testdata/messages.txt"
	var d Decoder
	var out strings.Builder
	for _, g := range golden() {
		fmt.Fprintf(&out, "%s: %s\n", g.name, hex.EncodeToString(g.b))
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("written:\n%swas:\n%s", out.String(), want)
	}
	lines := map[string][]byte{}
	for line := range strings.Lines(string(want)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if lines[name], err = hex.DecodeString(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range golden() {
		if got, err := g.read(&d, lines[g.name]); err != nil || !bytes.Equal(got, lines[g.name]) {
			t.Errorf("%s: % x (%v)\nwas % x", g.name, got, err, lines[g.name])
		}
	}
}

// A release that knows nothing of traffic ends before it; one that knows more counts
// finds some missing, and one that knows fewer leaves some.
func TestTrafficIsAddedAtTheEnd(t *testing.T) {
	m := Rows{Rows: state.Rows{Router: "r1", Boot: 7, Seq: 3, Rows: []state.Row{{Replica: "a", Load: state.Load{InFlight: 2}}}, Backlogs: []state.Backlog{{Pool: "chat", Requests: 3, Tokens: 900}}}}
	before := AppendRows(nil, &m)
	m.Traffic = []state.Traffic{{Pool: "chat", Requests: 300, Uncached: 7}}
	after := AppendRows(nil, &m)
	if !bytes.HasPrefix(after, before) || len(after) == len(before) {
		t.Errorf("% x does not begin with % x", after, before)
	}
	var d Decoder
	for name, counts := range map[string][]byte{"fewer": {5, 6}, "more": {5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9}} {
		b := append(append([]byte(nil), before...), 1, byte(5+len(counts)), 4, 'c', 'h', 'a', 't')
		got, err := d.Rows(append(b, counts...))
		if err != nil || len(got.Traffic) != 1 || got.Traffic[0] != (state.Traffic{Pool: "chat", Requests: 5, Uncached: 6}) {
			t.Errorf("%s: %+v, %v", name, got.Traffic, err)
		}
	}
}
