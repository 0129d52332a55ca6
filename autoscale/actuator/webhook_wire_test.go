package actuator

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/receiver"
)

func TestWebhookSecrets(t *testing.T) {
	// The example of the Standard Webhooks libraries.
	key, err := WebhookKey([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	signed(req, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), [][]byte{hookSecret, key})
	list := strings.Fields(req.Header.Get("webhook-signature"))
	if len(list) != 2 || list[1] != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" || req.Header.Get("webhook-timestamp") != "1614265330" {
		t.Errorf("signed %v", req.Header)
	}
	for _, bad := range []string{"short", "whsec_!", "whsec_" + base64.StdEncoding.EncodeToString([]byte("short"))} {
		if _, err := WebhookKey([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	// A new secret is used at the next call; while both are there either will do.
	keys := [][]byte{[]byte("the former secret, long enough")}
	r := &receiver.Receiver{Secret: hookSecret}
	s := httptest.NewServer(r)
	defer s.Close()
	fault := errors.New("secret gone")
	h := hookAt(t, WebhookConfig{URL: s.URL, Secrets: func() ([][]byte, error) {
		if keys == nil {
			return nil, fault
		}
		return keys, nil
	}})
	if _, err := h.List(t.Context(), chat); err == nil || !strings.Contains(err.Error(), "refused with 401") {
		t.Errorf("with another secret: %v", err)
	}
	h.succeeded()
	h.until = time.Time{}
	keys = append(keys, hookSecret)
	if _, err := h.List(t.Context(), chat); err != nil {
		t.Errorf("with both: %v", err)
	}
	keys = nil
	if _, err := h.List(t.Context(), chat); !errors.Is(err, fault) {
		t.Errorf("without: %v", err)
	}
}

func FuzzWebhookAnswer(f *testing.F) {
	f.Add([]byte(`{"epoch":3,"instances":[{"id":"a","url":"http://h:1","ready":true,"since":"2026-01-02T03:04:05Z"},{"id":"b","stopping":true,"problem":"x"}]}`))
	f.Add([]byte(`{"instances":null}`))
	f.Add([]byte(`{"instances":[{"id":"\u0000"}]}`))
	f.Add([]byte(``))
	h, err := NewWebhook(WebhookConfig{Pool: "chat", URL: "http://scaler", Secrets: func() ([][]byte, error) { return nil, nil }})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parseAnswer(data)
		if err != nil || a.Instances == nil {
			return
		}
		for _, i := range h.actual(a, chat).Instances {
			if !strings.HasPrefix(string(i.Replica.ID), "webhook:chat:") || i.Ready && (i.Stopping || i.Replica.URL == "") || len(i.Problem) > 2*maxProblem+400 {
				t.Errorf("%+v", i)
			}
		}
	})
}

// The example in the manual is signed, and has the fields that a call has.
func TestWebhookExampleInTheManual(t *testing.T) {
	b, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, manual, _ := strings.Cut(string(b), "### The webhook actuator")
	between := func(from, to string) string {
		t.Helper()
		_, s, ok := strings.Cut(manual, from)
		s, _, ok2 := strings.Cut(s, to)
		if !ok || !ok2 {
			t.Fatalf("the manual lacks %q", from)
		}
		return s
	}
	body := `{"type":"` + strings.ReplaceAll(between(`{"type":"`, "\n```"), "\n ", "")
	key, err := WebhookKey([]byte(between("the secret of this example is `", "`")))
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseInt(between("Webhook-Timestamp: ", "\n"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	signed(req, between("Webhook-Id: ", "\n"), time.Unix(at, 0), []byte(body), [][]byte{key})
	if got, want := between("Webhook-Signature: ", "\n"), req.Header.Get("Webhook-Signature"); got != want {
		t.Errorf("the manual signs with %s, right is %s", got, want)
	}
	h := hookAt(t, WebhookConfig{URL: "http://scaler"})
	d := want(41, 57, 3, hookIDs("b")...)
	d.ID, d.Grace, d.Deadline = "d41-3", 30*time.Second, time.Date(2026, 1, 2, 15, 14, 5, 0, time.UTC)
	d.Pool.Model, d.Pool.Engine = "llama-70b", state.EngineVLLM
	if got, err := json.Marshal(h.wish(&d)); err != nil || string(got) != body {
		t.Errorf("a call says\n%s, the manual\n%s (%v)", got, body, err)
	}
}

// What a receiver got wrong is said in its terms, not in those of a decoder.
func TestUnreadableAnswerIsToldInPlainWords(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := parseAnswer([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	f(`"ok"`, "it is a JSON string, and should be an object with instances")
	f(`{"instances":[{"id":7}]}`, "id can't be of type number")
	f(`{"instances":{}}`, "its field instances can't be of type object")
	f(`<html>`, "it is no JSON, from byte 1 on")
}
