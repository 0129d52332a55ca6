package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestErrorsHaveTheShapeOfTheirFamily(t *testing.T) {
	e := BadRequest("messages", "say \"x\"\nor \x01y")
	if got, want := string(e.AppendOpenAI([]byte("|"))), `|{"error":{"message":"say \"x\"\nor \u0001y","type":"invalid_request_error","param":"messages","code":null}}`; got != want {
		t.Errorf("got %s", got)
	}
	if got, want := string(ModelNotFound("m").AppendAnthropic(nil)), `{"type":"error","error":{"type":"not_found_error","message":"The model 'm' does not exist here or is not available to you. GET /v1/models lists the models."}}`; got != want {
		t.Errorf("got %s", got)
	}
	if got := string(BadGateway("x").AppendEvent(nil, OpenAI, 0)); !strings.HasPrefix(got, `data: {"error":{`) || !strings.HasSuffix(got, "}}\n\n") {
		t.Errorf("got %q", got)
	}
}

func TestEveryErrorIsCompleteAndTellsNoInside(t *testing.T) {
	for status, e := range map[int]*Error{
		400: BadRequest("p", "m"), 401: Unauthorized(), 403: Forbidden("m"), 404: ModelNotFound("m"), 405: MethodNotAllowed("POST"), 408: BodyTimeout(),
		413: BodyTooLarge(1 << 20), 415: UnsupportedMedia("charset", "gbk\xff"), 429: RateLimited("requests", "m", time.Second), 431: HeadersTooLarge(), 499: ClientClosed(),
		500: Internal(), 502: BadGateway("r"), 505: VersionNotSupported(), 503: Unavailable("r", time.Second), 504: GatewayTimeout("r"),
	} {
		if e.Status != status || e.Type == "" || e.Message == "" || e.Reason == "" || e.Error() != e.Message {
			t.Errorf("%d: %+v", status, e)
		}
		for _, body := range [][]byte{e.AppendOpenAI(nil), e.AppendAnthropic(nil)} {
			if !json.Valid(body) {
				t.Errorf("%d: %s", status, body)
			}
		}
	}
	if e := NotFound(); e.Status != http.StatusNotFound {
		t.Errorf("%+v", e)
	}
	if e := Overloaded("queue_full", 1500*time.Millisecond); e.Status != 429 || e.RetryAfterSeconds() != 2 || e.Reason != "queue_full" {
		t.Errorf("%+v", e)
	}
	if n := Internal().RetryAfterSeconds(); n != 0 {
		t.Errorf("retry after %d", n)
	}
}

func TestForeignErrorsBecomeInternalWithoutTheirText(t *testing.T) {
	if e := AsError(errors.New("dial tcp 10.0.0.1: secret")); e.Status != 500 || strings.Contains(e.Message, "10.0.0.1") {
		t.Errorf("%+v", e)
	}
	want := BodyTimeout()
	if e := AsError(fmt.Errorf("read body: %w", want)); e != want {
		t.Errorf("%+v", e)
	}
	if e := Malformed(errors.New("invalid character 'x'")); strings.Contains(e.Message, "invalid character") {
		t.Errorf("%+v", e)
	}
}

func TestLongModelNamesAreCutInMessages(t *testing.T) {
	e := ModelNotFound(strings.Repeat("那", 10_000))
	if len(e.Message) > 400 || strings.Contains(e.Message, "\uFFFD") || !json.Valid(e.AppendOpenAI(nil)) {
		t.Errorf("%d bytes: %q", len(e.Message), e.Message)
	}
}

func TestErrorsOfEngines(t *testing.T) {
	f := func(body string, want EngineError, client int) {
		t.Helper()
		got, ok := ReadError([]byte(body))
		if !ok || got != want {
			t.Errorf("%s: got %+v, %v", body, got, ok)
		}
		e := got.ForClient()
		if e.Status != client || client < 500 && !strings.Contains(e.Message, want.Message) || client >= 500 && strings.Contains(e.Message, want.Message) {
			t.Errorf("%s: the client gets %+v", body, e)
		}
	}
	f(`{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}`, EngineError{400, "BadRequestError", "400", "too long"}, 400)
	f(`{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`, EngineError{400, "BadRequestError", "400", "too long"}, 400)
	f(`{"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": 500}}`, EngineError{500, "InternalServerError", "500", "EngineCore encountered an issue."}, 502)
	f(`{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}`, EngineError{401, "authentication_error", "401", "Invalid API Key"}, 401)
	f(`{"error":"Model is overloaded","error_type":"overloaded"}`, EngineError{429, "overloaded", "", "Model is overloaded"}, 429)
	f(`{"error":{"message":"bad","http_status_code":422}}`, EngineError{422, "", "", "bad"}, 422)
	f(`{"error":{"message":"no","type":"invalid_request_error","code":"context_length_exceeded"}}`, EngineError{400, "invalid_request_error", "context_length_exceeded", "no"}, 400)
	f(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, EngineError{503, "overloaded_error", "", "Overloaded"}, 502)
	f(`{"detail":"Not Found"}`, EngineError{0, "", "", "Not Found"}, 502)
	for _, body := range []string{``, `{}`, `[]`, `upstream connect error`, `<html>`, `{"error":null}`, `{"choices":[]}`, `{"error":{"message":"x"}`} {
		if got, ok := ReadError([]byte(body)); ok {
			t.Errorf("%s: got %+v", body, got)
		}
	}
}
