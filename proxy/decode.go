package proxy

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// zstdWindow is the largest window of a zstd body, bytes: what RFC 9659 allows in
// HTTP. A frame may ask for gigabytes in its first ten bytes.
const zstdWindow = 8 << 20

// readBody returns the request's body as JSON text, decoded where it came
// compressed. What decoding makes of it is charged to the budget of request bytes:
// 60 kB may unfold to 60 MB.
func (r *request) readBody() ([]byte, *api.Error) {
	h := &r.ctx.Request.Header
	if e := checkMedia(h.ContentType()); e != nil {
		return nil, e
	}
	body, limit := r.ctx.Request.Body(), r.s.limits.BodyBytes
	enc := bytes.ToLower(bytes.TrimSpace(h.ContentEncoding()))
	if len(h.PeekAll("Content-Encoding")) > 1 {
		return nil, api.UnsupportedMedia("Content-Encoding")
	}
	if len(enc) == 0 || string(enc) == "identity" {
		if len(body) > limit {
			return nil, api.BodyTooLarge(int64(limit))
		}
		return body, nil
	}
	out := &decoded{limit: limit, charge: func(n int) bool { return r.conn == nil || r.conn.charge(int64(n)) }}
	var err error
	switch string(enc) {
	case "gzip", "x-gzip":
		_, err = fasthttp.WriteGunzip(out, body)
	case "deflate":
		_, err = fasthttp.WriteInflate(out, body)
	case "br":
		_, err = fasthttp.WriteUnbrotli(out, body)
	case "zstd":
		err = unzstd(out, body)
	default:
		return nil, api.UnsupportedMedia("Content-Encoding")
	}
	switch {
	case err == nil:
		return out.b, nil
	case errors.Is(err, errTooLong):
		return nil, api.BodyTooLarge(int64(limit))
	case errors.Is(err, errBudget):
		return nil, r.s.overBudget()
	}
	e := api.BadRequest("", "The request body is not valid "+string(enc)+" data.")
	e.Code, e.Reason = "invalid_encoding", "bad_encoding"
	return nil, e
}

func unzstd(w io.Writer, body []byte) error {
	d, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.WriteTo(w)
	return err
}

// decoded gathers a decoded body. It charges memory before it takes it.
type decoded struct {
	b      []byte
	limit  int
	charge func(n int) bool
}

func (d *decoded) Write(p []byte) (int, error) {
	need := len(d.b) + len(p)
	if need > d.limit {
		return 0, errTooLong
	}
	if need > cap(d.b) {
		size := min(max(need, 2*cap(d.b), 16<<10), d.limit)
		if !d.charge(size - cap(d.b)) {
			return 0, errBudget
		}
		d.b = append(make([]byte, 0, size), d.b...)
	}
	d.b = append(d.b, p...)
	return len(p), nil
}

// overBudget refuses a request because all requests together hold too many bytes.
func (s *Server) overBudget() *api.Error {
	e := api.Unavailable("body_budget", time.Second)
	e.Code, e.Message = "overloaded", "The router holds too many request bytes at the moment. Try again later."
	s.metrics.shed.WithLabelValues(unknownPool, e.Reason).Inc()
	return e
}
