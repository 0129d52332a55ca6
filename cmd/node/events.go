package node

import (
	"strconv"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// tellPick tells those who read events of a pick, now and then.
func (n *Node) tellPick(p *proxy.Pick) {
	n.events.Pick(p.At, func() console.Event {
		return console.Event{
			At: p.At, Pool: p.Pool, Replica: string(p.Replica), Role: string(p.Leg), Reason: p.Reason,
			RequestID: p.RequestID, Model: p.Model, Tenant: p.Tenant, Band: p.Band, Attempt: p.Attempt, Policy: p.Policy,
			PromptTokens: p.PromptTokens, MatchedTokens: p.MatchedTokens, TTFTMS: float64(p.TTFT) / float64(time.Millisecond),
		}
	})
}

// tellRequest tells those who record requests what one was like.
func (n *Node) tellRequest(r *proxy.Record) {
	n.events.Request(func() console.Event {
		p := r.Pick
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		return console.Event{
			At: p.At.Add(-p.Queued), Pool: p.Pool, Replica: string(p.Replica), Reason: p.Reason, Outcome: r.Outcome.String(),
			RequestID: p.RequestID, Model: p.Model, Tenant: p.Tenant, Band: p.Band, Attempt: p.Attempt, Policy: p.Policy,
			PromptTokens: r.PromptTokens, MatchedTokens: p.MatchedTokens, TTFTMS: ms(p.TTFT),
			Record: &console.Record{
				QueuedMS: ms(p.Queued), ObservedMS: ms(r.First), ITLMS: ms(r.ITL), CachedTokens: r.CachedTokens,
				OutputTokens: r.OutputTokens, MaxTokens: r.MaxTokens, PromptBytes: depthOf(r.Total), Marks: marksOf(r.Marks), Session: sessionOf(r.Session),
			},
		}
	})
}

// sessionOf names a session without telling its key; empty for none.
func sessionOf(key string) string {
	if key == "" {
		return ""
	}
	return strconv.FormatUint(xxh3.HashString(key)>>32, 16)
}

// maxToldMarks bounds the marks of a record: the first so many of a prompt.
const maxToldMarks = 512

// marksOf writes marks as records have them: depth and hash of each, a space between
// two. Half of a hash is enough to tell prompts apart, and tells less of them.
func marksOf(marks []prefix.Mark) string {
	marks = marks[:min(len(marks), maxToldMarks)]
	b := make([]byte, 0, 16*len(marks))
	for i, m := range marks {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(depthOf(m)), 10)
		b = append(b, '.')
		b = strconv.AppendUint(b, m.Hash>>32, 16)
	}
	return string(b)
}

// depthOf is a mark's depth in bytes; a token that is known by number counts as four.
func depthOf(m prefix.Mark) int { return m.Bytes() + 4*int(m.Exact) }

// tellPrewarm tells those who read events of a prompt that was sent for a cache's sake.
func (n *Node) tellPrewarm(p proxy.Prewarmed) {
	text := "to fill its cache"
	if p.From != "" {
		text = "held by a draining replica alone"
	}
	n.events.Publish(console.Event{
		At: p.At, Kind: console.KindPrewarm, Pool: p.Pool, Replica: string(p.Replica), From: string(p.From), Outcome: p.Outcome,
		PromptTokens: p.Tokens, Text: text,
	})
}
