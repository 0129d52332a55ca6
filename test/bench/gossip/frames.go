package main

import (
	"sync/atomic"

	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// frames counts what gossip gives the mesh to send, by kind.
type frames struct {
	*mesh.Mesh
	kinds [256]struct{ frames, bytes atomic.Int64 } // headers included
}

// Send implements gossip.Mesh.
func (f *frames) Send(to state.RouterID, k wire.Kind, payload []byte) bool {
	if !f.Mesh.Send(to, k, payload) {
		return false
	}
	f.count(k, payload)
	return true
}

// SendAll implements gossip.Mesh.
func (f *frames) SendAll(to state.RouterID, list ...wire.Frame) bool {
	if !f.Mesh.SendAll(to, list...) {
		return false
	}
	for i := range list {
		f.count(list[i].Kind, list[i].Payload)
	}
	return true
}

func (f *frames) count(k wire.Kind, payload []byte) {
	f.kinds[k].frames.Add(1)
	f.kinds[k].bytes.Add(int64(len(payload) + wire.HeaderSize))
}

// sent is what one router has sent, or what it sends a second.
type sent struct {
	Rows, Ops, Readings, Lessons, Beacons   float64 // frames, bytes with their headers
	RowsN, OpsN, ReadingsN, LessonsN, Other float64 // the number of the first four; bytes of all other frames
	Records                                 float64 // sealed records
	Stream                                  float64 // bytes of the mesh's streams
	Member                                  float64 // bytes of membership, datagrams and streams
	Packets                                 float64 // datagrams
	PacketBytes                             float64 // of them
	In                                      float64
}

// seal is what a record adds to the bytes in it.
const seal = 2 + 16

// Pings are the bytes of what the mesh sends for itself.
func (s *sent) pings() float64 {
	return s.Stream - seal*s.Records - s.Rows - s.Ops - s.Readings - s.Lessons - s.Beacons - s.Other
}

// total is all bytes that left.
func (s *sent) total() float64 { return s.Stream + s.Member }

// sent reads the counters.
func (r *router) sent() sent {
	s := sent{
		Records: float64(r.streams.writes.Load()), Stream: float64(r.streams.out.Load()),
		Member: float64(r.members.out.Load() + r.packets.out.Load()), Packets: float64(r.packets.writes.Load()), PacketBytes: float64(r.packets.out.Load()),
		In: float64(r.streams.in.Load() + r.members.in.Load() + r.packets.in.Load()),
	}
	for k := range r.frames.kinds {
		n, b := float64(r.frames.kinds[k].frames.Load()), float64(r.frames.kinds[k].bytes.Load())
		switch wire.Kind(k) {
		case wire.KindRows, wire.KindStreamRows:
			s.RowsN, s.Rows = s.RowsN+n, s.Rows+b
		case wire.KindOps, wire.KindStreamOps:
			s.OpsN, s.Ops = s.OpsN+n, s.Ops+b
		case wire.KindReadings:
			s.ReadingsN, s.Readings = n, b
		case wire.KindLessons:
			s.LessonsN, s.Lessons = n, b
		case wire.KindBeacon, wire.KindBeaconReply:
			s.Beacons += b
		default:
			s.Other += b
		}
	}
	return s
}

// add puts f times x to s.
func (s *sent) add(x sent, f float64) {
	for _, p := range []struct {
		to   *float64
		from float64
	}{
		{&s.Rows, x.Rows},
		{&s.Ops, x.Ops},
		{&s.Readings, x.Readings},
		{&s.Lessons, x.Lessons},
		{&s.Beacons, x.Beacons},
		{&s.RowsN, x.RowsN},
		{&s.OpsN, x.OpsN},
		{&s.ReadingsN, x.ReadingsN},
		{&s.LessonsN, x.LessonsN},
		{&s.Other, x.Other},
		{&s.Records, x.Records},
		{&s.Stream, x.Stream},
		{&s.Member, x.Member},
		{&s.Packets, x.Packets},
		{&s.PacketBytes, x.PacketBytes},
		{&s.In, x.In},
	} {
		*p.to += f * p.from
	}
}
