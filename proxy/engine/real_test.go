package engine

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/hearsay-llm/hearsay/state"
)

// recorded is what a real engine answered, from test/engines.
func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../test/engines/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRecordedLlamaCpp(t *testing.T) {
	const dir = "llamacpp-b10434/"
	s := serve(t, map[string]string{
		"/v1/models": recorded(t, dir+"models.json"), "/props": recorded(t, dir+"props.json"), "/slots": recorded(t, dir+"slots.json"),
		"/metrics": recorded(t, dir+"metrics.txt"), "/health": `{"status":"ok"}`,
	})
	replica := state.Replica{ID: "a", URL: s.URL}
	rd := NewReader(http.DefaultClient, func(string) string { return "" })
	r := rd.Read(context.Background(), []state.Replica{replica})[0]
	if !r.OK || r.Kind != state.EngineLlamaCpp || r.Version != "b1-7e4c0a9" || r.Slots != 2 || r.Context != 4096 || r.Capacity != 8192 ||
		r.Running != 0 || r.Waiting != 0 || r.KVUsage != 0 || r.Processed != 46 || r.Hits != 90 {
		t.Errorf("%+v", r)
	}
}
