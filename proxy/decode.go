package proxy

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"github.com/hearsay-llm/hearsay/proxy/api"
)

// zstdWindow is the largest window of a zstd body, bytes: what RFC 9659 allows in
// HTTP. A frame may ask for gigabytes in its first ten bytes.
const zstdWindow = 8 << 20

// readBody returns the request's body, decoded where it came compressed. What
// decoding makes of it is charged to the budget of request bytes: 60 kB may unfold to
// 60 MB.
func (r *request) readBody() ([]byte, *api.Error) {
	h := &r.ctx.Request.Header
	body, limit := r.ctx.Request.Body(), r.s.limits.BodyBytes
	enc, e := encodingOf(h)
	if e != nil || enc == "" || len(body) == 0 {
		return body, e
	}
	out := &decoded{buffer{limit: limit, charge: r.charge}}
	if r.conn != nil {
		out.pool = r.conn.bodies
	}
	var err error
	switch enc {
	case "gzip":
		_, err = fasthttp.WriteGunzip(out, body)
	case "deflate":
		err = inflate(out, body)
	case "br":
		_, err = fasthttp.WriteUnbrotli(out, body)
	case "zstd":
		err = unzstd(out, body)
	}
	if err == nil {
		out.trim()
		r.replaceBody(out.b)
		return out.b, nil
	}
	out.drop()
	switch {
	case errors.Is(err, errTooLong):
		return nil, api.BodyTooLarge(int64(limit))
	case errors.Is(err, errBudget):
		return nil, r.s.overBudget()
	}
	e = api.BadRequest("", "The request body is not valid "+enc+" data.")
	e.Code, e.Reason = "invalid_encoding", "bad_encoding"
	return nil, e
}

// replaceBody gives back the body as it came, which nobody needs once it is decoded.
func (r *request) replaceBody(with []byte) {
	r.ctx.Request.ReleaseBody(0)
	if c := r.conn; c != nil {
		c.bodies.put(c.body)
		c.body = with
	}
}

// encodingOf is the one encoding that a body comes in, "" for none.
func encodingOf(h *fasthttp.RequestHeader) (string, *api.Error) {
	if all := h.PeekAll("Content-Encoding"); len(all) > 1 {
		return "", api.UnsupportedMedia("Content-Encoding", string(bytes.Join(all, []byte(", "))))
	}
	switch enc := string(bytes.ToLower(bytes.TrimSpace(h.ContentEncoding()))); enc {
	case "", "identity":
		return "", nil
	case "gzip", "x-gzip":
		return "gzip", nil
	case "deflate", "br", "zstd":
		return enc, nil
	}
	return "", api.UnsupportedMedia("Content-Encoding", string(h.ContentEncoding()))
}

// inflate reads one zlib stream, which is what deflate means in HTTP, and nothing
// behind it.
func inflate(w io.Writer, body []byte) error {
	rest := bytes.NewReader(body)
	d, err := zlib.NewReader(rest)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, d); err != nil {
		return err
	}
	if rest.Len() > 0 {
		return errBehind
	}
	return d.Close()
}

// errBehind says that a body goes on behind its encoded data.
var errBehind = errors.New("data behind the end of an encoded body")

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

// charge counts bytes that the request holds.
func (r *request) charge(n int64) bool { return r.conn == nil || r.conn.charge(n) }

// decoded gathers a decoded body.
type decoded struct{ buffer }

func (d *decoded) Write(p []byte) (int, error) {
	need := len(d.b) + len(p)
	if need > d.limit {
		return 0, errTooLong
	}
	if need > cap(d.b) {
		if err := d.grow(max(need, 2*cap(d.b), bodyStart)); err != nil {
			return 0, err
		}
	}
	d.b = append(d.b, p...)
	return len(p), nil
}

// overBudget refuses a request because all requests together hold too many bytes.
func (s *Server) overBudget() *api.Error {
	e := api.Unavailable("body_budget", time.Second)
	e.Code, e.Message = "overloaded", "The router holds too many request bytes at the moment. Try again later."
	s.core.shed(unknownPool, e.Reason)
	return e
}
