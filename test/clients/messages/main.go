// Command messages asks what a user of Anthropic's Go library would ask, and prints a
// line of JSON for each check. Its arguments are a base URL and a model, and "translated"
// where messages become chats: then nothing thinks, and tokens are counted roughly.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// asker asks one base URL for one model.
type asker struct {
	ctx   context.Context
	c     anthropic.Client
	model string

	translated bool
}

func main() {
	if n := len(os.Args); n != 3 && (n != 4 || os.Args[3] != "translated") {
		fmt.Fprintln(os.Stderr, "usage: messages URL MODEL [translated]")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a := asker{ctx, anthropic.NewClient(option.WithBaseURL(os.Args[1]), option.WithAPIKey("none"), option.WithMaxRetries(0)), os.Args[2], len(os.Args) == 4}
	for _, check := range []struct {
		name string
		run  func() error
	}{
		{"models", a.models},
		{"message", a.message},
		{"streamed message", a.streamed},
		{"tool call and its result", a.tools},
		{"image", a.image},
		{"thinking", a.thinking},
		{"stop sequence", a.stopSequence},
		{"token count", a.count},
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

// params ask for maxTokens after a conversation; without one it is the usual question.
func (a *asker) params(maxTokens int64, conversation ...anthropic.MessageParam) anthropic.MessageNewParams {
	if len(conversation) == 0 {
		conversation = []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("What is the weather in Łódź? 🌍"))}
	}
	return anthropic.MessageNewParams{
		Model: anthropic.Model(a.model), MaxTokens: maxTokens, Messages: conversation,
		System: []anthropic.TextBlockParam{{Text: "You are terse.", CacheControl: anthropic.NewCacheControlEphemeralParam()}},
	}
}

// both are the whole and the streamed answer.
func (a *asker) both(p anthropic.MessageNewParams) ([2]*anthropic.Message, error) {
	whole, err := a.c.Messages.New(a.ctx, p)
	if err != nil {
		return [2]*anthropic.Message{}, err
	}
	stream := a.c.Messages.NewStreaming(a.ctx, p)
	var m anthropic.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			return [2]*anthropic.Message{}, err
		}
	}
	return [2]*anthropic.Message{whole, &m}, stream.Err()
}

func inputs(u anthropic.Usage) int64 {
	return u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
}

// unless is an error with the answer in it, unless it is as it should be.
func unless(ok bool, m *anthropic.Message) error {
	if ok {
		return nil
	}
	return fmt.Errorf("answer %s", m.RawJSON())
}

func (a *asker) models() error {
	pages := a.c.Models.ListAutoPaging(a.ctx, anthropic.ModelListParams{})
	for pages.Next() {
		if pages.Current().ID == a.model {
			return nil
		}
	}
	return errors.Join(errors.New("the model is not listed"), pages.Err())
}

func (a *asker) message() error {
	m, err := a.c.Messages.New(a.ctx, a.params(7))
	if err != nil {
		return err
	}
	return unless(len(m.Content) == 1 && m.Content[0].Text != "" && m.StopReason == "max_tokens" && m.Usage.OutputTokens == 7 && inputs(m.Usage) > 7, m)
}

func (a *asker) streamed() error {
	both, err := a.both(a.params(20))
	if err != nil {
		return err
	}
	whole, m := both[0], both[1]
	return unless(len(m.Content) == 1 && m.Content[0].Text == whole.Content[0].Text && m.StopReason == "max_tokens" && m.Usage.OutputTokens == 20 &&
		inputs(m.Usage) == inputs(whole.Usage), m)
}

func (a *asker) tools() error {
	p := a.params(20)
	p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "weather", Description: anthropic.String("of a place"),
		InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"text": map[string]string{"type": "string"}}, Required: []string{"text"}},
	}}}
	forced := p
	forced.ToolChoice = anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}}
	both, err := a.both(forced)
	if err != nil {
		return err
	}
	for _, m := range both {
		var input struct{ Text string }
		if m.StopReason != "tool_use" || len(m.Content) != 1 || m.Content[0].Name != "weather" || json.Unmarshal(m.Content[0].Input, &input) != nil || input.Text == "" {
			return unless(false, m)
		}
		next := p
		next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(m.Content[0].ID, "rain", false)))
		answer, err := a.c.Messages.New(a.ctx, next)
		if err != nil {
			return err
		}
		if err := unless(answer.Content[0].Text != "" && answer.StopReason == "max_tokens", answer); err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) image() error {
	bare, err := a.c.Messages.New(a.ctx, a.params(1))
	if err != nil {
		return err
	}
	m, err := a.c.Messages.New(a.ctx, a.params(1, anthropic.NewUserMessage(
		anthropic.NewImageBlockBase64("image/png", pixel), anthropic.NewTextBlock("What is that?"),
	)))
	if err != nil {
		return err
	}
	return unless(inputs(m.Usage) > inputs(bare.Usage)+50, m)
}

func (a *asker) thinking() error {
	p := a.params(1100)
	p.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
	both, err := a.both(p)
	if err != nil {
		return err
	}
	for _, m := range both {
		if a.translated {
			if len(m.Content) != 1 || m.Content[0].Text == "" {
				return unless(false, m)
			}
		} else if len(m.Content) != 2 || m.Content[0].Thinking == "" || m.Content[0].Signature == "" || m.Content[1].Text == "" {
			return unless(false, m)
		}
		next := a.params(5)
		next.Messages = append(next.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewTextBlock("More!")))
		if _, err := a.c.Messages.New(a.ctx, next); err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) stopSequence() error {
	p := a.params(200)
	p.StopSequences = []string{"e"}
	both, err := a.both(p)
	if err != nil {
		return err
	}
	for _, m := range both {
		if m.StopReason != "stop_sequence" || m.StopSequence != "e" || strings.Contains(m.Content[0].Text, "e") {
			return unless(false, m)
		}
	}
	return nil
}

func (a *asker) count() error {
	p := a.params(1)
	n, err := a.c.Messages.CountTokens(a.ctx, anthropic.MessageCountTokensParams{
		Model: p.Model, Messages: p.Messages, System: anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: p.System},
	})
	if err != nil {
		return err
	}
	m, err := a.c.Messages.New(a.ctx, p)
	if err != nil {
		return err
	}
	real := inputs(m.Usage)
	return unless(n.InputTokens == real || a.translated && n.InputTokens > real*7/10 && n.InputTokens < real*3/2, m)
}

func (a *asker) leftStream() error {
	stream := a.c.Messages.NewStreaming(a.ctx, a.params(2000))
	if !stream.Next() {
		return fmt.Errorf("no event: %w", stream.Err())
	}
	return stream.Close()
}

func (a *asker) unknownModel() error {
	p := a.params(5)
	p.Model = "no-such-model"
	return a.refused(p, 404, "no-such-model")
}

func (a *asker) badRequest() error { return a.refused(a.params(-5), 400, "") }

// refused asks what has to be refused with a status and, in the message, a word.
func (a *asker) refused(p anthropic.MessageNewParams, status int, word string) error {
	_, err := a.c.Messages.New(a.ctx, p)
	if err == nil {
		return fmt.Errorf("no error, status %d expected", status)
	}
	var e *anthropic.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Type() == "" || !strings.Contains(e.RawJSON(), word) {
		return fmt.Errorf("status %d expected: %w", status, err)
	}
	return nil
}
