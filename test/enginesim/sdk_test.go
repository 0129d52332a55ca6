package enginesim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// sdk is Anthropic's client of an engine.
func (s *sdkSim) ask(p anthropic.MessageNewParams) *anthropic.Message {
	s.t.Helper()
	p.Model = "m"
	m, err := s.c.Messages.New(context.Background(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// stream is ask with a stream, whose events it joins.
func (s *sdkSim) stream(p anthropic.MessageNewParams) *anthropic.Message {
	s.t.Helper()
	p.Model = "m"
	stream := s.c.Messages.NewStreaming(context.Background(), p)
	var m anthropic.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		s.t.Fatal(err)
	}
	return &m
}

type sdkSim struct {
	*sim
	c anthropic.Client
}

// withSDK runs f against engines of every kind that has the Messages API.
func withSDK(t *testing.T, f func(*testing.T, *sdkSim)) {
	t.Helper()
	for _, kind := range messageKinds {
		t.Run(string(kind), func(t *testing.T) {
			bubble(t, kindConfig(kind), func(t *testing.T, s *sim) {
				f(t, &sdkSim{s, anthropic.NewClient(
					option.WithBaseURL(s.url), option.WithAPIKey("k"), option.WithMaxRetries(0), option.WithHTTPClient(s.client),
				)})
			})
		})
	}
}

func userSays(blocks ...anthropic.ContentBlockParamUnion) []anthropic.MessageParam {
	return []anthropic.MessageParam{anthropic.NewUserMessage(blocks...)}
}

func TestSDKPlainAndStreamed(t *testing.T) {
	withSDK(t, func(t *testing.T, s *sdkSim) {
		p := anthropic.MessageNewParams{
			MaxTokens: 7, System: []anthropic.TextBlockParam{{Text: "You are terse."}},
			Messages: userSays(anthropic.NewTextBlock("What is the weather in Łódź? 🌍")),
		}
		m := s.ask(p)
		if len(m.Content) != 1 || m.Content[0].AsText().Text == "" || m.StopReason != anthropic.StopReasonMaxTokens || m.Usage.OutputTokens != 7 ||
			m.Usage.InputTokens == 0 || m.Model != "m" || m.ID == "" || m.Role != "assistant" || m.Type != "message" {
			t.Errorf("%s", m.RawJSON())
		}
		a := s.stream(p)
		if len(a.Content) != 1 || a.Content[0].Text != m.Content[0].Text || a.StopReason != m.StopReason || a.Usage.OutputTokens != 7 || a.ID == "" {
			t.Errorf("streamed %+v, whole %s", a, m.RawJSON())
		}
		if a.Usage.InputTokens+a.Usage.CacheReadInputTokens+a.Usage.CacheCreationInputTokens != m.Usage.InputTokens+m.Usage.CacheReadInputTokens {
			t.Errorf("streamed %+v, whole %+v", a.Usage, m.Usage)
		}
		n, err := s.c.Messages.CountTokens(context.Background(), anthropic.MessageCountTokensParams{
			Model: "m", Messages: p.Messages,
			System: anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: p.System},
		})
		if err != nil || n.InputTokens != m.Usage.InputTokens {
			t.Errorf("counted %+v, %v; used %d", n, err, m.Usage.InputTokens)
		}
	})
}

// A call, its result and the answer to that.
func TestSDKTools(t *testing.T) {
	withSDK(t, func(t *testing.T, s *sdkSim) {
		p := anthropic.MessageNewParams{
			MaxTokens: 20, Messages: userSays(anthropic.NewTextBlock("What is the weather?")),
			Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
				Name: "weather", Description: anthropic.String("of a place"),
				InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"text": map[string]string{"type": "string"}}, Required: []string{"text"}},
			}}},
			ToolChoice: anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}},
		}
		whole := s.ask(p)
		for _, m := range []*anthropic.Message{whole, s.stream(p)} {
			if len(m.Content) != 1 || m.StopReason != anthropic.StopReasonToolUse {
				t.Fatalf("%s", m.RawJSON())
			}
			call := m.Content[0].AsToolUse()
			var input struct{ Text string }
			if err := json.Unmarshal(call.Input, &input); err != nil || input.Text == "" || call.Name != "weather" || call.ID == "" {
				t.Errorf("%+v: %v", call, err)
			}
			next := p
			next.ToolChoice = anthropic.ToolChoiceUnionParam{OfAuto: &anthropic.ToolChoiceAutoParam{}}
			next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "rain", false)))
			answer := s.ask(next)
			if len(answer.Content) != 1 || answer.Content[0].AsText().Text == "" || answer.StopReason != anthropic.StopReasonMaxTokens {
				t.Errorf("%s", answer.RawJSON())
			}
			if answer.Usage.CacheReadInputTokens == 0 {
				t.Errorf("nothing cached of what came before: %s", answer.RawJSON())
			}
		}
		p.ToolChoice = anthropic.ToolChoiceParamOfTool("weather")
		if m := s.ask(p); m.StopReason != anthropic.StopReasonToolUse {
			t.Errorf("%s", m.RawJSON())
		}
	})
}

func TestSDKImageThinkingAndStops(t *testing.T) {
	withSDK(t, func(t *testing.T, s *sdkSim) {
		image := anthropic.NewImageBlockBase64("image/png", base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n")))
		m := s.ask(anthropic.MessageNewParams{MaxTokens: 3, Messages: userSays(image, anthropic.NewTextBlock("What is that?"))})
		if m.Usage.InputTokens+m.Usage.CacheReadInputTokens < 576 {
			t.Errorf("an image counts nothing: %s", m.RawJSON())
		}
		p := anthropic.MessageNewParams{
			MaxTokens: 2000, Messages: userSays(anthropic.NewTextBlock("Think!")), Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
		}
		whole := s.ask(p)
		for _, m := range []*anthropic.Message{whole, s.stream(p)} {
			if len(m.Content) != 2 || m.Content[0].AsThinking().Thinking == "" || m.Content[0].AsThinking().Signature == "" || m.Content[1].AsText().Text == "" {
				t.Fatalf("%s", m.RawJSON())
			}
			if m.Content[1].Text != whole.Content[1].Text || m.Content[0].Thinking != whole.Content[0].Thinking {
				t.Errorf("streamed %s, whole %s", m.RawJSON(), whole.RawJSON())
			}
			next := p
			next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("More!")))
			s.ask(next) // thoughts may come back
		}
		p.Thinking, p.StopSequences = anthropic.ThinkingConfigParamUnion{}, []string{"e"}
		for _, m := range []*anthropic.Message{s.ask(p), s.stream(p)} {
			if m.StopReason != anthropic.StopReasonStopSequence || m.StopSequence != "e" || strings.Contains(m.Content[0].Text, "e") {
				t.Errorf("%s", m.RawJSON())
			}
		}
	})
}

// What fails is the SDK's error, with type and status, also in the midst of a stream.
func TestSDKErrors(t *testing.T) {
	withSDK(t, func(t *testing.T, s *sdkSim) {
		hi := anthropic.MessageNewParams{Model: "m", MaxTokens: 5, Messages: userSays(anthropic.NewTextBlock("hi"))}
		f := func(name string, err error, status int, kind anthropic.ErrorType, message string) {
			t.Helper()
			var e *anthropic.Error
			if !errors.As(err, &e) {
				t.Errorf("%s: %v is no API error", name, err)
				return
			}
			if e.StatusCode != status || e.Type() != kind || !strings.Contains(e.Error(), message) || (e.RequestID != "") != (s.cfg.Kind == Anthropic) {
				t.Errorf("%s: status %d, type %q, request %q: %v", name, e.StatusCode, e.Type(), e.RequestID, e)
			}
		}
		named := func(anthropics, vllms string) anthropic.ErrorType {
			if s.cfg.Kind == VLLM {
				return anthropic.ErrorType(vllms)
			}
			return anthropic.ErrorType(anthropics)
		}
		bad := hi
		bad.MaxTokens = -5
		_, err := s.c.Messages.New(t.Context(), bad)
		f("bad request", err, 400, named("invalid_request_error", "BadRequestError"), "max_tokens")
		if s.cfg.Kind != SGLang { // which serves any name
			unknown := hi
			unknown.Model = "nope"
			_, err = s.c.Messages.New(t.Context(), unknown)
			f("unknown model", err, 404, named("not_found_error", "NotFoundError"), "nope")
		}
		if s.cfg.Kind == Anthropic {
			_, err = s.c.Messages.New(t.Context(), hi, option.WithHeaderDel("x-api-key"))
			f("no key", err, 401, "authentication_error", "x-api-key")
		}
		fault := func(x Fault) {
			x.Count = 1
			if err := s.SetFault(x); err != nil {
				t.Fatal(err)
			}
		}
		fault(Fault{Kind: FaultStatus, Status: 529})
		_, err = s.c.Messages.New(t.Context(), hi)
		f("overloaded", err, 529, "overloaded_error", "")
		fault(Fault{Kind: FaultStatus, Status: 429, RetryAfter: 3})
		_, err = s.c.Messages.New(t.Context(), hi)
		f("too many", err, 429, named("rate_limit_error", "Too Many Requests"), "")
		fault(Fault{Kind: FaultStreamError, Status: 529, AfterEvents: 4})
		stream := s.c.Messages.NewStreaming(t.Context(), hi)
		var m anthropic.Message
		events := 0
		for stream.Next() {
			events++
			if err := m.Accumulate(stream.Current()); err != nil {
				t.Error(err)
			}
		}
		var e *anthropic.Error
		if err := stream.Err(); !errors.As(err, &e) || e.Type() != "overloaded_error" {
			t.Errorf("stream's error %v", err)
		}
		if events < 3 || len(m.Content) != 1 || m.Content[0].Text == "" || m.StopReason != "" {
			t.Errorf("%d events before the error: %s", events, m.RawJSON())
		}
		// A retry of the SDK's own gets the answer.
		fault(Fault{Kind: FaultStatus, Status: 529, RetryAfter: 1})
		if _, err := s.c.Messages.New(t.Context(), hi, option.WithMaxRetries(2)); err != nil {
			t.Errorf("with retries: %v", err)
		}
	})
}

func TestSDKModels(t *testing.T) {
	cfg := kindConfig(Anthropic)
	cfg.Adapters = []string{"a", "b"}
	bubble(t, cfg, func(t *testing.T, s *sim) {
		c := anthropic.NewClient(option.WithBaseURL(s.url), option.WithAPIKey("k"), option.WithMaxRetries(0), option.WithHTTPClient(s.client))
		pages := c.Models.ListAutoPaging(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(2)})
		var ids []string
		for pages.Next() {
			ids = append(ids, pages.Current().ID)
		}
		if err := pages.Err(); err != nil || strings.Join(ids, " ") != "m a b" {
			t.Errorf("%q, %v", ids, err)
		}
		m, err := c.Models.Get(t.Context(), "a", anthropic.ModelGetParams{})
		if err != nil || m.ID != "a" || m.DisplayName != "a" || m.CreatedAt.IsZero() || m.MaxInputTokens == 0 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}
