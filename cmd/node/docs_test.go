package node

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
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

// Every state of a replica is explained in docs/operate.md.
func TestOperateExplainsEveryState(t *testing.T) {
	b, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range state.Conditions() {
		if !strings.Contains(string(b), "\n| `"+string(c)+"` |") {
			t.Errorf("docs/operate.md does not explain the state %s", c)
		}
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
