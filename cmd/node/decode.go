package node

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder reads a YAML document into a Config and goes on after a fault, so that
// all of a file's faults are told at once. Types that it may meet: structs, lists
// of structs or texts, maps with text keys, texts, numbers, booleans, durations,
// Bytes and Percent, and what reads itself: from a text by a method parse(string)
// error or UnmarshalText, from a part of the document by UnmarshalYAML.
type decoder struct {
	faults *faults
	nodes  int // visited, since aliases can repeat a part of the document
}

// maxNodes bounds what a document may unfold to.
const maxNodes = 1 << 20

// decode reads one YAML document into cfg and adds what is wrong with it to v.
func decode(b []byte, cfg *Config, v *faults) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			v.syntax(b, err)
		}
		return
	}
	d := decoder{faults: v}
	if len(doc.Content) > 0 {
		d.value(doc.Content[0], reflect.ValueOf(cfg).Elem(), "")
	}
	var next yaml.Node
	switch err := dec.Decode(&next); {
	case err == nil:
		v.on(next.Line, "", "more than one YAML document: a file holds one")
	case !errors.Is(err, io.EOF):
		v.syntax(b, err)
	}
}

// value reads n into v, which is what key stands for.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) {
	if d.nodes++; d.nodes > maxNodes {
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if key != "" {
		d.faults.at(key, n.Line)
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // as if the key were not there
	}
	if u, ok := v.Addr().Interface().(yaml.Unmarshaler); ok {
		if err := u.UnmarshalYAML(n); err != nil {
			d.faults.broken(key, "%s", err)
		}
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(n, v.Elem(), key)
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, key)
	case v.Kind() == reflect.Map:
		d.table(n, v, key)
	case v.Kind() == reflect.Slice:
		d.list(n, v, key)
	case n.Kind != yaml.ScalarNode:
		d.faults.broken(key, "%s stands where %s is expected", found(n), expected(v))
	default:
		if err := setText(v, n.Value); err != nil {
			d.faults.broken(key, "%s", err)
		}
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		d.faults.broken(key, "%s stands where a list is expected: write [...] or lines that begin with -", found(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, x := range n.Content {
		if d.nodes > maxNodes {
			break
		}
		d.value(x, out.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
	v.Set(out)
}

func (d *decoder) table(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		d.faults.broken(key, "%s stands where keys with values are expected", found(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, p := range d.pairs(n, key, 0) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(p.value, item, join(key, p.name))
		out.SetMapIndex(reflect.ValueOf(p.name).Convert(v.Type().Key()), item)
	}
	v.Set(out)
}

// mapping reads the keys of a section.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		text := fmt.Sprintf("%s stands where keys with values are expected: %s", found(n), strings.Join(names(v.Type()), ", "))
		if key == "" {
			d.faults.on(n.Line, key, "%s", text)
		} else {
			d.faults.broken(key, "%s", text)
		}
		return
	}
	for _, p := range d.pairs(n, key, 0) {
		f, ok := field(v, p.name)
		if !ok {
			d.faults.on(p.value.Line, join(key, p.name), "is no key: %s", suggest(p.name, key, v.Type()))
			continue
		}
		d.value(p.value, f, join(key, p.name))
	}
}

// pair is one key of a mapping and what stands there.
type pair struct {
	name  string
	value *yaml.Node
}

// maxMerges bounds how deep merged mappings merge others: an anchor may hold itself.
const maxMerges = 16

// pairs are the keys of a mapping in order, then those merged in by << that it does
// not have itself. Keys that are no text or stand twice are faults. A value's line
// is its key's.
func (d *decoder) pairs(n *yaml.Node, key string, depth int) (out []pair) {
	first := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, x := n.Content[i], n.Content[i+1]
		switch line, twice := first[k.Value]; {
		case k.Tag == "!!merge" && x.Kind == yaml.SequenceNode:
			merged = append(merged, x.Content...)
		case k.Tag == "!!merge":
			merged = append(merged, x)
		case k.Kind != yaml.ScalarNode:
			d.faults.on(k.Line, key, "a %s stands where a key is expected", kindName(k))
		case twice:
			d.faults.on(k.Line, join(key, k.Value), "stands twice: it is on line %d already", line)
		default:
			first[k.Value] = k.Line
			if x.Line != k.Line && x.Kind != yaml.AliasNode {
				y := *x
				y.Line = k.Line
				x = &y
			}
			out = append(out, pair{k.Value, x})
		}
	}
	for _, m := range merged {
		line := m.Line
		if m.Kind == yaml.AliasNode {
			m = m.Alias
		}
		if m.Kind != yaml.MappingNode || depth == maxMerges {
			d.faults.on(line, join(key, "<<"), "takes a mapping, or a list of them, that does not hold itself")
			continue
		}
		for _, p := range d.pairs(m, key, depth+1) {
			if _, own := first[p.name]; !own {
				first[p.name] = p.value.Line
				out = append(out, p)
			}
		}
	}
	return out
}

// setText reads a text, as a file or the environment has it, into a value that is
// no list, map or struct.
func setText(v reflect.Value, s string) error {
	if p, ok := v.Addr().Interface().(interface{ parse(string) error }); ok {
		return p.parse(s)
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	wrong := fmt.Errorf("%q is not %s", s, expected(v))
	switch v.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(s)
		if err != nil {
			return wrong
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		switch strings.ToLower(s) {
		case "true", "yes", "on", "1":
			v.SetBool(true)
		case "false", "no", "off", "0":
			v.SetBool(false)
		default:
			return wrong
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(strings.TrimSpace(s), 0, v.Type().Bits())
		if err != nil {
			return wrong
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(strings.TrimSpace(s), 0, v.Type().Bits())
		if err != nil {
			return wrong
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(strings.TrimSpace(s), v.Type().Bits())
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return wrong
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("can't be given as a text")
	}
	return nil
}

// expected says what a value looks like.
func expected(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "a duration such as 30s or 5m"
	case Bytes:
		return "a size such as 64MiB"
	case Percent:
		return "a share such as 50%"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	}
	return "something else"
}

// found says what stands in a file, shortly.
func found(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return "a " + kindName(n)
	}
	s := n.Value
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return strconv.Quote(s)
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "list"
	case yaml.MappingNode:
		return "mapping"
	}
	return "text"
}
