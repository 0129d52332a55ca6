package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxFrame bounds a frame's payload in bytes.
const MaxFrame = 4 << 20

// HeaderSize is the size of a frame's header: the payload's length in three
// bytes, big endian, the kind and the writer's wire version.
const HeaderSize = 5

// ErrTooLarge says that a frame's header claims more than its bound.
var ErrTooLarge = errors.New("frame too large")

// Header precedes every frame.
type Header struct {
	Length  int // bytes of payload
	Kind    Kind
	Version uint8
}

// AppendFrame appends a whole frame. The payload must not exceed MaxFrame.
func AppendFrame(dst []byte, k Kind, payload []byte) []byte {
	n := len(payload)
	dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(k), Version)
	return append(dst, payload...)
}

// ParseHeader reads a header; b has at least HeaderSize bytes.
func ParseHeader(b []byte) Header {
	return Header{Length: int(binary.BigEndian.Uint32(b) >> 8), Kind: Kind(b[3]), Version: b[4]}
}

// FrameReader reads frames from a stream, one goroutine at a time.
type FrameReader struct {
	r    io.Reader
	max  int
	head [HeaderSize]byte
	buf  []byte
}

// NewFrameReader reads frames of at most limit bytes of payload from r, which
// should be buffered.
func NewFrameReader(r io.Reader, limit int) *FrameReader {
	return &FrameReader{r: r, max: min(limit, MaxFrame)}
}

// Limit changes the bound on a payload.
func (f *FrameReader) Limit(limit int) { f.max = min(limit, MaxFrame) }

// growStep bounds what a header's claim alone makes the reader allocate.
const growStep = 64 << 10

// Next reads one frame. The payload is valid until the next call. io.EOF means
// that the stream ended between frames.
func (f *FrameReader) Next() (Header, []byte, error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return Header{}, nil, err
	}
	h := ParseHeader(f.head[:])
	if h.Length > f.max {
		return h, nil, fmt.Errorf("%s of %d bytes: %w", h.Kind, h.Length, ErrTooLarge)
	}
	if cap(f.buf) > 4*growStep && h.Length < growStep {
		f.buf = nil // one large frame does not pin memory for good
	}
	f.buf = f.buf[:0]
	for len(f.buf) < h.Length {
		from := len(f.buf)
		n := min(h.Length-from, max(growStep, cap(f.buf)-from))
		if cap(f.buf) < from+n {
			grown := make([]byte, from, max(from+n, min(h.Length, 2*cap(f.buf))))
			copy(grown, f.buf)
			f.buf = grown
		}
		f.buf = f.buf[:from+n]
		if _, err := io.ReadFull(f.r, f.buf[from:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return h, nil, err
		}
	}
	return h, f.buf, nil
}

// Frame is a frame to send.
type Frame struct {
	Kind    Kind
	Payload []byte
}
