package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// errChunk says that a body's chunked framing is broken.
var errChunk = errors.New("bad chunked framing")

// maxTrailerBytes bounds the trailer section of a chunked body, which is read
// and dropped.
const maxTrailerBytes = 16 << 10

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd // CRLF after the data
	chunkTrailer
	chunkDone
)

// chunkReader decodes a chunked body. A Read blocks for its first byte only:
// after that it takes what is buffered already, so that a burst of small chunks
// leaves as one piece while a paced stream leaves chunk by chunk. It reads
// nothing beyond the end of the body.
type chunkReader struct {
	br      *bufio.Reader
	left    int64
	trailer int
	state   chunkState
	err     error // sticky
}

// done reports whether the body has been read to its proper end.
func (c *chunkReader) done() bool { return c.state == chunkDone }

func (c *chunkReader) Read(p []byte) (n int, err error) {
	if c.err != nil {
		return 0, c.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch c.state {
		case chunkSize:
			if n > 0 && !c.lineBuffered() {
				return n, nil
			}
			if err := c.size(); err != nil {
				return n, c.fail(err)
			}
		case chunkData:
			if n == len(p) || (n > 0 && c.br.Buffered() == 0) {
				return n, nil
			}
			m, err := c.br.Read(p[n : n+int(min(c.left, int64(len(p)-n)))])
			n += m
			c.left -= int64(m)
			if c.left == 0 {
				c.state = chunkEnd
			} else if err != nil {
				return n, c.fail(err)
			}
		case chunkEnd:
			if n > 0 && c.br.Buffered() < 2 {
				return n, nil
			}
			l, err := c.line()
			if err != nil {
				return n, c.fail(err)
			}
			if len(l) != 0 {
				return n, c.fail(errChunk)
			}
			c.state = chunkSize
		case chunkTrailer:
			if n > 0 && !c.lineBuffered() {
				return n, nil
			}
			l, err := c.line()
			if err != nil {
				return n, c.fail(err)
			}
			if c.trailer += len(l); c.trailer > maxTrailerBytes {
				return n, c.fail(errChunk)
			}
			if len(l) == 0 {
				c.state = chunkDone
			}
		default:
			if n > 0 {
				return n, nil
			}
			return 0, io.EOF
		}
	}
}

// fail keeps err for later calls; an end of input inside the body is unexpected.
func (c *chunkReader) fail(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == bufio.ErrBufferFull {
		err = errChunk
	}
	c.err = err
	return err
}

// size reads a chunk's size line.
func (c *chunkReader) size() error {
	l, err := c.line()
	if err != nil {
		return err
	}
	l, _, _ = bytes.Cut(l, []byte(";"))
	l = bytes.TrimRight(l, " \t") // some engines pad it
	if len(l) == 0 || len(l) > 15 {
		return errChunk
	}
	v := int64(0)
	for _, b := range l {
		switch {
		case b >= '0' && b <= '9':
			v = v<<4 | int64(b-'0')
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			v = v<<4 | int64(b|0x20-'a'+10)
		default:
			return errChunk
		}
	}
	c.left, c.state = v, chunkData
	if v == 0 {
		c.state = chunkTrailer
	}
	return nil
}

// line reads one line that ends with CRLF, without it. The slice is valid until
// the next read.
func (c *chunkReader) line() ([]byte, error) {
	l, err := c.br.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(l) < 2 || l[len(l)-2] != '\r' {
		return nil, errChunk
	}
	l = l[:len(l)-2]
	if bytes.IndexByte(l, '\r') >= 0 {
		return nil, errChunk
	}
	return l, nil
}

// lineBuffered reports whether a whole line can be read without blocking.
func (c *chunkReader) lineBuffered() bool {
	b, _ := c.br.Peek(c.br.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}
