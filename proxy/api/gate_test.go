package api

import (
	"encoding/json"
	"strings"
	"testing"
)

// checkClaims compares what an ordinary decoder sees of the fields by which a request
// claims to be served before others, before and after they were floored.
func checkClaims(t *testing.T, before, after map[string]json.RawMessage) {
	t.Helper()
	was, is := string(before["priority"]), string(after["priority"])
	var n int64
	if harmless := was == "" || was == "null" || was != "-0" && strings.TrimLeft(was, "0123456789") == "" && json.Unmarshal([]byte(was), &n) == nil; harmless && is != was {
		t.Fatalf("priority %q became %q", was, is)
	} else if json.Unmarshal([]byte(is), &n); is != "" && is != "null" && (n < 0 || strings.ContainsAny(is, `".eE[{tf`)) {
		t.Fatalf("priority %q became %q", was, is)
	}
	var tier, left string
	_ = json.Unmarshal(before["service_tier"], &tier)
	_ = json.Unmarshal(after["service_tier"], &left)
	if tier == "priority" {
		tier = "default"
	}
	if left != tier {
		t.Fatalf("service_tier %s became %s", before["service_tier"], after["service_tier"])
	}
}

func TestClaimsAreRead(t *testing.T) {
	f := func(field string, priority int, has bool, tier Tier) {
		t.Helper()
		for _, ep := range []Endpoint{Chat, Completions, Embeddings, Responses, Messages, Other} {
			r := parse(t, ep, `{"model":"m",`+field+`}`)
			if r.HasPriority != has || has && r.Priority != priority || r.Tier != tier {
				t.Errorf("%s at %v: %d %v, tier %d", field, ep, r.Priority, r.HasPriority, r.Tier)
			}
		}
	}
	f(`"priority":-3`, -3, true, TierNone)
	f(`"prior\u0069ty":7`, 7, true, TierNone)
	f(`"priority":0`, 0, true, TierNone)
	f(`"priority":"-3"`, 0, false, TierNone)
	f(`"priority":-3.0`, 0, false, TierNone)
	f(`"priority":null`, 0, false, TierNone)
	f(`"service_tier":"priority"`, 0, false, TierPriority)
	f(`"service_tier":"flex"`, 0, false, TierFlex)
	f(`"service_tier":"auto"`, 0, false, TierNone)
	f(`"service_tier":1`, 0, false, TierNone)
	f(`"extra":{"priority":-3,"service_tier":"flex"}`, 0, false, TierNone)
	for _, field := range []string{`"priority":1,"priority":-1`, `"service_tier":"auto","service_tier":"priority"`} {
		if _, err := Parse(Chat, []byte(`{"model":"m",`+field+`}`)); err == nil {
			t.Errorf("%s passes", field)
		}
	}
}

func TestClaimsAreTakenBack(t *testing.T) {
	f := func(value, floored, dropped string) {
		t.Helper()
		body := []byte(`{"model":"m","priority":` + value + `,"x":1}`)
		r := parse(t, Chat, string(body))
		for want, edits := range map[string][]Edit{floored: r.FloorPriority(nil, body), dropped: r.DropPriority(nil)} {
			if floored == dropped && len(edits) > 0 {
				t.Errorf("%s is edited", value)
			}
			if got := string(Splice(nil, body, edits)); got != `{"model":"m","priority":`+want+`,"x":1}` {
				t.Errorf("%s became %s, want %s", value, got, want)
			}
		}
	}
	f("null", "null", "null")
	f("0", "0", "null")
	f("5", "5", "null")
	f("-1", "0", "null")
	f("-9223372036854775808", "0", "null")
	f("-99999999999999999999", "0", "null")
	f("1.5", "0", "null")
	f("-1e3", "0", "null")
	f(`"-5"`, "0", "null")
	f("[-5]", "0", "null")
	for body, want := range map[string]string{
		`{"model":"m","service_tier":"priority"}`: `{"model":"m","service_tier":"default"}`,
		`{"model":"m","service_tier":"flex"}`:     `{"model":"m","service_tier":"flex"}`,
		`{"model":"m"}`:                           `{"model":"m"}`,
	} {
		r := parse(t, Chat, body)
		edits := r.DropPriority(r.FloorPriority(r.SetTier(nil, "default"), []byte(body)))
		if got := string(Splice(nil, []byte(body), edits)); got != want {
			t.Errorf("%s became %s", body, got)
		}
	}
}

func TestGatewayErrorsInBothFamilies(t *testing.T) {
	f := func(e *Error, status int, code, anthropic string) {
		t.Helper()
		if e.Status != status || !strings.Contains(string(e.AppendOpenAI(nil)), `"code":"`+code+`"`) ||
			!strings.Contains(string(e.AppendAnthropic(nil)), `{"type":"error","error":{"type":"`+anthropic+`"`) {
			t.Errorf("%d %s %s", e.Status, e.AppendOpenAI(nil), e.AppendAnthropic(nil))
		}
	}
	f(NoKey(), 401, "invalid_api_key", "authentication_error")
	f(UnknownKey(), 401, "invalid_api_key", "authentication_error")
	f(TooManyParallel(4), 429, "rate_limit_exceeded", "rate_limit_error")
	if e := TooManyParallel(1); !strings.Contains(e.Message, "concurrency limit") || !strings.Contains(e.Message, "1 parallel request ") || e.RetryAfterSeconds() != 1 {
		t.Errorf("%q, again after %d s", e.Message, e.RetryAfterSeconds())
	}
}
