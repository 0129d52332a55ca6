package mesh

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// maxRecord bounds the plain bytes of one sealed record.
const maxRecord = 32 << 10

const tagSize = 16

var errRecord = errors.New("record does not authenticate")

// sealed is a connection whose bytes travel as AES-256-GCM records: two bytes of
// length, which are authenticated too, then the sealed bytes. The nonce is the
// record's number, so that a record lost, repeated, moved or changed ends the
// stream. A stream cut off at a record's end looks like a close: what it carries
// must know its own ends. Reads and writes may run concurrently.
type sealed struct {
	net.Conn

	rmu   sync.Mutex
	open  cipher.AEAD
	rseq  uint64
	rbuf  []byte // guarded by rmu; a whole record
	plain []byte // guarded by rmu; opened, not read; within rbuf
	rerr  error

	wmu  sync.Mutex
	seal cipher.AEAD
	wseq uint64
	wbuf []byte
	werr error
}

func newSealed(c net.Conn, readKey, writeKey []byte) (*sealed, error) {
	s := &sealed{Conn: c}
	for _, k := range []struct {
		key []byte
		to  *cipher.AEAD
	}{{readKey, &s.open}, {writeKey, &s.seal}} {
		block, err := aes.NewCipher(k.key)
		if err != nil {
			return nil, err
		}
		if *k.to, err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func nonce(seq uint64) (n [12]byte) {
	binary.BigEndian.PutUint64(n[4:], seq)
	return n
}

// Read implements net.Conn.
func (s *sealed) Read(b []byte) (int, error) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	for len(s.plain) == 0 {
		if s.rerr != nil {
			return 0, s.rerr
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.plain)
	s.plain = s.plain[n:]
	return n, nil
}

// next opens the next record. What came of a record before a deadline passed is
// kept, so that a later read goes on with it. The caller holds rmu.
func (s *sealed) next() error {
	if err := s.fill(2); err != nil {
		if err == io.EOF && len(s.rbuf) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	size := int(binary.BigEndian.Uint16(s.rbuf))
	if size <= tagSize || size > maxRecord+tagSize {
		s.rerr = fmt.Errorf("record of %d bytes: %w", size, errRecord)
		return s.rerr
	}
	if err := s.fill(2 + size); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	n := nonce(s.rseq)
	plain, err := s.open.Open(s.rbuf[2:2], n[:], s.rbuf[2:2+size], s.rbuf[:2])
	if err != nil {
		s.rerr = errRecord
		return s.rerr
	}
	s.rseq++
	s.plain, s.rbuf = plain, s.rbuf[:0]
	return nil
}

// fill reads until rbuf holds n bytes.
func (s *sealed) fill(n int) error {
	if cap(s.rbuf) < n {
		s.rbuf = append(make([]byte, 0, max(n, 4<<10)), s.rbuf...)
	}
	for len(s.rbuf) < n {
		k, err := s.Conn.Read(s.rbuf[len(s.rbuf):n])
		s.rbuf = s.rbuf[:len(s.rbuf)+k]
		if err != nil && len(s.rbuf) < n {
			return err
		}
	}
	return nil
}

// Write implements net.Conn. After a write that failed half-way the stream cannot
// be written to any more.
func (s *sealed) Write(b []byte) (written int, err error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	for len(b) > 0 {
		if s.werr != nil {
			return written, s.werr
		}
		// As many records as fit a bounded buffer go out in one write.
		s.wbuf = s.wbuf[:0]
		taken := 0
		for len(b) > 0 && taken < 4*maxRecord {
			k := min(len(b), maxRecord)
			at := len(s.wbuf)
			s.wbuf = binary.BigEndian.AppendUint16(s.wbuf, uint16(k+tagSize))
			n := nonce(s.wseq)
			s.wbuf = s.seal.Seal(s.wbuf, n[:], b[:k], s.wbuf[at:at+2])
			s.wseq++
			b, taken = b[k:], taken+k
		}
		if _, err := s.Conn.Write(s.wbuf); err != nil {
			s.werr = err
			return written, err
		}
		written += taken
	}
	return written, nil
}

// NetConn is the connection beneath.
func (s *sealed) NetConn() net.Conn { return s.Conn }
