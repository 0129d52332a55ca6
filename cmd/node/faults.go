package node

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// faults collects what is wrong with a configuration, to be told all at once, and
// where each key was given. As an error it names every fault with its place.
type faults struct {
	list   []fault
	lines  map[string]int    // of keys that the file has
	env    map[string]string // variables, or flags, that gave keys
	unread map[string]bool   // keys whose value could not be read: they are not judged
	file   string            // empty: no file
}

// fault is one thing that is wrong.
type fault struct {
	line  int    // in the file; 0: it is not of the file
	where string // another place: an environment variable, a flag
	key   string // as a path: pools[0].slo.ttft; empty: the whole file
	text  string // what is wrong and what to do
}

// at notes that key stands on a line of the file.
func (f *faults) at(key string, line int) {
	if f.lines == nil {
		f.lines = map[string]int{}
	}
	f.lines[key] = line
}

// gave notes that a variable or flag gives a key: it wins over what was there.
func (f *faults) gave(key, by string) {
	if f.env == nil {
		f.env = map[string]string{}
	}
	f.env[key] = by
	delete(f.unread, key)
}

// add reports a fault of a key's value.
func (f *faults) add(key, format string, args ...any) { f.between(key, "", format, args...) }

// between reports a fault of a key's value that is one beside another's. Where the
// first was not given, the place of the other is named.
func (f *faults) between(key, other, format string, args ...any) {
	plain, _, _ := strings.Cut(key, " ")
	other, _, _ = strings.Cut(other, " ")
	for _, k := range []string{plain, other} {
		for ; k != ""; k = parent(k) {
			if f.unread[k] {
				return // its value is the default's, not what was meant
			}
		}
	}
	x := fault{key: key, text: fmt.Sprintf(format, args...)}
	if !f.place(&x, plain) && !f.place(&x, other) {
		for k := parent(plain); k != "" && x.line == 0; k = parent(k) {
			x.line = f.lines[k] // a key that is missing: where its section begins
		}
	}
	f.list = append(f.list, x)
}

// place finds where a key was given.
func (f *faults) place(x *fault, key string) bool {
	for k := key; k != ""; k = parent(k) { // a list that a variable gave, for its parts
		if name, ok := f.env[k]; ok {
			x.where = name
			return true
		}
	}
	x.line = f.lines[key]
	return x.line > 0
}

// ByFlag reports whether a flag gave what is wrong.
func (f *faults) ByFlag() bool {
	return slices.ContainsFunc(f.list, func(x fault) bool { return strings.HasPrefix(x.where, "--") })
}

// broken reports a value that could not be read.
func (f *faults) broken(key, format string, args ...any) {
	f.add(key, format, args...)
	if f.unread == nil {
		f.unread = map[string]bool{}
	}
	f.unread[key] = true
}

// on reports a fault on a line of the file.
func (f *faults) on(line int, key, format string, args ...any) {
	f.list = append(f.list, fault{line: line, key: key, text: fmt.Sprintf(format, args...)})
}

// err is nil without faults.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b fault) int { return cmp.Compare(a.line, b.line) })
	return f
}

// Error has one line for one fault, else one line for each below a first. The file is
// named where any is of the file.
func (f *faults) Error() string {
	head := f.file
	if !slices.ContainsFunc(f.list, func(x fault) bool { return x.where == "" }) {
		head = ""
	}
	if len(f.list) == 1 {
		if head != "" {
			head += ": "
		}
		return head + f.list[0].String()
	}
	if head == "" {
		head = "the configuration"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %d faults:", head, len(f.list))
	for i := range f.list {
		b.WriteString("\n  " + f.list[i].String())
	}
	return b.String()
}

func (x *fault) String() string {
	var parts []string
	if x.line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", x.line))
	}
	for _, s := range []string{x.where, x.key, x.text} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// parent is the section that a key is in; empty for the top.
func parent(key string) string {
	i := strings.LastIndexAny(key, ".[")
	if i < 0 {
		return ""
	}
	return key[:i]
}

// tag is a field's key.
func tag(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// field is the part of a struct that a key names.
func field(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if t := tag(v.Type().Field(i)); t == name && t != "-" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// names are the keys of a section.
func names(t reflect.Type) (out []string) {
	for i := range t.NumField() {
		if n := tag(t.Field(i)); n != "-" {
			out = append(out, n)
		}
	}
	return out
}

// suggest says what an unknown key of a section may have been meant to be.
func suggest(name, section string, t reflect.Type) string {
	if near := Nearest(name, names(t)); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	var elsewhere []string
	walk(reflect.ValueOf(&Config{Pools: make([]PoolConfig, 1)}).Elem(), "", func(key string, _ reflect.Value) {
		if strings.HasSuffix(key, "."+name) {
			elsewhere = append(elsewhere, strings.ReplaceAll(key, "[0]", "[]"))
		}
	})
	if len(elsewhere) > 0 {
		return "did you mean " + strings.Join(elsewhere, " or ") + "?"
	}
	if section == "" {
		section = "the top level"
	}
	return fmt.Sprintf("%s takes %s", section, strings.Join(names(t), ", "))
}

// walk calls f for every key below a value that is no section.
func walk(v reflect.Value, key string, f func(key string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if name := tag(v.Type().Field(i)); name != "-" {
				walk(v.Field(i), join(key, name), f)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", key, i), f)
		}
	default:
		f(key, v)
	}
}

// Nearest is the name that differs least from what was written, if that is little,
// else empty. Names are in lower case.
func Nearest(s string, names []string) string {
	best, at := len(s)/3+2, ""
	for _, n := range names {
		if d := distance(strings.ToLower(s), n); d < best {
			best, at = d, n
		}
	}
	return at
}

// distance counts the letters to put in, take out, change, or swap with the next.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		rows[2][0] = i
		for j := 1; j <= len(b); j++ {
			change := rows[1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[2][j] = min(change, rows[1][j]+1, rows[2][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[2][j] = min(rows[2][j], rows[0][j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = rows[1], rows[2], rows[0]
	}
	return rows[1][len(b)]
}
