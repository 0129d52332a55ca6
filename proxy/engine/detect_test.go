package engine

import (
	"context"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

func TestKindIsToldByProbes(t *testing.T) {
	f := func(name string, want state.EngineKind, paths map[string]string) {
		t.Helper()
		s := serve(t, paths)
		rd := newReader(t)
		for range 2 {
			if r := s.read(t, rd, state.EngineAuto, 1)[0]; r.Kind != want {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if n := s.count("/version"); want != "" && n != 1 {
			t.Errorf("%s: probed %d times", name, n)
		}
	}
	f("vllm", state.EngineVLLM, map[string]string{"/version": `{"version":"0.11.0"}`, "/metrics": vllmText, "/health": "", "/v1/models": "{}"})
	f("sglang, old", state.EngineSGLang, map[string]string{"/get_server_info": sglangServer, "/v1/loads": sglangLoads})
	f("sglang that tells its version too", state.EngineSGLang, map[string]string{"/server_info": sglangServer, "/version": `{"version":"x"}`, "/v1/loads": sglangLoads})
	f("llama.cpp", state.EngineLlamaCpp, map[string]string{"/props": llamaServer, "/metrics": llamaText, "/health": "{}"})
	f("a page for every path", state.EngineOpenAI, map[string]string{
		"/version": "<html>", "/server_info": "<html>", "/get_server_info": "<html>", "/props": "<html>", "/v1/models": "<html>", "/health": "<html>",
	})
	f("anthropic", state.EngineAnthropic, map[string]string{"/v1/models": `{"data":[{"type":"model","id":"claude"}],"has_more":false,"first_id":"claude","last_id":"claude"}`})
	f("a list of models", state.EngineOpenAI, map[string]string{"/v1/models": `{"object":"list","data":[],"has_more":false}`})
	f("health alone", state.EngineOpenAI, map[string]string{"/health": ""})
	f("nothing", "", map[string]string{})
}

// A probe that hangs neither holds up the others nor makes the engine a generic one.
func TestHangingProbe(t *testing.T) {
	s := serve(t, map[string]string{"/version": `{"version":"1"}`, "/metrics": vllmText, "/health": ""})
	s.hang["/server_info"] = true
	began := time.Now()
	if r := s.one(t, state.EngineAuto); r.Kind != state.EngineVLLM || !r.OK {
		t.Errorf("beside a hanging probe: %+v", r)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	s.hang["/version"] = true
	if r := s.one(t, state.EngineAuto); r.Kind != "" || r.OK {
		t.Errorf("the probe that would tell hangs: %+v", r)
	}
}

// Another process at the same address is probed anew: at once when its start tells,
// and after the address was dead, loading, or lost the path it was read by.
func TestKindIsProbedAgainForAnotherProcess(t *testing.T) {
	restarted := "vllm:num_requests_running 0\nprocess_start_time_seconds 1.8e9\n"
	asVLLM := map[string]string{"/version": `{"version":"1"}`, "/metrics": vllmText}
	f := func(name string, next map[string]string, want state.EngineKind, between func(s *server, read func())) {
		t.Helper()
		s := serve(t, asVLLM)
		rd := newReader(t)
		read := func() state.Reading { return s.read(t, rd, state.EngineAuto, 1)[0] }
		if r := read(); r.Kind != state.EngineVLLM {
			t.Fatalf("%s: %+v", name, r)
		}
		if between != nil {
			between(s, func() { read() })
		}
		s.set(func() { s.paths = next })
		probed := s.count("/version")
		if r := read(); want != "" && (r.Kind != want || !r.OK) {
			t.Errorf("%s: %+v", name, r)
		}
		if want == "" {
			if r := read(); r.Kind != state.EngineLlamaCpp || !r.OK {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if s.count("/version") == probed {
			t.Errorf("%s: not probed again", name)
		}
	}
	f("restarted", map[string]string{"/version": `{"version":"2"}`, "/metrics": restarted}, state.EngineVLLM, nil)
	f("another kind after loading", map[string]string{"/props": llamaServer, "/metrics": llamaText}, state.EngineLlamaCpp, func(s *server, read func()) {
		s.set(func() { s.status[""] = 503 })
		read()
		s.set(func() { s.status[""] = 0 })
	})
	f("another kind in between two readings", map[string]string{"/props": llamaServer, "/slots": llamaSlots}, "", nil)
}

// A busy engine that does not answer in time stays what it is.
func TestBusyEngineIsNotProbedAgain(t *testing.T) {
	s := serve(t, map[string]string{"/version": `{"version":"1"}`, "/metrics": vllmText})
	rd := newReader(t)
	s.read(t, rd, state.EngineAuto, 1)
	s.set(func() { s.hang["/metrics"] = true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	r := rd.Read(ctx, []state.Replica{{ID: "a", URL: s.URL, Engine: state.EngineAuto}})[0]
	cancel()
	if r.OK || r.Loading || r.Refused || r.Kind != state.EngineVLLM || r.Err != "timed out" {
		t.Errorf("while it hangs: %+v", r)
	}
	s.set(func() { s.hang["/metrics"] = false })
	if r := s.read(t, rd, state.EngineAuto, 1)[0]; !r.OK || s.count("/version") != 1 {
		t.Errorf("afterwards: %+v, probed %d times", r, s.count("/version"))
	}
}

// An API that wants a key is told by how it says so.
func TestKindBehindAKey(t *testing.T) {
	for body, want := range map[string]state.EngineKind{
		`{"type":"error","error":{"type":"authentication_error","message":"no key"}}`: state.EngineAnthropic,
		`{"error":{"message":"no key","type":"invalid_request_error"}}`:               state.EngineOpenAI,
		`<html>`: state.EngineOpenAI,
	} {
		s := serve(t, map[string]string{"/v1/models": body})
		s.set(func() { s.status["/v1/models"] = 401 })
		if r := s.one(t, state.EngineAuto); r.Kind != want || !r.OK {
			t.Errorf("%s: %+v", body, r)
		}
	}
}
