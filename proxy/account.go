package proxy

import (
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// Result is what came of one attempt.
type Result struct {
	Outcome    Outcome
	Usage      api.Usage     // reported or estimated; Source says which
	HasUsage   bool          // the engine reported Usage
	Streamed   bool          // tokens came one by one: their times mean something
	Whole      bool          // the answer came to its end and went through Answer
	Last       time.Time     // when the last token came; zero: unknown
	RetryAfter time.Duration // of a busy replica; 0: it did not say
	Limited    bool          // it answered 429: it wants no more requests until then
}

// Answer gives the sink that must see the answer's pieces, so that the next turn
// of a chat finds its whole history. It is nil when nobody would remember it.
//
// An answer that was begun and given up has moved the hasher past the prompt's
// end, so later attempts at the same request get nil.
func (j *Job) Answer() api.AnswerSink {
	if j.now.placement == nil || j.answered {
		return nil
	}
	j.answered = true
	j.hasher.BeginAnswer("assistant")
	return &j.hasher
}

// End gives back what the attempt held and learns from it. It does so once: later
// calls, before another Next, do nothing.
func (j *Job) End(r *Result) {
	a := &j.now
	if !a.open {
		return
	}
	a.open = false
	now := j.core.now()
	a.ticket.End()
	j.settle(r, now)
	j.core.limited.note(j.pick.Replica, r, now)
	if c := j.core; c.reporter != nil {
		c.reporter.Report(j.pick.Replica, r.Outcome, r.RetryAfter, now)
	}
	if r.Outcome == OutcomeServed || r.HasUsage {
		j.learn(r)
	}
	j.meter(r)
	j.answeredWell(r)
	j.record(r)
	j.core.pump(j.queue)
}

// meter counts what the attempt used, by where its numbers come from.
func (j *Job) meter(r *Result) {
	u := &r.Usage
	if u.Source == api.None {
		return
	}
	m, pool := j.core.metrics, j.pool.Spec.Name
	m.records.WithLabelValues(pool, u.Source.String()).Inc()
	m.tokens.WithLabelValues(pool, "input").Add(float64(u.InputTotal))
	m.tokens.WithLabelValues(pool, "output").Add(float64(u.Output))
	if u.CachedKnown {
		m.tokens.WithLabelValues(pool, "cached").Add(float64(u.InputCached))
	}
}

// estimate is what a request used whose engine does not say: the prompt as it was
// estimated for the pick, and of the answer a token for each event of a stream, which is
// what engines send, or its text by the model's ratio. Nothing is known of a request
// that is passed through unread.
func (j *Job) estimate(pieces int, whole bool) api.Usage {
	if !j.prompt {
		return api.Usage{}
	}
	u := api.Usage{InputTotal: j.req.PromptTokens, Output: pieces, Source: api.Estimated}
	if whole {
		u.Output = j.ratio.Tokens(prefix.Mark{ASCII: uint32(min(pieces, 1<<31-1))})
	}
	return u
}

// settle confirms or withdraws the placement.
func (j *Job) settle(r *Result, now time.Time) {
	p := j.now.placement
	if p == nil {
		return
	}
	j.now.placement = nil
	if j.now.first.IsZero() {
		if r.Outcome != OutcomeServed {
			p.Withdraw(now)
			return
		}
		p.First(now)
	}
	if r.HasUsage && r.Usage.CachedKnown && !j.handed() && !j.partial {
		p.Evidence(j.pick.MatchedTokens, r.Usage.InputTotal, r.Usage.InputCached)
	}
	if r.Whole {
		j.answer = j.hasher.EndAnswer(j.answer[:0])
		if len(j.answer) > 0 {
			j.answer = append(j.answer, make([]prefix.Mark, len(j.marks))...)
			copy(j.answer[len(j.marks):], j.answer[:len(j.answer)-len(j.marks)])
			copy(j.answer, j.marks)
			j.depths = appendTokens(j.depths[:0], j.answer, j.ratio)
			p.Answer(j.answer, j.depths)
		}
	}
	p.End(now)
}

// learn feeds what the engine reported to calibration, ratios and metrics.
func (j *Job) learn(r *Result) {
	c, a, u := j.core, &j.now, &r.Usage
	pool := j.pool.Spec.Name
	s := a.sample
	if r.HasUsage {
		if j.prompt && !j.partial {
			j.ratio.Learn(j.total, u.InputTotal)
			if c.counted != nil {
				c.counted(j.pool.Spec.UpstreamName(), j.total, u.InputTotal)
			}
		}
		s.PromptTokens = u.InputTotal
		if u.CachedKnown && !j.handed() {
			if !j.partial { // of what it goes on from nothing was predicted
				c.metrics.predicted.Add(float64(j.pick.MatchedTokens))
				c.metrics.reported.Add(float64(u.InputCached))
			}
			s.UncachedTokens = u.InputTotal - u.InputCached
		}
	}
	if r.Streamed && !a.first.IsZero() {
		s.TTFT = a.first.Sub(a.began)
		c.metrics.ttftError.Observe((s.TTFT - j.pick.TTFT).Abs().Seconds())
		if j.handed() || a.learned && !far(s.UncachedTokens, a.sample.UncachedTokens, s.PromptTokens) {
			s.TTFT = 0 // of both legs, or told already
		}
		if n := u.Output; r.HasUsage && n > 1 && r.Last.After(a.first) {
			s.ITL = r.Last.Sub(a.first) / time.Duration(n-1)
			s.ITLBatch = s.Decode + 1
			c.metrics.tpot.WithLabelValues(pool).Observe(s.ITL.Seconds())
			j.streamed(s.ITL)
			s.ITL = a.alone(s.ITL, r.Last.Sub(a.first), prefilledBy(c.store.View(), j.pick.Replica))
		}
		if c.cal != nil && (!a.learned || s.TTFT > 0 || s.ITL > 0) {
			c.cal.Observe(s)
		}
	}
	if c.cal != nil && r.HasUsage && r.Outcome == OutcomeServed && u.Output > 0 {
		c.cal.ObserveOutput(pool, j.req.MaxTokens, u.Output)
	}
}

// learnFirst tells calibration the time to the first token as soon as it is known, where
// what the engine reports at the answer's end will change little of it: next to nothing
// of the prompt was expected in its cache. A replica that has become slow is slow to end
// its answers too.
func (j *Job) learnFirst() {
	c, a := j.core, &j.now
	if c.cal == nil || !j.prompt || j.partial || j.handed() || far(0, j.pick.MatchedTokens, j.pick.PromptTokens) {
		return
	}
	a.learned = true
	s := a.sample
	s.TTFT = a.first.Sub(a.began)
	c.cal.Observe(s)
}

// far reports whether two counts of a prompt's tokens differ by more than a tenth of it.
func far(a, b, prompt int) bool { return 10*max(a-b, b-a) > prompt }

// Release gives the job's buffers back. An attempt that has not ended is ended as
// aborted.
func (j *Job) Release() {
	j.End(&Result{Outcome: OutcomeAborted})
	j.EndPrefill(&Result{Outcome: OutcomeAborted})
	j.over()
	c := j.core
	j.legs, j.queue, j.lack = nil, nil, nil
	j.core, j.pool, j.ratio, j.req, j.now = nil, nil, nil, routing.Request{}, attempt{}
	if cap(j.marks) > maxKeptMarks {
		j.marks, j.tokens, j.answer, j.depths = nil, nil, nil, nil
	}
	c.jobs.Put(j)
}

// maxKeptMarks bounds the buffers kept between requests.
const maxKeptMarks = 4096
