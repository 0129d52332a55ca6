package enginesim

import "context"

// announced writes the events that come before a token does.
func (a *answer) announced(ctx context.Context) (over bool) {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		a.buf = a.p.announce(a.buf, kind)
		if a.event(ctx) {
			return true
		}
	}
	return a.flush() != nil
}

// itemOpens writes the events that come with the first token.
func (a *answer) itemOpens(ctx context.Context) (over bool) {
	a.buf = a.p.event(a.buf, "response.output_item.added", map[string]any{"output_index": 0, "item": a.p.output("in_progress")})
	if a.event(ctx) {
		return true
	}
	if a.p.tool != "" {
		return false
	}
	a.buf = a.p.event(a.buf, "response.content_part.added", a.p.within(map[string]any{"part": a.p.part()}))
	return a.event(ctx)
}

// piece writes the event of the tokens from..to.
func (a *answer) piece(ctx context.Context, g *generator, from, to int) (over bool) {
	text := g.appendBlock(nil, from, to)
	n := len(text)
	text = g.visible(text, g.written)
	g.written += n
	if a.p.tool != "" {
		if from == 0 {
			text = append([]byte(`{"text": "`), text...)
		}
		if to == g.tokens {
			text = append(text, `"}`...)
		}
	}
	if len(text) == 0 {
		return false
	}
	a.buf = a.p.delta(a.buf, text)
	return a.event(ctx)
}

// itemCloses writes the events behind the last token, and keeps the response.
func (a *answer) itemCloses(ctx context.Context, u usage) (over bool) {
	type event struct {
		kind   string
		fields map[string]any
	}
	events := []event{{"response.function_call_arguments.done", a.p.within(map[string]any{"arguments": string(a.p.text), "name": a.p.tool})}}
	if a.p.tool == "" {
		events = []event{
			{"response.output_text.done", a.p.within(map[string]any{"text": string(a.p.text), "logprobs": []any{}})},
			{"response.content_part.done", a.p.within(map[string]any{"part": a.p.part()})},
		}
	}
	final := a.p.final(&a.c.gens[0], u)
	a.keep(final)
	events = append(events,
		event{"response.output_item.done", map[string]any{"output_index": 0, "item": a.p.output("completed")}},
		event{"response.completed", map[string]any{"response": final}})
	for _, x := range events {
		a.buf = a.p.event(a.buf, x.kind, x.fields)
		if a.event(ctx) {
			return true
		}
	}
	return false
}

// wholeResponse puts a whole answer into buf, and keeps it.
func (a *answer) wholeResponse(u usage) {
	g := &a.c.gens[0]
	text := g.visible(g.appendBlock(nil, 0, a.progress[0].tokens), 0)
	if a.p.tool != "" {
		text = append(append([]byte(`{"text": "`), text...), `"}`...)
	}
	a.p.text = text
	final := a.p.final(g, u)
	a.keep(final)
	a.buf = append(a.buf, mustJSON(final)...)
}

// keep keeps a response for requests that go on from it.
func (a *answer) keep(final responseObject) {
	if a.req.keep {
		a.e.kept.put(final.ID, keptResponse{turns: a.p.turns(), body: mustJSON(final)})
	}
}
