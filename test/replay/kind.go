package replay

import (
	"context"
	"crypto/tls"
	"errors"
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
	NoResponse  Kind = "no_response"  // the connection broke before a whole response header, or the header is no HTTP
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
	if headerSeen {
		return Aborted
	}
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var slow net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &dns),
		errors.As(err, &certificate), errors.As(err, &record),
		errors.As(err, &slow) && slow.Timeout(): // of the TLS handshake; the request's own timeout is above
		return Connect
	}
	return NoResponse
}
