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
	"github.com/openai/openai-go/v3/responses"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// responseClient is the official client of a router.
func responseClient(r *harness.Proc) *openai.Client {
	c := openai.NewClient(option.WithBaseURL(r.API+"/v1"), option.WithAPIKey("sk-none"), option.WithMaxRetries(0))
	return &c
}

func responseParams(previous, input string) responses.ResponseNewParams {
	p := responses.ResponseNewParams{
		Model: model, MaxOutputTokens: openai.Int(9),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input)},
	}
	if previous != "" {
		p.PreviousResponseID = openai.String(previous)
	}
	return p
}

// The official client's Responses, streamed and not, go on at another router each turn,
// and what is kept is had and deleted at any.
func TestOfficialClientOfResponses(t *testing.T) {
	p := healthy(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := func(i int) *openai.Client { return responseClient(p.Routers[i%len(p.Routers)]) }
	first, err := at(0).Responses.New(ctx, responseParams("", "What is the weather? "+strings.Repeat("Think about it. ", 100)))
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == "" || first.OutputText() == "" || first.Model != model || first.Usage.OutputTokens != 9 || first.Usage.InputTokens == 0 {
		t.Fatalf("answer %s", first.RawJSON())
	}
	last := first
	for turn := 1; turn <= 6; turn++ {
		var next *responses.Response
		params := responseParams(last.ID, "And tomorrow?")
		if turn%2 == 0 {
			if next, err = at(turn).Responses.New(ctx, params); err != nil {
				t.Fatal(err)
			}
		} else {
			next = streamedResponse(ctx, t, at(turn), params)
		}
		if next.PreviousResponseID != last.ID || next.ID == last.ID || next.OutputText() == "" {
			t.Fatalf("turn %d: answer %s", turn, next.RawJSON())
		}
		if cached := next.Usage.InputTokensDetails.CachedTokens; cached < last.Usage.InputTokens-32 {
			t.Errorf("turn %d: %d of %d tokens cached", turn, cached, next.Usage.InputTokens)
		}
		last = next
	}
	kept, err := at(1).Responses.Get(ctx, last.ID, responses.ResponseGetParams{})
	if err != nil || kept.ID != last.ID || kept.OutputText() != last.OutputText() {
		t.Fatalf("kept: %+v, %v", kept, err)
	}
	if err := at(2).Responses.Delete(ctx, last.ID); err != nil {
		t.Fatal(err)
	}
	f := func(name string, err error, code, param string) {
		t.Helper()
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != http.StatusNotFound || e.Code != code || e.Param != param {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = at(0).Responses.Get(ctx, last.ID, responses.ResponseGetParams{})
	f("deleted", err, "response_not_found", "response_id")
	_, err = at(0).Responses.New(ctx, responseParams(last.ID, "And?"))
	f("goes on from what was deleted", err, "previous_response_not_found", "previous_response_id")
	_, err = at(1).Responses.New(ctx, responseParams("resp_unknown", "And?"))
	f("goes on from what nobody knows", err, "previous_response_not_found", "previous_response_id")
	_, err = at(1).Responses.Cancel(ctx, first.ID)
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusBadRequest {
		t.Errorf("cancel: %v", err)
	}
}

// streamedResponse is the response that a stream ends with; its deltas are its text.
func streamedResponse(ctx context.Context, t *testing.T, c *openai.Client, params responses.ResponseNewParams) *responses.Response {
	t.Helper()
	stream := c.Responses.NewStreaming(ctx, params)
	text, id := "", ""
	var end responses.Response
	for stream.Next() {
		e := stream.Current()
		switch e.Type {
		case "response.created":
			id = e.Response.ID
		case "response.output_text.delta":
			text += e.Delta
		case "response.completed":
			end = e.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if end.ID == "" || id != end.ID || text != end.OutputText() {
		t.Fatalf("created %q, text %q, ended with %s", id, text, end.RawJSON())
	}
	return &end
}
