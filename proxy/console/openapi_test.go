package console

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/routing/balance"
)

// The served document and the routes are the same set, and its schemas name the
// fields that the types have.
func TestOpenAPIMatches(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(openapi, &doc); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Metrics: http.NotFoundHandler()}, nil, nil, nil, nil)
	n := 0
	for _, r := range s.routes {
		if doc.Paths[r.path][strings.ToLower(r.method)] == nil {
			t.Errorf("%s %s is not in openapi.json", r.method, r.path)
		}
	}
	for _, ops := range doc.Paths {
		n += len(ops)
	}
	if n != len(s.routes) {
		t.Errorf("openapi.json has %d operations, the server %d", n, len(s.routes))
	}
	for _, v := range []any{
		Info{},
		Raft{},
		Member{},
		Sketch{},
		Speed{},
		Status{},
		Figures{},
		Pool{},
		RoleTarget{},
		Replica{},
		Decision{},
		Event{},
		Record{},
		Model{},
		Done{},
		ConfigMark{},
		Reloaded{},
		Keys{},
		KeyringRequest{},
		TargetRequest{},
		ReplicaRequest{},
		ReasonRequest{},
		ExplainRequest{},
		LevelRequest{},
		PolicyRequest{},
		Diagnosis{},
		HotPrefix{},
		balance.Finding{},
		balance.Figure{},
	} {
		typ := reflect.TypeOf(v)
		props := doc.Components.Schemas[typ.Name()].Properties
		fields := 0
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			fields++
			if _, ok := props[name]; !ok {
				t.Errorf("schema %s lacks %s", typ.Name(), name)
			}
		}
		if fields != len(props) {
			t.Errorf("schema %s has %d properties, the type %d", typ.Name(), len(props), fields)
		}
	}
}
