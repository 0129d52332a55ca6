package wire

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

func genLoads(t *rapid.T) []Rows {
	list := []Rows{}
	for range rapid.IntRange(0, 4).Draw(t, "origins") {
		m := Rows{
			Sent: time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "sent")) * time.Microsecond,
			Rows: state.Rows{
				Router: state.RouterID(genID(t, "router")), Boot: genBoot(t, "boot"), Seq: rapid.Uint64().Draw(t, "seq"),
				Full: rapid.Bool().Draw(t, "full"), FactsIndex: rapid.Uint64Range(0, 3).Draw(t, "facts"), Rows: []state.Row{},
			},
		}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			m.Rows.Rows = append(m.Rows.Rows, state.Row{
				Replica: state.ReplicaID(genID(t, "replica")), Failures: rapid.Uint32Range(0, 1).Draw(t, "failures"),
				Load: state.Load{
					InFlight: rapid.Int64Range(0, 3).Draw(t, "in"), Prefill: rapid.Int64Range(0, 1).Draw(t, "pre"),
					UncachedTokens: rapid.Int64Range(0, maxCount).Draw(t, "tokens"),
				},
			})
		}
		list = append(list, m)
	}
	return list
}

// A stream of messages: what arrives in step comes as it was; after a loss the
// receiver says so of every message, until the sender starts over.
func TestStreamTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Decoder
		var sender, receiver Table
		inStep := true
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			if rapid.IntRange(0, 9).Draw(t, "start over") == 0 {
				sender.Reset()
				inStep = true
			}
			var b []byte
			var want any
			if loads := rapid.Bool().Draw(t, "loads"); loads {
				list := genLoads(t)
				b, want = sender.AppendLoads(nil, list), list
			} else {
				var batch OpBatch
				m := Ops{From: rapid.Uint64().Draw(t, "from"), Ops: []sketch.Op{}}
				m.Next = m.From + rapid.Uint64().Draw(t, "step")
				batch.On(&sender)
				for range rapid.IntRange(0, 4).Draw(t, "ops") {
					op := genOp(t)
					batch.Add(&op)
					m.Ops = append(m.Ops, op)
				}
				b, want = batch.AppendOn(nil, m.From, m.Next), m
			}
			switch rapid.IntRange(0, 9).Draw(t, "fate") {
			case 0: // lost: the sender does not know
				inStep = false
				continue
			case 1: // cut short
				b = b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
			}
			var got any
			var err error
			if _, ok := want.([]Rows); ok {
				got, err = d.Loads(&receiver, b)
			} else {
				got, err = d.OpsOn(&receiver, b)
			}
			switch {
			case err != nil:
				inStep = false
			case !inStep:
				t.Fatal("a loss was not noticed")
			case !reflect.DeepEqual(got, want):
				t.Fatalf("got  %+v\nwant %+v", got, want)
			}
		}
		sender.Reset()
		want := genLoads(t)
		if got, err := d.Loads(&receiver, sender.AppendLoads(nil, want)); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("after starting over: got %+v (%v)\nwant %+v", got, err, want)
		}
	})
}

func TestALostMessageIsNoticed(t *testing.T) {
	var d Decoder
	var sender, receiver Table
	say := func(id state.ReplicaID) []byte {
		return sender.AppendLoads(nil, []Rows{{Rows: state.Rows{Router: "r1", Boot: 7, Seq: 1, Rows: []state.Row{{Replica: id}}}}})
	}
	if _, err := d.Loads(&receiver, say("a")); err != nil {
		t.Fatal(err)
	}
	lost := say("b")
	if _, err := d.Loads(&receiver, say("b")); !errors.Is(err, ErrOutOfStep) {
		t.Errorf("after a loss: %v", err)
	}
	if _, err := d.Loads(&receiver, lost); !errors.Is(err, ErrOutOfStep) {
		t.Errorf("the lost one, too late: %v", err)
	}
	sender.Reset()
	if list, err := d.Loads(&receiver, say("c")); err != nil || list[0].Rows.Rows[0].Replica != "c" {
		t.Errorf("%v, %v", list, err)
	}
}

// A table never grows without bound: its sender starts over.
func TestAFullTableStartsOver(t *testing.T) {
	var d Decoder
	var sender, receiver Table
	for i := range 3 * maxTable {
		boot := state.BootID(i + 1)
		list, err := d.Loads(&receiver, sender.AppendLoads(nil, []Rows{{Rows: state.Rows{Router: "r1", Boot: boot, Seq: uint64(i)}}}))
		if err != nil || list[0].Boot != boot || list[0].Seq != uint64(i) {
			t.Fatalf("%d: %+v %v", i, list, err)
		}
	}
	if len(receiver.boots) > maxTable+1 || len(receiver.loads) > maxTable+1 {
		t.Errorf("%d boots, %d bases", len(receiver.boots), len(receiver.loads))
	}
}
