package enginesim

import "context"

// message writes the events of the tokens from..to of an answer of the Messages API.
// It reports whether a fault ended the answer.
func (a *answer) message(ctx context.Context, g *generator, from, to int) (over bool) {
	if from < g.thinking {
		n := min(to, g.thinking)
		if a.block(ctx, blockThinking, g.appendBlock(nil, from, n)) {
			return true
		}
		from = n
	}
	if from < to {
		text := g.appendBlock(nil, from, to)
		n := len(text)
		if text = g.visible(text, a.m.written); a.m.tool != nil {
			text = a.arguments(g, text, from, to)
		}
		a.m.written += n
		if a.block(ctx, a.m.after(), text) {
			return true
		}
	}
	return to == g.tokens && a.endBlock(ctx)
}

// arguments is the part of a call's arguments that the tokens from..to are, escaped to
// stand in a string.
func (a *answer) arguments(g *generator, text []byte, from, to int) []byte {
	if from == g.thinking {
		text = append([]byte(`{\"text\": \"`), text...)
	}
	if to == g.tokens {
		text = append(text, `\"}`...)
	}
	return text
}

// block writes text into a block of that kind, which it opens if need be.
func (a *answer) block(ctx context.Context, kind blockKind, text []byte) (over bool) {
	if len(text) == 0 {
		return false
	}
	if a.m.open != kind && (a.endBlock(ctx) || a.startBlock(ctx, kind)) {
		return true
	}
	a.buf = a.m.delta(a.buf, text)
	return a.event(ctx)
}

// startBlock opens a block. Anthropic pings behind the first one's start, and sends a
// call's first arguments empty.
func (a *answer) startBlock(ctx context.Context, kind blockKind) (over bool) {
	a.buf = a.m.blockStart(a.buf, kind)
	if over = a.event(ctx); over || a.m.engine != Anthropic {
		return over
	}
	if a.m.next == 0 {
		a.buf = a.m.ping(a.buf)
		over = a.event(ctx)
	}
	if !over && kind == blockTool {
		a.buf = a.m.delta(a.buf, nil)
		over = a.event(ctx)
	}
	return over
}

// endBlock closes the open block, if there is one. Thoughts are signed.
func (a *answer) endBlock(ctx context.Context) (over bool) {
	switch a.m.open {
	case blockNone:
		return false
	case blockThinking:
		a.buf = a.m.sign(a.buf)
		if a.event(ctx) {
			return true
		}
	}
	a.buf = a.m.blockStop(a.buf)
	return a.event(ctx)
}
