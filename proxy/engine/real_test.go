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

func TestRecordedVLLM(t *testing.T) {
	const dir = "vllm-0.32.0/"
	s := serve(t, map[string]string{
		"/v1/models": recorded(t, dir+"models.json"), "/version": recorded(t, dir+"version.json"), "/metrics": recorded(t, dir+"metrics.txt"), "/health": "",
	})
	rd := NewReader(http.DefaultClient, func(string) string { return "" })
	r := rd.Read(context.Background(), []state.Replica{{ID: "a", URL: s.URL}})[0]
	if !r.OK || r.Kind != state.EngineVLLM || r.Version != "0.32.0" || r.BlockSize != 128 || r.Capacity != 131072 || r.Started == 0 ||
		r.Running != 0 || r.Waiting != 0 || r.KVUsage != 0 || r.Processed != 27794 || r.Queries != 27794 || r.Hits != 19968 || len(r.Models) != 1 || r.Models[0] != "tiny-llama" {
		t.Errorf("%+v", r)
	}
}

// Metrics that real engines expose are read as Prometheus's own parser reads them.
func TestRecordedMetricsAreReadAsTheLibraryDoes(t *testing.T) {
	for _, name := range []string{"vllm-0.32.0/metrics.txt", "llamacpp-b10434/metrics.txt"} {
		sameAsLibrary(t, []byte(recorded(t, name)))
	}
}
