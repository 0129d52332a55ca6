package proxy

import (
	"bufio"
	"io"
)

type bodyKind uint8

const (
	bodySized bodyKind = iota
	bodyChunked
	bodyUntilClose
)

// bodyReader reads a response body by its framing. Read returns io.EOF at the
// proper end only; a body that ends early is io.ErrUnexpectedEOF.
type bodyReader struct {
	br     *bufio.Reader // the connection's, for one Read
	kind   bodyKind
	left   int64 // of a sized body
	chunks chunkReader
	eof    bool // until close: the end was seen
}

// done reports whether the body has been read to its proper end.
func (b *bodyReader) done() bool {
	switch b.kind {
	case bodySized:
		return b.left == 0
	case bodyChunked:
		return b.chunks.done()
	}
	return b.eof
}

// size is the body's length, or -1 when it is not known beforehand.
func (b *bodyReader) size() int64 {
	if b.kind == bodySized {
		return b.left
	}
	return -1
}

func (b *bodyReader) Read(p []byte) (int, error) {
	switch b.kind {
	case bodySized:
		if b.left == 0 {
			return 0, io.EOF
		}
		n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		if err == io.EOF && b.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		if b.left == 0 {
			err = nil
		}
		return n, err
	case bodyChunked:
		b.chunks.br = b.br
		return b.chunks.Read(p)
	}
	n, err := b.br.Read(p)
	if err == io.EOF {
		b.eof = true
	}
	return n, err
}
