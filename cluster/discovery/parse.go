package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hearsay-llm/hearsay/deploy/kube"
	"github.com/hearsay-llm/hearsay/state"
)

// fileEntry is one replica in a file: its URL alone, or keys.
type fileEntry struct {
	URL, Role, ID, Name    string
	BootstrapPort, DPRanks int
	Drain                  bool

	line int
}

// entryKeys are the keys of an entry: what each takes, for people, and where it goes.
var entryKeys = []struct {
	key, wants string
	to         func(*fileEntry) any
}{
	{"url", "a text such as http://10.0.0.1:8000", func(e *fileEntry) any { return &e.URL }},
	{"role", "both, prefill or decode", func(e *fileEntry) any { return &e.Role }},
	{"bootstrap_port", "a port", func(e *fileEntry) any { return &e.BootstrapPort }},
	{"dp_ranks", "a whole number", func(e *fileEntry) any { return &e.DPRanks }},
	{"id", "a text", func(e *fileEntry) any { return &e.ID }},
	{"name", "a text", func(e *fileEntry) any { return &e.Name }},
	{"drain", "true or false", func(e *fileEntry) any { return &e.Drain }},
}

// set gives a key, which stands on a line, its value; decode is the format's own.
func (e *fileEntry) set(line int, key string, seen map[string]bool, decode func(to any) error) error {
	var known []string
	for _, k := range entryKeys {
		known = append(known, k.key)
		switch {
		case k.key != key:
		case seen[key]:
			return fmt.Errorf("line %d: %s is given twice: give it once", line, key)
		default:
			seen[key] = true
			if decode(k.to(e)) != nil {
				return fmt.Errorf("line %d: %s has a value of another kind: write %s", line, key, k.wants)
			}
			return nil
		}
	}
	return fmt.Errorf("line %d: %q is no key of a replica: use %s", line, clip(key), strings.Join(known, ", "))
}

// ParseFile reads a file of replicas: a list of them, or a mapping with the one key
// replicas that holds it. An empty file is an error, `[]` is not. One entry at fault
// is an error as a whole.
func ParseFile(b []byte) ([]Found, error) {
	list, err := parseList(b)
	if err != nil {
		return nil, fmt.Errorf("is not a list of replicas: %s", clip(strings.Join(strings.Fields(err.Error()), " ")))
	}
	found := make([]Found, 0, len(list))
	for i, e := range list {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("line %d, replica %d: %w", e.line, i+1, err)
		}
		f := Found{ID: state.ReplicaID(e.ID), Name: clip(e.Name), URL: e.URL, Role: state.Role(e.Role), BootstrapPort: e.BootstrapPort, Ranks: e.DPRanks}
		if e.Drain {
			f.Leaving = "its file says drain"
		}
		found = append(found, f)
	}
	return found, nil
}

var (
	errNoList  = errors.New("write a list, or one under the only key replicas")
	errNothing = errors.New("it is empty: write [] where there are no replicas")
)

func parseList(b []byte) ([]fileEntry, error) {
	if json.Valid(b) { // YAML has most of JSON, but no tabs
		return parseJSON(b)
	}
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(b))
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, errNothing
	case err != nil:
		return nil, errors.New(kube.InYAML(err))
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document is in it: keep one, without ---")
	}
	return parseYAML(&doc)
}

// parseYAML finds the list in a document.
func parseYAML(doc *yaml.Node) (list []fileEntry, err error) {
	n := &yaml.Node{}
	if len(doc.Content) == 1 {
		n = doc.Content[0]
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "replicas" {
		n = n.Content[1]
	}
	if n.Kind != yaml.SequenceNode {
		return nil, errNoList
	}
	for _, x := range n.Content {
		e := fileEntry{line: x.Line}
		if x.Kind == yaml.AliasNode {
			x = x.Alias
		}
		switch {
		case x.Kind == yaml.ScalarNode && x.Tag != "!!null":
			e.URL = x.Value
		case x.Kind == yaml.MappingNode:
			seen := map[string]bool{}
			for i := 0; i+1 < len(x.Content) && err == nil; i += 2 {
				err = e.set(x.Content[i].Line, x.Content[i].Value, seen, x.Content[i+1].Decode)
			}
		default:
			err = noEntry(e.line)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func noEntry(line int) error {
	return fmt.Errorf("line %d: an entry is neither a URL nor keys such as url: write one of them", line)
}

// parseJSON is parseYAML for JSON, which is valid.
func parseJSON(b []byte) (list []fileEntry, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	next := func() (line int, first byte) { // of what comes
		at := d.InputOffset()
		for at < int64(len(b)) && bytes.IndexByte([]byte(" \t\r\n,:"), b[at]) >= 0 {
			at++
		}
		return 1 + bytes.Count(b[:at], []byte("\n")), b[at]
	}
	open, err := d.Token()
	if open == json.Delim('{') {
		if key, err := d.Token(); err != nil || key != "replicas" {
			return nil, errNoList
		}
		open, err = d.Token()
	}
	if err != nil || open != json.Delim('[') {
		return nil, errNoList
	}
	for d.More() {
		line, first := next()
		e := fileEntry{line: line}
		switch first {
		case '"':
			err = d.Decode(&e.URL)
		case '{':
			err = e.fromJSON(d, next)
		default:
			err = noEntry(line)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	if _, err := d.Token(); err != nil { // the list's end
		return nil, err
	}
	if d.More() { // of a mapping
		return nil, errNoList
	}
	return list, nil
}

// fromJSON reads the keys of an entry.
func (e *fileEntry) fromJSON(d *json.Decoder, next func() (int, byte)) error {
	if _, err := d.Token(); err != nil { // {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		line, _ := next()
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if err := e.set(line, name, seen, d.Decode); err != nil {
			return err
		}
	}
	_, err := d.Token() // }
	return err
}

// maxRanks bounds the data-parallel ranks of a process.
const maxRanks = 1024

func (e *fileEntry) check() error {
	if _, err := state.NormalURL(e.URL); err != nil {
		return err
	}
	switch state.Role(e.Role) {
	case "", state.RoleBoth, state.RolePrefill, state.RoleDecode:
	default:
		return fmt.Errorf("role %q is none of both, prefill, decode", clip(e.Role))
	}
	switch {
	case e.BootstrapPort < 0 || e.BootstrapPort > 65535:
		return fmt.Errorf("bootstrap_port %d is not 1 to 65535", e.BootstrapPort)
	case e.BootstrapPort > 0 && e.Role != string(state.RolePrefill):
		return errors.New("bootstrap_port is for role prefill alone")
	case e.DPRanks < 0 || e.DPRanks > maxRanks:
		return fmt.Errorf("dp_ranks %d is not 1 to %d", e.DPRanks, maxRanks)
	case e.ID != "" && !id.MatchString(e.ID):
		return errors.New("an id is 1 to 128 letters, digits and ._:-")
	}
	return nil
}
