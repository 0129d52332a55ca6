package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// client is one connection that is kept alive, and the chat that it sends over and
// over with another number each time. It belongs to one goroutine.
type client struct {
	*net.TCPConn
	in     *bufio.Reader
	chat   *chat
	head   []byte
	stream bool
	at     time.Time // when the last bytes came
	text   []byte    // of a stream, not looked at yet
	piece  [8 << 10]byte
}

func dial(addr string, c *cell) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	k := &client{TCPConn: conn.(*net.TCPConn), chat: newChat(c.Bytes, c.Stream), stream: c.Stream}
	k.in = bufio.NewReaderSize(stamped{k}, 16<<10)
	k.head = fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: overhead\r\nAccept: */*\r\nAuthorization: Bearer none\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", addr, len(k.chat.b))
	return k, nil
}

// stamped notes when bytes come.
type stamped struct{ k *client }

func (s stamped) Read(p []byte) (int, error) {
	n, err := s.k.TCPConn.Read(p)
	s.k.at = time.Now()
	return n, err
}

// reply is what came of one request.
type reply struct {
	begin, first, end time.Time
	delays            []time.Duration // of each chunk of a stream since the engine sent it; kept between requests
}

// do sends the nth prompt and reads the answer. Whatever is not as the engine
// answers is an error.
func (k *client) do(n int64, r *reply) error {
	k.chat.number(n)
	r.delays = r.delays[:0]
	if err := k.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	r.begin = time.Now()
	bufs := net.Buffers{k.head, k.chat.b}
	if _, err := bufs.WriteTo(k.TCPConn); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	size, err := k.readHead()
	if err != nil {
		return err
	}
	r.first = k.at
	switch {
	case k.stream && size >= 0 || !k.stream && size != answerBytes:
		return fmt.Errorf("an answer of %d bytes", size)
	case k.stream:
		err = k.readStream(r)
	default:
		_, err = k.in.Discard(size)
	}
	r.end = k.at
	return err
}

// readHead reads a response's head; size is -1 for a body in chunks.
func (k *client) readHead() (size int, err error) {
	size = -2
	for first := true; ; first = false {
		line, err := k.in.ReadSlice('\n')
		if err != nil {
			return 0, fmt.Errorf("read an answer's head: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
				rest, _ := k.in.Peek(k.in.Buffered())
				return 0, fmt.Errorf("%s\n%s", line, rest)
			}
			continue
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			if size, err = strconv.Atoi(value); err != nil {
				return 0, err
			}
		case "transfer-encoding":
			size = -1
		case "connection":
			if strings.EqualFold(value, "close") {
				return 0, errors.New("the connection is not kept alive")
			}
		}
	}
	if size == -2 {
		return 0, errors.New("an answer without a length")
	}
	return size, nil
}

// readStream reads a body of events to its end.
func (k *client) readStream(r *reply) error {
	k.text = k.text[:0]
	done := false
	for in := httputil.NewChunkedReader(k.in); ; {
		n, err := in.Read(k.piece[:])
		k.text = append(k.text, k.piece[:n]...)
		for {
			event, rest, ok := bytes.Cut(k.text, []byte("\n\n"))
			if !ok {
				k.text = append(k.text[:0], k.text[len(k.text)-len(event):]...)
				break
			}
			done = string(event) == "data: [DONE]"
			if sent, ok := sentAt(event); ok {
				r.delays = append(r.delays, k.at.Sub(sent))
				if len(r.delays) == 1 {
					r.first = k.at
				}
			}
			k.text = rest
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("read a stream: %w", err)
		}
	}
	if _, err := k.in.Discard(len("\r\n")); err != nil {
		return err
	}
	if len(r.delays) != chunks || !done {
		return fmt.Errorf("a stream of %d chunks (ended: %v)", len(r.delays), done)
	}
	return nil
}

// sentAt is when the engine sent an event, if that is a chunk of text.
func sentAt(event []byte) (t time.Time, ok bool) {
	_, rest, ok := bytes.Cut(event, []byte(beforeStamp))
	if !ok {
		return t, false
	}
	stamp, _, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.ParseInt(string(stamp), 10, 64)
	return time.Unix(0, n), err == nil
}
