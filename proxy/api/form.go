package api

import (
	"bytes"
	"mime"
	"net/http"
	"unicode/utf8"
)

const (
	// partHead bounds the head of a form's part, bytes.
	partHead = 8 << 10
	// formModel bounds a form's field model, bytes.
	formModel = 16 << 10
)

// ParseForm reads a body of multipart/form-data as far as routing needs: the field
// model, wherever it stands. What else is in the form is skipped, not looked into. A
// fault is returned as *Error, ready for the client.
//
// Readers of forms differ in what they take for a boundary. A line that starts as one
// and goes on otherwise is refused, as is a model that stands twice.
func ParseForm(boundary string, body []byte) (Request, error) {
	r := Request{Endpoint: Other, N: 1, form: true}
	delimiter := []byte("\r\n--" + boundary)
	if boundary == "" || len(boundary) > 70 { // RFC 2046
		return Request{}, badForm("has no boundary, or one of more than 70 characters, in Content-Type")
	}
	at := 0
	if !bytes.HasPrefix(body, delimiter[2:]) {
		if at = bytes.Index(body, delimiter); at < 0 {
			return Request{}, badForm("does not hold its boundary")
		}
		at += 2
	}
	for {
		at += len(delimiter) - 2
		rest := bytes.TrimLeft(body[at:], " \t")
		if bytes.HasPrefix(rest, []byte("--")) {
			break
		}
		if !bytes.HasPrefix(rest, []byte("\r\n")) {
			return Request{}, badForm("goes on behind a boundary")
		}
		start := len(body) - len(rest) // of the line end before the part's head
		size := bytes.Index(rest[:min(len(rest), partHead)], []byte("\r\n\r\n"))
		if size < 0 {
			return Request{}, badForm("has a part without a head, or with one that is too large")
		}
		from := start + size + 4
		n := bytes.Index(body[from:], delimiter)
		if n < 0 {
			return Request{}, badForm("ends within a part")
		}
		named, ok := isModel(rest[:size])
		if !ok {
			return Request{}, badForm("has a part whose head can be read in two ways")
		}
		if named {
			switch {
			case r.model.Present():
				return Request{}, BadRequest("model", "'model' stands more than once in the form. Send it once.")
			case n > formModel || !utf8.Valid(body[from:from+n]):
				return Request{}, BadRequest("model", "'model' must be the name of a model.")
			case n == 0:
				return Request{}, BadRequest("model", "'model' must not be empty.")
			}
			r.model, r.Model = Span{from, from + n}, string(body[from:from+n])
		}
		at = from + n + 2
	}
	if r.Model == "" {
		return Request{}, BadRequest("model", "The form names no model. Set 'model'; GET /v1/models lists the models.")
	}
	return r, nil
}

// Form reports whether the body is a form, whose length tells nothing of a prompt's.
func (r *Request) Form() bool { return r.form }

// isModel reports whether a part's head, each line behind its line end, is that of the
// field model, and whether that is clear.
func isModel(head []byte) (named, ok bool) {
	seen := false
	for line := range bytes.SplitSeq(bytes.TrimPrefix(head, []byte("\r\n")), []byte("\r\n")) {
		if bytes.ContainsAny(line, "\r\n\x00") || len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
			return false, false
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if !bytes.EqualFold(bytes.TrimSpace(name), []byte("Content-Disposition")) {
			continue
		}
		if seen {
			return false, false
		}
		seen = true
		kind, params, err := mime.ParseMediaType(string(value))
		_, file := params["filename"]
		named = err == nil && kind == "form-data" && params["name"] == "model" && !file
	}
	return named, true
}

func badForm(what string) *Error {
	return &Error{
		Status: http.StatusBadRequest, Type: invalidRequest, Code: "invalid_form", Reason: "malformed_body",
		Message: "The request body is not a valid form: it " + what + ".",
	}
}
