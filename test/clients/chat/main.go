// Command chat asks what a user of OpenAI's Go library would ask, and prints a line of
// JSON for each check. Its arguments are a base URL and a model; further ones are not for it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

type (
	message = openai.ChatCompletionMessageParamUnion
	params  = openai.ChatCompletionNewParams
)

// asker asks one base URL for one model.
type asker struct {
	ctx   context.Context
	c     openai.Client
	model string
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: chat URL MODEL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a := asker{ctx, openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0)), os.Args[2]}
	for _, check := range []struct {
		name string
		run  func() error
	}{
		{"models", a.models},
		{"chat", a.chat},
		{"streamed chat with usage", a.streamed},
		{"streamed tool call", a.toolCall},
		{"tool call and its result", a.tools},
		{"image", a.image},
		{"completions", a.completions},
		{"embeddings", a.embeddings},
		{"left stream", a.leftStream},
		{"unknown model", a.unknownModel},
		{"bad request", a.badRequest},
	} {
		line := map[string]string{"name": check.name, "error": ""}
		if err := check.run(); err != nil {
			line["error"] = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			os.Exit(1)
		}
	}
}

// usual asks the usual question, or goes on with a conversation that begins with it.
func (a *asker) usual(maxTokens int64, more ...message) params {
	list := []message{openai.SystemMessage("You are terse."), openai.UserMessage("What is the weather in Łódź? 🌍")}
	return params{Model: a.model, MaxTokens: openai.Int(maxTokens), Messages: append(list, more...)}
}

// withTools is the same with a tool that has to be called, or must not be.
func withTools(p params, choice string) params {
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather", Description: openai.String("of a place"),
		Parameters: openai.FunctionParameters{
			"type": "object", "properties": map[string]any{"text": map[string]string{"type": "string"}}, "required": []string{"text"},
		},
	})}
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String(choice)}
	return p
}

// answered fails where an answer has no text or another length.
func answered(r *openai.ChatCompletion, err error, tokens int64) error {
	if err == nil && (len(r.Choices) != 1 || r.Choices[0].Message.Content == "" || r.Usage.CompletionTokens != tokens) {
		err = fmt.Errorf("answer %s", r.RawJSON())
	}
	return err
}

// stream is a streamed answer put together.
func (a *asker) stream(p params) (*openai.ChatCompletion, error) {
	s := a.c.Chat.Completions.NewStreaming(a.ctx, p)
	var acc openai.ChatCompletionAccumulator
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			return nil, fmt.Errorf("a chunk of another answer: %s", s.Current().RawJSON())
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(acc.Choices) != 1 {
		return nil, fmt.Errorf("%d choices", len(acc.Choices))
	}
	return &acc.ChatCompletion, nil
}

func (a *asker) models() error {
	page, err := a.c.Models.List(a.ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(page.Data, func(m openai.Model) bool { return m.ID == a.model }) {
		return fmt.Errorf("not in %s", page.RawJSON())
	}
	return nil
}

func (a *asker) chat() error {
	r, err := a.c.Chat.Completions.New(a.ctx, a.usual(7))
	return answered(r, err, 7)
}

func (a *asker) streamed() error {
	p := a.usual(20)
	whole, err := a.c.Chat.Completions.New(a.ctx, p)
	if err != nil {
		return err
	}
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	got, err := a.stream(p)
	if err != nil {
		return err
	}
	if got.Choices[0].Message.Content != whole.Choices[0].Message.Content || got.Usage.CompletionTokens != 20 || got.Choices[0].FinishReason != "length" {
		return fmt.Errorf("stream %+v, whole %s", got.Choices[0], whole.RawJSON())
	}
	return nil
}

// called is the answer's call of the tool.
func called(r *openai.ChatCompletion) (id string, err error) {
	calls := r.Choices[0].Message.ToolCalls
	var with struct{ Text string }
	if len(calls) == 1 {
		err = json.Unmarshal([]byte(calls[0].Function.Arguments), &with)
	}
	if len(calls) != 1 || err != nil || calls[0].Function.Name != "weather" || with.Text == "" || r.Choices[0].FinishReason != "tool_calls" {
		return "", fmt.Errorf("calls %+v: %w", calls, err)
	}
	return calls[0].ID, nil
}

func (a *asker) toolCall() error {
	r, err := a.stream(withTools(a.usual(12), "required"))
	if err == nil {
		_, err = called(r)
	}
	return err
}

func (a *asker) tools() error {
	asked, err := a.c.Chat.Completions.New(a.ctx, withTools(a.usual(12), "required"))
	if err != nil {
		return err
	}
	id, err := called(asked)
	if err != nil {
		return err
	}
	r, err := a.c.Chat.Completions.New(a.ctx, withTools(a.usual(9, asked.Choices[0].Message.ToParam(), openai.ToolMessage("12 degrees, rain", id)), "none"))
	if err := answered(r, err, 9); err != nil {
		return err
	}
	if r.Usage.PromptTokens <= asked.Usage.PromptTokens {
		return fmt.Errorf("prompts of %d and then %d tokens", asked.Usage.PromptTokens, r.Usage.PromptTokens)
	}
	return nil
}

func (a *asker) image() error {
	p := a.usual(5)
	p.Messages = []message{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.TextContentPart("What is this?"),
		openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: pixel}),
	})}
	r, err := a.c.Chat.Completions.New(a.ctx, p)
	return answered(r, err, 5)
}

func (a *asker) completions() error {
	r, err := a.c.Completions.New(a.ctx, openai.CompletionNewParams{
		Model: openai.CompletionNewParamsModel(a.model), MaxTokens: openai.Int(4),
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	if err == nil && (len(r.Choices) != 2 || r.Choices[1].Index != 1 || r.Usage.CompletionTokens != 8) {
		err = fmt.Errorf("answer %s", r.RawJSON())
	}
	return err
}

func (a *asker) embeddings() error {
	r, err := a.c.Embeddings.New(a.ctx, openai.EmbeddingNewParams{
		Model: a.model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	if err == nil && (len(r.Data) != 2 || len(r.Data[0].Embedding) == 0) {
		err = fmt.Errorf("answer %s", r.RawJSON())
	}
	return err
}

func (a *asker) leftStream() error {
	s := a.c.Chat.Completions.NewStreaming(a.ctx, a.usual(2000))
	if !s.Next() {
		return fmt.Errorf("no chunk: %w", s.Err())
	}
	return s.Close()
}

// refused fails unless an error has a status and holds some text.
func refused(err error, status int, text string) error {
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || !strings.Contains(e.Message, text) {
		return fmt.Errorf("not %d with %q: %w", status, text, err)
	}
	return nil
}

func (a *asker) unknownModel() error {
	p := a.usual(5)
	p.Model = "no-such-model"
	_, err := a.c.Chat.Completions.New(a.ctx, p)
	return refused(err, http.StatusNotFound, "no-such-model")
}

func (a *asker) badRequest() error {
	_, err := a.c.Chat.Completions.New(a.ctx, a.usual(-5))
	return refused(err, http.StatusBadRequest, "")
}
