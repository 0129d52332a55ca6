package replay

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
)

// Kind says how a request ended. The kinds below and "http_" with a status code (http_503) are all there are.
type Kind string

// The kinds.
const (
	OK          Kind = "ok"
	Cancelled   Kind = "cancelled"    // the replay was stopped; neither good nor an error
	Refused     Kind = "refused"      // nobody listens there
	Connect     Kind = "connect"      // no connection for another reason: no route, no name, no descriptors, TLS
	NoResponse  Kind = "no_response"  // the connection broke before the response's header
	Timeout     Kind = "timeout"      // Config.Timeout passed, at any point
	Aborted     Kind = "aborted"      // the connection broke inside the stream
	Truncated   Kind = "truncated"    // the stream ended properly, but before [DONE]
	StreamError Kind = "stream_error" // an error event inside a stream of status 200
	NotStream   Kind = "not_stream"   // a response of status 200 that is no event stream
	Empty       Kind = "empty"        // a whole stream without a piece of an answer
)

func statusKind(code int) Kind { return Kind("http_" + strconv.Itoa(code)) }

var errTimeout = errors.New("request took longer than the timeout")

// transportKind classifies an error of the HTTP client. The context is the request's; headerSeen says whether its response began.
func transportKind(ctx context.Context, err error, headerSeen bool) Kind {
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), errTimeout) {
			return Timeout
		}
		return Cancelled
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns):
		return Connect
	case headerSeen:
		return Aborted
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return NoResponse
	case errors.As(err, &op): // a read or write on a connection that was there
		return NoResponse
	}
	return Connect
}
