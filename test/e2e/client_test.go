package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// The official client gets from each router what it would get from the provider.
func TestOfficialClient(t *testing.T) {
	p := healthy(t)
	for _, r := range p.Routers {
		t.Run(r.Name, func(t *testing.T) {
			c := openai.NewClient(option.WithBaseURL(r.API+"/v1"), option.WithAPIKey("sk-none"), option.WithMaxRetries(0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			t.Run("streamed chat with tools", func(t *testing.T) { streamedChat(ctx, t, &c) })
			t.Run("plain chat", func(t *testing.T) { plainChat(ctx, t, &c) })
			t.Run("completions", func(t *testing.T) { completions(ctx, t, &c) })
			t.Run("embeddings", func(t *testing.T) { embeddings(ctx, t, &c) })
			t.Run("models", func(t *testing.T) { models(ctx, t, &c) })
			t.Run("errors", func(t *testing.T) { clientErrors(ctx, t, &c, r) })
		})
	}
}

func messages(text string) []openai.ChatCompletionMessageParamUnion {
	return []openai.ChatCompletionMessageParamUnion{
		openai.SystemMessage("You are terse."), openai.UserMessage(text),
	}
}

func streamedChat(ctx context.Context, t *testing.T, c *openai.Client) {
	stream := c.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: model, Messages: messages("What is the weather?"), MaxTokens: openai.Int(9),
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: "weather", Description: openai.String("The weather of a place."),
			Parameters: openai.FunctionParameters{
				"type": "object", "properties": map[string]any{"place": map[string]string{"type": "string"}}, "required": []string{"place"},
			},
		})},
	})
	var acc openai.ChatCompletionAccumulator
	chunks := 0
	for stream.Next() {
		chunks++
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk %d does not belong to the answer: %s", chunks, stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if chunks < 9 || len(acc.Choices) != 1 || acc.Choices[0].Message.Content == "" || acc.Choices[0].FinishReason != "length" {
		t.Errorf("%d chunks, answer %+v", chunks, acc.Choices)
	}
	if acc.Model != model || acc.Usage.CompletionTokens != 9 || acc.Usage.PromptTokens == 0 {
		t.Errorf("model %q, usage %+v", acc.Model, acc.Usage)
	}
}

func plainChat(ctx context.Context, t *testing.T, c *openai.Client) {
	a, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: model, Messages: messages("Say something."), MaxTokens: openai.Int(5),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Choices) != 1 || a.Choices[0].Message.Content == "" || a.Usage.CompletionTokens != 5 || a.Object != "chat.completion" {
		t.Errorf("answer %s", a.RawJSON())
	}
}

func completions(ctx context.Context, t *testing.T, c *openai.Client) {
	params := openai.CompletionNewParams{
		Model: model, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once upon a time")}, MaxTokens: openai.Int(6),
	}
	a, err := c.Completions.New(ctx, params)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Choices) != 1 || a.Choices[0].Text == "" || a.Usage.CompletionTokens != 6 {
		t.Errorf("answer %s", a.RawJSON())
	}
	stream := c.Completions.NewStreaming(ctx, params)
	text := ""
	for stream.Next() {
		for _, ch := range stream.Current().Choices {
			text += ch.Text
		}
	}
	if err := stream.Err(); err != nil || text != a.Choices[0].Text {
		t.Errorf("streamed %q, plain %q, error %v", text, a.Choices[0].Text, err)
	}
}

func embeddings(ctx context.Context, t *testing.T, c *openai.Client) {
	a, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Data) != 2 || len(a.Data[0].Embedding) == 0 || a.Data[1].Index != 1 || a.Usage.PromptTokens == 0 {
		t.Errorf("answer %.300s", a.RawJSON())
	}
}

func models(ctx context.Context, t *testing.T, c *openai.Client) {
	list, err := c.Models.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 1 || list.Data[0].ID != model || list.Data[0].Object != "model" {
		t.Errorf("models %s", list.RawJSON())
	}
	m, err := c.Models.Get(ctx, model)
	if err != nil || m.ID != model {
		t.Errorf("model %+v, %v", m, err)
	}
}

func clientErrors(ctx context.Context, t *testing.T, c *openai.Client, r *harness.Proc) {
	f := func(name string, err error, status int, code, param, message string) {
		t.Helper()
		var e *openai.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v is no API error", name, err)
			return
		}
		if e.StatusCode != status || e.Code != code || e.Param != param || e.Type == "" || !strings.Contains(e.Message, message) {
			t.Errorf("%s: status %d, code %q, param %q, type %q, message %q", name, e.StatusCode, e.Code, e.Param, e.Type, e.Message)
		}
		if e.Response.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: no request id", name)
		}
	}
	_, err := c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "nope", Messages: messages("hi")})
	f("unknown model", err, http.StatusNotFound, "model_not_found", "model", "nope")
	_, err = c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "nope", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}})
	f("unknown model of embeddings", err, http.StatusNotFound, "model_not_found", "model", "nope")
	_, err = c.Models.Get(ctx, "nope")
	f("unknown model shown", err, http.StatusNotFound, "model_not_found", "model", "nope")
	stream := c.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: "nope", Messages: messages("hi")})
	for stream.Next() {
		t.Errorf("an unknown model streams %s", stream.Current().RawJSON())
	}
	f("unknown model streamed", stream.Err(), http.StatusNotFound, "model_not_found", "model", "nope")

	for name, body := range map[string]string{
		"no model": `{"messages":[]}`, "not JSON": `{"model":`, "not an object": `[]`,
	} {
		resp, answer := whole(t, r.API+"/v1/chat/completions", body)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(answer, `"error"`) || !strings.Contains(answer, "invalid_request_error") {
			t.Errorf("%s: status %d, %s", name, resp.StatusCode, answer)
		}
	}
	if code, body, _ := get(t, r.API+"/v1/nothing"); code != http.StatusNotFound || !strings.Contains(body, `"error"`) {
		t.Errorf("unknown path: status %d, %s", code, body)
	}
}
