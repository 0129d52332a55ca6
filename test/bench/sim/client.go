package sim

import (
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/api"
)

// Record is what came of one request. Durations are since the replay's start.
type Record struct {
	Router, Replica   int
	Sent, First, Done time.Duration
	Prompt, Cached    int
	Predicted         int // cached tokens expected by the pick
	PredictedTTFT     time.Duration
	Reason            string // of the pick
	Failed            string // empty: served
	Truth             PickTruth
	Seen              Seen
}

// TTFT is the time from sending to the first token.
func (r *Record) TTFT() time.Duration { return r.First - r.Sent }

// ask is the request as a front hands it in. Session names the request to picker.Pick,
// which puts the client's own in its place.
func (c *Cluster) ask(i int) *proxy.Ask {
	it := c.work.Items[i]
	return &proxy.Ask{Request: &it.Request, Body: it.Body, Session: strconv.Itoa(i)}
}

// request sends request i through a router and sees it to its end, as the proxy's
// handler does: admit, pick, relay, account.
func (c *Cluster) request(i, router int, start time.Time) {
	it, rec := c.work.Items[i], &c.Records[i]
	rec.Router, rec.Sent, rec.Prompt = router, time.Since(start), len(it.Prompt.Tokens)
	r := c.Router(router)
	if r == nil {
		rec.Failed = "router down"
		return
	}
	j, err := r.core.Admit(c.ask(i))
	if err != nil {
		rec.Failed = err.Error()
		return
	}
	defer j.Release()
	view, err := j.Next()
	if err != nil {
		rec.Failed = err.Error()
		return
	}
	r.timed.changed(view)
	p := j.Pick()
	rec.Predicted, rec.PredictedTTFT, rec.Reason = p.MatchedTokens, p.TTFT, p.Reason
	replica := c.reader.byID[view.ID]
	rec.Replica = c.places[view.ID]
	call, err := replica.Submit(it)
	if err != nil {
		rec.Failed = err.Error()
		j.End(&proxy.Result{Outcome: proxy.OutcomeFailed})
		return
	}
	<-call.First
	j.First()
	r.timed.changed(view)
	sink := j.Answer()
	<-call.Done
	if sink != nil {
		sink.AnswerText(it.Text)
	}
	rec.First, rec.Done, rec.Cached = call.FirstAt.Sub(start), call.DoneAt.Sub(start), call.Cached
	j.End(&proxy.Result{
		Outcome: proxy.OutcomeServed, HasUsage: true, Streamed: true, Whole: sink != nil, Last: call.DoneAt,
		Usage: api.Usage{
			InputTotal: rec.Prompt, InputCached: call.Cached, CachedKnown: true,
			Output: it.Answer.Tokens(), Source: api.Reported,
		},
	})
	r.timed.changed(view)
}
