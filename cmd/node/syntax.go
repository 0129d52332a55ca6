package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// libraryLine is the line that the YAML library names: about where it gave up, or where
// what it was in began, or none.
var libraryLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports a document that is no YAML, on the line where what is broken begins: of
// brackets and quotes over several lines, the fault may be on a later one.
func (f *faults) syntax(b []byte, err error) {
	m := libraryLine.FindStringSubmatch(err.Error())
	text := strings.TrimPrefix(err.Error(), m[0])
	noticed, _ := strconv.Atoi(m[1])
	line, near := brokenFrom(b), ""
	if line == 0 {
		line = max(1, noticed)
	}
	if noticed > line {
		near = fmt.Sprintf(" (noticed near line %d)", noticed)
	}
	if lines := bytes.Split(b, []byte("\n")); line <= len(lines) && tabbed(lines[line-1], text) {
		text = "a tab stands where spaces are expected: YAML is indented with spaces"
	}
	f.on(line, "", "not YAML, here or below%s: %s", near, text)
}

// tabbed says whether a tab is what is wrong with a line.
func tabbed(line []byte, text string) bool {
	content := bytes.TrimLeft(line, " \t")
	indent := line[:len(line)-len(content)]
	return bytes.Contains(indent, []byte("\t")) ||
		strings.Contains(text, "cannot start any token") && bytes.Contains(line, []byte("\t"))
}

// maxSearched bounds the bytes of a document in which the line is searched for.
const maxSearched = 256 << 10

// brokenFrom is the first line from which on no further one makes the document YAML:
// what ends before it can be read. 0: not searched for.
func brokenFrom(b []byte) int {
	if len(b) > maxSearched {
		return 0
	}
	line := bytes.Count(b, []byte("\n"))
	if !bytes.HasSuffix(b, []byte("\n")) {
		line++
	}
	for end := len(b); line > 1; line-- {
		end = bytes.LastIndexByte(b[:end-1], '\n') + 1
		if isYAML(b[:end]) {
			break
		}
	}
	return line
}

func isYAML(b []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var doc yaml.Node
		if err := dec.Decode(&doc); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}
