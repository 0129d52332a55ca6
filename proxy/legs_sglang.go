package proxy

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/api"
	"github.com/hearsay-llm/hearsay/proxy/sse"
	"github.com/hearsay-llm/hearsay/state"
)

// errOtherLeg ends one leg of a request since the other one failed.
var errOtherLeg = errors.New("the other leg failed")

// side is a prefill that runs beside the attempt at the replica that decodes. Its
// goroutine sends it and reads its answer to the end; the goroutine that serves the
// request keeps its books.
type side struct {
	p      *request // only what an exchange needs; the side's goroutine's until done
	decode *call    // ended when the prefill fails before the answer has begun
	ticket *state.Ticket
	done   chan struct{}
	state  atomic.Int32

	// Set by the side's goroutine before it ends decode, or closes done.
	f        *failure // why it failed; nil: it did not
	result   Result
	finished time.Time
}

// States of a side. Whoever comes first decides: a prefill that fails behind the
// answer's beginning concerns nobody but its replica.
const (
	sideRuns   int32 = iota
	sideServed       // the replica that decodes has begun to answer
	sideFailed       // the prefill failed before
)

// leadAtOnce sends the prefill on its way and prepares the other leg to meet it.
func (r *request) leadAtOnce() *failure {
	l := r.legs
	l.stage, l.hasUsage = stageDecode, false
	p := r.job.NextPrefill()
	if p == nil {
		r.count(hopNoReplica)
		return &failure{outcome: OutcomeAborted, reason: "no_prefill", err: noPrefill(time.Second)}
	}
	spec := &r.job.Pool().Spec
	pool, err := r.s.up.of(p.URL)
	if err != nil {
		f := broken("bad_url", true)
		r.job.EndPrefill(f.result())
		f.outcome, f.other = OutcomeAborted, true
		return f
	}
	l.replica, l.rid = p, newName()
	l.add, l.decode = r.meetAt(p, l.rid), r.call.part()

	r.edit(spec, p, r.s.core.noUsage.has(p.URL))
	r.edits = r.job.legs.body.Rewrite(r.edits, l.add, meetFields...)
	r.assemble(spec, p, pool)
	s := &side{decode: l.decode, ticket: r.job.legs.prefill.ticket, done: make(chan struct{})}
	s.p = &request{s: r.s, call: r.call.part(), x: r.x, out: r.out}
	s.p.x.call, s.p.x.heart, s.p.x.resp, s.p.x.onConnect = s.p.call, nil, nil, nil
	r.x, r.out = exchange{}, outgoing{}
	l.side = s
	r.s.serving.Go(s.run)
	return nil
}

// meetAt is the fields by which two legs find each other: one of each for a single
// prompt, a list of them for a list of prompts.
func (r *request) meetAt(p *state.ReplicaView, rid string) string {
	host, port := bootstrapOf(p)
	each := func(v func() string) string {
		n := r.job.legs.body.Prompts
		if n == 0 {
			return v()
		}
		list := make([]string, n)
		for i := range list {
			list[i] = v()
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	return `"rid":` + strconv.Quote(rid) +
		`,"bootstrap_host":` + each(func() string { return strconv.Quote(host) }) +
		`,"bootstrap_port":` + each(func() string { return strconv.Itoa(port) }) +
		`,"bootstrap_room":` + each(newRoom)
}

// run is the side's goroutine.
func (s *side) run() {
	p := s.p
	defer close(s.done)
	defer func() {
		if x := recover(); x != nil {
			p.s.panicked(x)
			s.f = broken("panic", true)
		}
		if s.f != nil {
			s.result = *s.f.result()
		}
		s.finished = p.s.core.now()
		s.ticket.End()
		if s.f != nil && s.state.CompareAndSwap(sideRuns, sideFailed) {
			s.decode.cancel(errOtherLeg)
		}
		p.x.close()
	}()
	s.f = s.serve()
}

// serve sends the prefill and reads its answer. What it says of its use is kept,
// nothing else is.
func (s *side) serve() *failure {
	p := s.p
	if err := p.x.send(&p.out); err != nil {
		return p.unsent(err)
	}
	p.out = outgoing{}
	switch status := p.x.resp.StatusCode(); {
	case status == http.StatusRequestTimeout: // it waited in vain for the other leg
		return &failure{outcome: OutcomeTimeout, retry: true, reason: "timeout", err: api.BadGateway("prefill_timeout")}
	case status >= 300 || status == http.StatusNoContent:
		return p.rejected(status)
	}
	if isEventStream(p.x.resp.ContentType()) {
		return s.follow()
	}
	b, err := readBounded(&p.x, prefillBytes)
	switch {
	case err == errTooLong:
		return broken("bad_response", true)
	case err != nil:
		return p.unsent(err)
	}
	read := api.ReadResponse(b, api.Inclusive, nil)
	if !read.Object || read.Error {
		return broken("bad_response", true)
	}
	s.result.Usage, s.result.HasUsage = read.Usage, read.HasUsage
	return nil
}

// follow reads a prefill's stream to its end.
func (s *side) follow() *failure {
	p := s.p
	framer := framers.Get().(*sse.Framer)
	framer.Reset(sse.Options{})
	defer func() {
		framer.Reset(sse.Options{})
		framers.Put(framer)
	}()
	buf := make([]byte, 4<<10)
	for {
		n, err := p.x.Read(buf)
		if _, ferr := framer.Feed(buf[:n]); ferr != nil {
			return broken("bad_response", true)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return p.unsent(err)
		}
	}
	framer.End()
	if e := framer.Error(); e != nil {
		return (&relay{}).refusal(e)
	}
	if u := framer.Usage(); u != nil {
		s.result.Usage, s.result.HasUsage = api.ParseUsage(u, api.Inclusive)
	}
	return nil
}

// answered says that the replica that decodes has begun to answer: the prefill has
// done its part.
func (r *request) answered() {
	if s := r.legs.side; s != nil {
		s.state.CompareAndSwap(sideRuns, sideServed)
		r.collect()
	}
}

// collect closes the books of a prefill beside the answer that has ended; it does
// nothing while it runs.
func (r *request) collect() {
	l := r.legs
	s := l.side
	if s == nil {
		return
	}
	select {
	case <-s.done:
	default:
		return
	}
	l.side = nil
	if s.f != nil && s.result.Outcome == OutcomeAborted && s.state.Load() == sideServed {
		s.f, s.result.Outcome = nil, OutcomeServed // cut off behind the answer's end
	}
	switch {
	case s.f == nil:
		l.usage, l.hasUsage = s.result.Usage, s.result.HasUsage
		r.count(hopHanded)
	case s.result.Outcome != OutcomeAborted:
		r.count(hopFailed)
	}
	r.job.legs.prefill.first = s.finished
	r.job.EndPrefill(&s.result)
}

// closeSide ends both legs of an attempt that failed with f, or, with nil, of a
// request that has ended. Those that may still be at work are told to stop: closing
// their connections mostly does it.
func (r *request) closeSide(f *failure) {
	l, spec := r.legs, &r.job.Pool().Spec
	gone := r.call.cause() != nil || r.reason == "write_stall"
	if s := l.side; s != nil {
		s.p.call.cancel(errOtherLeg)
		<-s.done
		if s.result.Outcome == OutcomeAborted && (f != nil || gone) {
			r.s.abort(l.replica, spec, l.rid)
		}
		r.collect()
	}
	if gone || f != nil && (f.other || f.outcome == OutcomeTimeout) && !f.unreached {
		r.s.abort(r.replica, spec, l.rid)
	}
	r.call.forget()
	l.rid, l.decode, l.side = "", nil, nil
}

// otherLeg is how an attempt failed whose other leg did: what the client is told is
// the other one's failure.
func (r *request) otherLeg() *failure {
	f := &failure{outcome: OutcomeAborted, reason: "prefill", other: true, err: api.BadGateway("prefill_failed")}
	if r.legs == nil || r.legs.side == nil || r.legs.side.f == nil {
		return f // the prefill's own: it is the other one
	}
	why := r.legs.side.f
	f.retry, f.wait = why.retry, why.wait
	switch {
	case why.err != nil:
		f.err = why.err
	case why.outcome == OutcomeFailed: // its words are of what the client knows nothing about
	default:
		f.err, f.status, f.body = nil, why.status, why.body
		why.head.CopyTo(&f.head)
	}
	if why.outcome == OutcomeAborted {
		f.retry = false
	}
	return f
}

const (
	// abortTime bounds the call by which SGLang is told to drop a request.
	abortTime = 2 * time.Second
	// maxAborts bounds such calls at a time.
	maxAborts = 256
)

// abort tells a replica to drop a request. It does not wait for that.
func (s *Server) abort(replica *state.ReplicaView, spec *state.PoolSpec, rid string) {
	pool, err := s.up.of(replica.URL)
	if err != nil {
		return
	}
	if s.aborts.Add(1) > maxAborts {
		s.aborts.Add(-1)
		return
	}
	fields := "Content-Type: application/json\r\n"
	if key := s.keys.of(spec); key != "" {
		fields += "Authorization: Bearer " + key + "\r\n"
	}
	body := []byte(`{"rid":` + strconv.Quote(rid) + `}`)
	s.serving.Go(func() {
		defer s.aborts.Add(-1)
		c := newCall()
		defer c.release()
		c.end = time.Now().Add(abortTime)
		x := exchange{call: c, pool: pool, waits: waits{connect: abortTime, firstByte: abortTime, idle: abortTime}}
		defer x.close()
		out := outgoing{head: appendRequest(nil, "", "/abort_request", pool.addr, []byte(fields), len(body)), body: [][]byte{body}}
		if x.send(&out) == nil {
			_, _ = readBounded(&x, 1<<10)
		}
	})
}
