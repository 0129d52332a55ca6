package enginesim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// answered is a response as a test reads it.
type answered struct {
	ID       string
	Object   string
	Status   string
	Model    string
	Previous *string `json:"previous_response_id"`
	Output   []struct {
		Type, Role, Name, Arguments string
		Content                     []struct{ Type, Text string }
	}
	Usage *struct {
		Input   int `json:"input_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		Output int `json:"output_tokens"`
	}
}

func (s *sim) respond(body string) answered {
	s.t.Helper()
	status, b := s.post(responsesPath, body)
	if status != 200 {
		s.t.Fatalf("status %d: %s", status, b)
	}
	return readAnswered(s.t, b)
}

func readAnswered(t *testing.T, b string) (a answered) {
	t.Helper()
	if err := json.Unmarshal([]byte(b), &a); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return a
}

func TestResponsesAreTheChatsThatSayTheSame(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang} {
		cfg := simpleConfig()
		cfg.Kind = kind
		bubble(t, cfg, func(t *testing.T, s *sim) {
			f := func(response, chat string) {
				t.Helper()
				a, err := s.Prompts(responsesPath, []byte(response))
				if err != nil {
					t.Fatal(err)
				}
				b, err := s.Prompts(chatPath, []byte(chat))
				if err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("%s and %s differ", response, chat)
				}
			}
			f(`{"model":"m","input":"Hi"}`, `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`)
			f(`{"model":"m","instructions":"Be terse.","input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]}]}`,
				`{"model":"m","messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"Hi"}]}`)
			f(`{"model":"m","tools":[{"type":"function","name":"w","description":"d","parameters":{"type":"object"}}],"input":[{"role":"user","content":"Hi"},{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call","call_id":"c","name":"w","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"sun"}]}`,
				`{"model":"m","tools":[{"type":"function","function":{"name":"w","description":"d","parameters":{"type":"object"}}}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"w","arguments":"{}"}}]},{"role":"tool","content":"sun"}]}`)
		})
	}
}

// A request that goes on from a response finds all of it in the cache.
func TestResponsesGoOn(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		first := s.respond(`{"model":"m","instructions":"` + strings.Repeat("Be terse. ", 100) + `","input":"Hi","max_output_tokens":40}`)
		if !strings.HasPrefix(first.ID, "resp_") || first.Object != "response" || first.Model != "m" || first.Status != "incomplete" || first.Previous != nil || first.Usage.Output != 40 {
			t.Fatalf("got %+v", first)
		}
		next := s.respond(`{"model":"m","previous_response_id":"` + first.ID + `","input":"More","max_output_tokens":5}`)
		if whole := first.Usage.Input + 40; next.Usage.Details.Cached < whole-2*16 || next.Usage.Input < whole || next.Previous == nil || *next.Previous != first.ID {
			t.Errorf("%d of %d tokens cached, %d were there; previous %v", next.Usage.Details.Cached, next.Usage.Input, whole, next.Previous)
		}
		third := s.respond(`{"model":"m","previous_response_id":"` + next.ID + `","input":"More","max_output_tokens":5,"store":false}`)
		if third.Usage.Details.Cached < next.Usage.Input-2*16 || third.ID == next.ID {
			t.Errorf("third turn: %+v", third.Usage)
		}
		f := func(name, method, path, body string, status int, want string) {
			t.Helper()
			if st, b := s.get(method, path, body); st != status || !strings.Contains(b, want) {
				t.Errorf("%s: %d %s, want %d %s", name, st, b, status, want)
			}
		}
		at := responsesPath + "/" + first.ID
		f("get", "GET", at, "", 200, `"id":"`+first.ID+`"`)
		f("get as a stream", "GET", at+"?stream=true", "", 400, "Unknown response_id")
		f("cancel", "POST", at+"/cancel", "", 400, "Cannot cancel a synchronous response.")
		f("cancel none", "POST", responsesPath+"/resp_x/cancel", "", 404, "not found")
		f("not stored", "GET", responsesPath+"/"+third.ID, "", 404, "not found")
		f("not stored", "POST", responsesPath, `{"model":"m","previous_response_id":"`+third.ID+`","input":"x"}`, 404, `"param":"response_id"`)
		f("delete", "DELETE", at, "", 200, `"deleted":true`)
		f("deleted", "GET", at, "", 404, "Response with id '"+first.ID+"' not found.")
		f("deleted twice", "DELETE", at, "", 404, "not found")
		f("patch", "PATCH", at, "", 405, "Method Not Allowed")
		f("no input", "POST", responsesPath, `{"model":"m"}`, 400, "input")
		f("an item of another kind", "POST", responsesPath, `{"model":"m","input":[{"type":"computer_call"}]}`, 400, "computer_call")
		s.Restart()
		f("restarted", "POST", responsesPath, `{"model":"m","previous_response_id":"`+next.ID+`","input":"x"}`, 404, "not found")
		if again := s.respond(`{"model":"m","input":"Hi","max_output_tokens":1}`); again.ID == first.ID {
			t.Error("a new process gives ids of the old one")
		}
	})
}

// kinds are the events' names, runs of one as one.
func eventKinds(t *testing.T, fs []frame) (list []string, last string) {
	t.Helper()
	for i, f := range fs {
		var e struct {
			Type   string
			Number int `json:"sequence_number"`
		}
		if err := json.Unmarshal([]byte(f.data), &e); err != nil || e.Number != i {
			t.Fatalf("event %d: %v, %s", i, err, f.data)
		}
		if len(list) == 0 || list[len(list)-1] != e.Type {
			list = append(list, e.Type)
		}
		last = f.data
	}
	return list, last
}

func (s *sim) responseFrames(body string) []frame {
	s.t.Helper()
	start := time.Now()
	resp, err := s.do(context.Background(), "POST", responsesPath, body)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	fs, err := frames(start, resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fs
}

func TestStreamsOfResponses(t *testing.T) {
	bubble(t, simpleConfig(), func(t *testing.T, s *sim) {
		const tools = `"tools":[{"type":"function","name":"w","parameters":{}}],"tool_choice":`
		f := func(body string, want ...string) answered {
			t.Helper()
			fs := s.responseFrames(strings.Replace(body, "{", `{"model":"m","stream":true,`, 1))
			kinds, last := eventKinds(t, fs)
			if fmt.Sprint(kinds) != fmt.Sprint(want) {
				t.Errorf("%s: %v", body, kinds)
			}
			if fs[1].at >= fs[2].at {
				t.Errorf("%s: announced at %v, begun at %v", body, fs[1].at, fs[2].at)
			}
			var end struct{ Response answered }
			if err := json.Unmarshal([]byte(last), &end); err != nil {
				t.Fatal(err)
			}
			whole := s.respond(strings.Replace(body, "{", `{"model":"m",`, 1))
			a, b := end.Response, whole
			if fmt.Sprint(a.Output) != fmt.Sprint(b.Output) || a.Status != b.Status || a.Usage.Output != b.Usage.Output {
				t.Errorf("%s: streamed %+v, whole %+v", body, a, b)
			}
			return a
		}
		message := []string{
			"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
			"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
		}
		call := []string{
			"response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.delta",
			"response.function_call_arguments.done", "response.output_item.done", "response.completed",
		}
		if a := f(`{"input":"Hi","max_output_tokens":7}`, message...); a.Status != "incomplete" || len(a.Output[0].Content[0].Text) == 0 {
			t.Errorf("got %+v", a)
		}
		if a := f(`{"input":"Hi"}`, message...); a.Status != "completed" {
			t.Errorf("got %+v", a)
		}
		f(`{"input":"Hi",`+tools+`"auto"}`, message...)
		if a := f(`{"input":"Hi","max_output_tokens":7,`+tools+`"required"}`, call...); a.Output[0].Name != "w" || !json.Valid([]byte(a.Output[0].Arguments)) {
			t.Errorf("got %+v", a)
		}
		f(`{"input":"Hi","max_output_tokens":7,`+tools+`{"type":"function","name":"w"}}`, call...)

		if err := s.SetFault(Fault{Kind: FaultStreamError, Status: 500, AfterEvents: 3, Count: 1}); err != nil {
			t.Fatal(err)
		}
		fs := s.responseFrames(`{"model":"m","stream":true,"input":"Hi"}`)
		if kinds, last := eventKinds(t, fs); fmt.Sprint(kinds) != "[response.created response.in_progress response.output_item.added error]" || !strings.Contains(last, `"code":"500"`) {
			t.Errorf("%v %s", kinds, last)
		}
	})
}

// The ranks of a process share what it keeps.
func TestRanksShareResponses(t *testing.T) {
	cfg := simpleConfig()
	cfg.DPRanks = 2
	bubble(t, cfg, func(t *testing.T, s *sim) {
		_, b := s.post(responsesPath, `{"model":"m","input":"Hi","max_output_tokens":2}`, "X-Data-Parallel-Rank", "1")
		id := readAnswered(t, b).ID
		if status, b := s.post(responsesPath, `{"model":"m","previous_response_id":"`+id+`","input":"x","max_output_tokens":2}`, "X-Data-Parallel-Rank", "0"); status != 200 {
			t.Errorf("got %d %s", status, b)
		}
		if status, b := s.get("GET", responsesPath+"/"+id, ""); status != 200 {
			t.Errorf("got %d %s", status, b)
		}
	})
}
