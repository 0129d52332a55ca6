package node

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every key has a row in docs/configure.md.
func TestConfigureDocumentsEveryKey(t *testing.T) {
	b, err := os.ReadFile("../../docs/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, key := range keys(reflect.TypeFor[Config](), "") {
		n++
		if !strings.Contains(string(b), "`"+key+"`") {
			t.Errorf("docs/configure.md lacks %s", key)
		}
	}
	if n < 40 {
		t.Errorf("found only %d keys", n)
	}
}

func keys(t reflect.Type, prefix string) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := prefix + f.Tag.Get("yaml")
		switch {
		case f.Type.Kind() == reflect.Struct:
			out = append(out, keys(f.Type, key+".")...)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			out = append(out, keys(f.Type.Elem(), key+"[].")...)
		default:
			out = append(out, key)
		}
	}
	return out
}
