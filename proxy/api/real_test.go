package api

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// recorded is what a real engine answered, from test/engines.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../test/engines/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRecordedAnswers(t *testing.T) {
	f := func(name string, family Family, want Usage) {
		t.Helper()
		r := ReadResponse(recorded(t, name), family, nil)
		want.Source = Reported
		if r.Usage != want || !r.HasUsage || r.Choices != 1 || r.Finish != "length" || r.Error {
			t.Errorf("%s: %+v", name, r)
		}
	}
	f("llamacpp-b10434/chat.json", LlamaCpp, Usage{InputTotal: 34, InputCached: 33, CachedKnown: true, Output: 6})
	f("vllm-0.32.0/chat.json", Inclusive, Usage{InputTotal: 12, CachedKnown: true, Output: 6})
}

func TestRecordedErrors(t *testing.T) {
	f := func(name string, status int, typ, begin string, mistake bool) {
		t.Helper()
		body := recorded(t, name)
		e, ok := ReadError(body)
		if !ok || e.Status != status || e.Type != typ || !bytes.HasPrefix([]byte(e.Message), []byte(begin)) || LlamaMistake(body) != mistake {
			t.Errorf("%s: %+v %v", name, e, LlamaMistake(body))
		}
		if r := ReadResponse(body, LlamaCpp, nil); !r.Error {
			t.Errorf("%s: taken for an answer", name)
		}
	}
	f("llamacpp-b10434/error-type.json", 400, "invalid_request_error", "Field 'top_p'", false)
	f("llamacpp-b10434/error-context.json", 400, "exceed_context_size_error", "request (", false)
	f("llamacpp-b10434/error-tools.json", 500, "server_error", "Failed to parse tools", true)
	f("llamacpp-b10434/error-image.json", 500, "server_error", "image input is not supported", true)
	f("vllm-0.32.0/error-type.json", 400, "Bad Request", "1 validation error", false)
	f("vllm-0.32.0/error-context.json", 400, "BadRequestError", "This model's maximum context length", false)
	f("vllm-0.32.0/error-tools.json", 400, "Bad Request", "1 validation error", false)
	f("vllm-0.32.0/error-image.json", 400, "BadRequestError", "tiny-llama is not a multimodal model", false)
	f("vllm-0.32.0/error-model.json", 404, "NotFoundError", "The model `no-such-model`", false)
	f("llamacpp-b10434/error-embeddings.json", 501, "not_supported_error", "This server", false)
}
