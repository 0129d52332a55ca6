package actuator

import (
	"strings"
	"testing"
)

// What a receiver gets wrong is told in words for those who wrote it.
func TestWebhookAnswerIsJudgedInWords(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := parseAnswer([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "actuator.") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	f(`{"instances":{"a":1}}`, "instances is a JSON object, which it should not be")
	f(`{"instances":[{"id":3}]}`, "instances.id is a JSON number, which it should not be")
	f(`{"epoch":-1}`, "epoch is a JSON number -1, which it should not be")
	f(`[]`, "it is a JSON array, not an object")
	f(`<html>`, "it is no JSON from byte 1 on")
	f(`{"instances": [{"id": 3`, "it is no JSON from byte 23 on")
	f(`{"instances":[{"id":"a","since":"yesterday"}]}`, "since: yesterday is no time such as 2026-01-02T15:04:05Z")
}

// Two instances with one URL are one replica: the second would never serve.
func TestWebhookInstancesWithOneURL(t *testing.T) {
	h := hookAt(t, WebhookConfig{URL: "http://scaler"})
	a, err := parseAnswer([]byte(`{"instances":[{"id":"old","url":"http://10.0.0.1:8000","stopping":true},
		{"id":"a","url":"http://10.0.0.1:8000","ready":true},{"id":"b","url":"http://10.0.0.1:8000/","ready":true},{"id":"c","ready":false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	list := h.actual(a, chat).Instances
	if !list[0].Ready || list[1].Ready || !strings.Contains(list[1].Problem, "b: its URL is that of a: http://10.0.0.1:8000") {
		t.Errorf("%+v", list)
	}
}
