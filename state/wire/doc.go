// Package wire is the binary form of everything that travels between routers:
// frames, the handshake, load rows, sketch operations, engine readings, beacons,
// resumption and calls.
//
// Compatibility: a frame names its kind and length, so that a kind unknown here is
// skipped. A message is a sequence of fields to which later versions only append:
// a decoder ignores what follows the fields it knows, and gives zero values to
// appended fields that an older sender left out. Items of lists carry their length
// and follow the same rule. Appended fields never use the tables of repeated
// strings and boot ids, since a reader that skips them would lose count. A release reads what the release before it wrote
// (Version - 1); the handshake refuses anything older.
//
// Decoders are total: any input gives a message or an error, never a panic, and
// allocates in proportion to the input. Nothing decoded refers to the input unless
// its comment says so. The package knows no I/O but reading and writing frames.
package wire

// Version is the wire version this release writes; MinVersion is the oldest that
// it reads.
const (
	Version    = 2
	MinVersion = 1
)

// Kind says what a frame holds.
type Kind uint8

// Kinds of frames. Numbers are never given twice.
const (
	KindHello         Kind = 1
	KindProof         Kind = 2
	KindRefuse        Kind = 3
	KindPing          Kind = 4
	KindPong          Kind = 5
	KindCall          Kind = 6
	KindReply         Kind = 7
	KindRows          Kind = 16
	KindReadings      Kind = 17
	KindOps           Kind = 18
	KindResume        Kind = 19
	KindSnapshotChunk Kind = 20
	KindSnapshotEnd   Kind = 21
	KindBeacon        Kind = 22
	KindBeaconReply   Kind = 23
	KindLessons       Kind = 24
	KindStreamRows    Kind = 25 // since version 2, instead of KindRows where there is a stream
	KindStreamOps     Kind = 26 // since version 2, instead of KindOps
)

var kindNames = map[Kind]string{
	KindHello: "hello", KindProof: "proof", KindRefuse: "refuse", KindPing: "ping", KindPong: "pong",
	KindCall: "call", KindReply: "reply", KindRows: "rows", KindReadings: "readings", KindOps: "ops",
	KindResume: "resume", KindSnapshotChunk: "snapshot_chunk", KindSnapshotEnd: "snapshot_end",
	KindBeacon: "beacon", KindBeaconReply: "beacon_reply", KindLessons: "lessons",
	KindStreamRows: "stream_rows", KindStreamOps: "stream_ops",
}

// String is the kind's name as metrics show it; "unknown" for a later release's.
func (k Kind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return "unknown"
}
