package proxy

import "bytes"

// framing looks for what makes a request's end ambiguous: two parsers that
// disagree on it are how one request is smuggled behind another. raw is the header
// block as it came, from the first field to the empty line. It returns what is
// wrong, or the empty string.
//
// The HTTP server refuses a second Content-Length, a bad one, and unknown or
// repeated transfer encodings by itself.
func framing(raw []byte) string {
	length, encoding := false, false
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\n')
		if i < 0 {
			return "header block is not terminated"
		}
		line := raw[:i]
		raw = raw[i+1:]
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return "header line does not end with CRLF"
		}
		line = line[:len(line)-1]
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			return "folded header line"
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return "header line without a name"
		}
		name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
		if bytes.ContainsAny(name, " \t") {
			return "blank in a header name"
		}
		if bytes.IndexByte(value, '\r') >= 0 {
			return "stray CR in a header"
		}
		switch {
		case equalFold(name, "content-length"):
			length = true
		case equalFold(name, "transfer-encoding"):
			encoding = true
			if !equalFold(value, "chunked") {
				return "unsupported transfer encoding"
			}
		}
	}
	if length && encoding {
		return "both Content-Length and Transfer-Encoding"
	}
	return ""
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
