package proxy

import (
	"bytes"
	"strconv"
)

// framing looks for what makes a request's end ambiguous: two parsers that
// disagree on it are how one request is smuggled behind another. raw is the header
// block as it came, from the first field to the empty line. It returns the size of
// the body, negative for one in chunks, and what is wrong, or the empty string.
//
// The HTTP server refuses repeated transfer encodings by itself.
func framing(raw []byte) (size int64, fault string) {
	length, encoding := false, false
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\n')
		if i < 0 {
			return 0, "header block is not terminated"
		}
		line := raw[:i]
		raw = raw[i+1:]
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return 0, "header line does not end with CRLF"
		}
		line = line[:len(line)-1]
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			return 0, "folded header line"
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return 0, "header line without a name"
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		if bytes.ContainsAny(name, " \t") {
			return 0, "blank in a header name"
		}
		if bytes.IndexByte(value, '\r') >= 0 {
			return 0, "stray CR in a header"
		}
		switch {
		case equalFold(name, "content-length"):
			n, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil || length {
				return 0, "bad Content-Length"
			}
			size, length = int64(n), true
		case equalFold(name, "transfer-encoding"):
			encoding = true
			if !equalFold(value, "chunked") {
				return 0, "unsupported transfer encoding"
			}
		}
	}
	if length && encoding {
		return 0, "both Content-Length and Transfer-Encoding"
	}
	if encoding {
		size = -1
	}
	return size, ""
}

// equalFold compares b with a lower-case ASCII string, ignoring ASCII case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
