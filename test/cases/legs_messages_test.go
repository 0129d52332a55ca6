package cases

import (
	"strings"
	"testing"
)

// Anthropic's Messages are served in two legs as chats are: both engines get the chat
// that says the same, and the client a message.
func TestMessagesInTwoLegs(t *testing.T) {
	t.Parallel()
	prefill, decode := newEngine(t, strictPrefill(filledKV)), newEngine(t, healthy)
	r := start(t, setup{}, legPool("vllm", []*engine{prefill}, []*engine{decode}))[0]
	for name, stream := range map[string]string{"whole": "", "streamed": `"stream":true,`} {
		prefill.forget()
		decode.forget()
		fields := `{"model":"m","max_tokens":70,` + stream + `"messages":[{"role":"user","content":`
		message := fields + `[{"type":"text","text":"` + long(name) + `","cache_control":{"type":"ephemeral"}}]}]}`
		chat := fields + `"` + long(name) + `"}]}`
		a := r.send(strings.Replace(post(message), "/v1/chat/completions", "/v1/messages", 1)).rest()
		if a.StatusCode != 200 || a.err != nil || !strings.Contains(a.body, `"text":"Hi"`) || strings.Contains(a.body, "kv_transfer") {
			t.Fatalf("%s: %d %v %s", name, a.StatusCode, a.err, a.body)
		}
		if end := "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"; strings.HasSuffix(a.body, end) != (stream != "") {
			t.Errorf("%s: the client got %q", name, a.body)
		}
		ps, ds := prefill.requests(), decode.requests()
		if len(ps) != 1 || len(ds) != 1 || ps[0].path() != "/v1/chat/completions" || ds[0].path() != "/v1/chat/completions" {
			t.Fatalf("%s: %d prefills, %d decodes", name, len(ps), len(ds))
		}
		usage := map[string]string{"kv_transfer_params": filledKV}
		if stream != "" {
			usage["stream_options"] = `{"include_usage":true}`
		}
		sameBut(t, name+", prefill", ps[0].body, chat, map[string]string{"kv_transfer_params": askedKV, "stream": "false", "max_tokens": "1"})
		sameBut(t, name+", decode", ds[0].body, chat, usage)
	}
	settled(t, []*router{r}, prefill, decode)
}
