package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

const (
	agreeWithin  = 5 * time.Second  // what is promised, of a majority and after healing
	longest      = 25 * time.Second // of a request, which takes less than a second where nothing is wrong
	finishWithin = 20 * time.Second // of a decision whose leader is gone, from the fault's begin
	settleWithin = time.Minute      // for what is not promised: more means that it never comes
)

// row is what came of one fault.
type row struct {
	name      string
	requests  int            // under way from the fault's begin until all agreed again
	failed    map[string]int // at what the fault hit, by cause
	elsewhere map[string]int // at anything else
	longest   time.Duration  // that one request took
	during    *times         // of the majority, from the fault's begin; nil: nothing is promised
	finished  time.Duration  // when the decision begun before it was done, from its begin; 0: nobody looked
	wrote     time.Duration  // what a write took while it lasted; 0: none was taken
	healed    times          // of all routers, from its end
	twice     int            // acts beyond what was decided
	lost      int            // committed facts
	broke     []string       // promises that were not kept
}

func (r *row) breach(format string, args ...any) {
	r.broke = append(r.broke, fmt.Sprintf(format, args...))
}

// cause causes a fault, in the middle of a decision, and sees what comes of it.
func (w *world) cause(ctx context.Context, f fault) (*row, error) {
	r := &row{name: f.name, failed: map[string]int{}, elsewhere: map[string]int{}}
	acks, err := w.prepare(ctx)
	if err != nil {
		return nil, fmt.Errorf("before it: %w", err)
	}
	known, err := w.teach(w.Routers[0], f.name+", before")
	if err != nil {
		return nil, err
	}
	lessons := []lesson{known}

	lead, _, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	a, err := w.decide(ctx, lead, 4)
	if err != nil {
		return nil, err
	}
	acks = append(acks, a)
	began := time.Now()
	b, err := f.begin(ctx, w)
	if err != nil {
		w.net.Heal()
		return nil, err
	}
	if !b.over {
		taken, more := w.meanwhile(ctx, f, b, began, r)
		acks, lessons = append(acks, taken...), append(lessons, more...)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(began.Add(cmp.Or(f.lasts, w.o.lasts)))):
		}
	}
	if err := b.end(ctx); err != nil {
		return nil, err
	}
	// What a replica held that was killed is gone with it.
	lessons = slices.DeleteFunc(lessons, func(l lesson) bool { return b.hit[l.replica] })
	index := uint64(0)
	for _, a := range acks {
		index = max(index, a.index)
	}
	r.healed, err = w.agreeOn(ctx, w.Routers, settleWithin, index, lessons)
	if err != nil {
		r.breach("afterwards: %v", err)
	} else if r.healed.all > agreeWithin {
		r.breach("all agreed %.1f s after its end", r.healed.all.Seconds())
	}
	w.count(r, b, began, time.Now())
	return r, w.judge(ctx, r, acks)
}

// prepare brings the scaled pool to two engines, and all routers to one view.
func (w *world) prepare(ctx context.Context) ([]ack, error) {
	if _, err := w.agree(ctx, w.Routers, settleWithin); err != nil {
		return nil, err
	}
	list, err := w.settled(ctx, settleWithin)
	if err != nil || len(list) > 0 && list[0].To == 2 {
		return nil, err
	}
	a, err := w.decide(ctx, w.Routers[0], 2)
	if err != nil {
		return nil, err
	}
	_, err = w.settled(ctx, settleWithin)
	return []ack{a}, err
}

// meanwhile looks at the routers while a fault lasts: who should agree, who may write, who may not. What is written
// and learned is known to all afterwards.
func (w *world) meanwhile(ctx context.Context, f fault, b *broken, began time.Time, r *row) (acks []ack, lessons []lesson) {
	if b.majority != nil {
		t, err := w.agree(ctx, b.majority, agreeWithin)
		if r.during = &t; err != nil {
			r.breach("while it lasted: %v", err)
		}
	}
	for i, m := range b.minority {
		if i == 0 {
			lessons = w.learn(m, f.name+", at the minority", r, lessons)
		}
		if a, err := w.decide(ctx, m, 7); err == nil {
			acks = append(acks, a)
			r.breach("%s, cut off, took a write", m.Name)
		}
	}
	if b.writer == nil {
		return acks, lessons
	}
	lessons = w.learn(b.writer, f.name+", meanwhile", r, lessons)
	if b.majority != nil { // what was begun is finished before more is decided: then what was done for it can be counted
		if err := w.finished(ctx, b.writer, began, r); err != nil {
			r.breach("while it lasted: %v", err)
		}
	}
	asked := time.Now()
	a, err := w.decide(ctx, b.writer, 3)
	switch {
	case err == nil:
		r.wrote = time.Since(asked)
		acks = append(acks, a)
	case b.majority != nil:
		r.breach("while it lasted: %v", err)
	}
	return acks, lessons
}

// finished waits until the decision that was begun before the fault has its outcome.
func (w *world) finished(ctx context.Context, at *harness.Proc, began time.Time, r *row) error {
	for {
		_, err := decisions(ctx, []*harness.Proc{at})
		switch {
		case err == nil:
			r.finished = time.Since(began)
			return nil
		case time.Since(began) > finishWithin:
			return fmt.Errorf("what was begun is not finished after %v: %w", finishWithin, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

func (w *world) learn(r *harness.Proc, seed string, to *row, lessons []lesson) []lesson {
	l, err := w.teach(r, seed)
	if err != nil {
		to.breach("%v", err)
		return lessons
	}
	return append(lessons, l)
}

// count sorts the requests of a span of time.
func (w *world) count(r *row, b *broken, from, to time.Time) {
	for _, o := range w.clients.between(from, to) {
		r.requests++
		r.longest = max(r.longest, o.end.Sub(o.at))
		switch {
		case o.cause == "":
		case b.hit[o.router] || b.hit[o.replica]:
			r.failed[o.cause]++
		default:
			r.elsewhere[o.cause]++
		}
	}
	if n := total(r.elsewhere); n > 0 {
		r.breach("%d requests failed that had nothing to do with it: %v", n, r.elsewhere)
	}
	if r.longest > longest {
		r.breach("a request took %v", r.longest.Round(lookEvery))
	}
	if r.requests == 0 {
		r.breach("there was no traffic")
	}
}

// judge waits for the decisions' outcomes and compares what was done with what was decided.
func (w *world) judge(ctx context.Context, r *row, acks []ack) error {
	list, err := w.settled(ctx, settleWithin)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.breach("%v", err)
		if list, err = decisions(ctx, w.Routers); err != nil {
			return err
		}
	}
	var logs []string
	for _, p := range w.Routers {
		logs = append(logs, p.Log())
	}
	twice, gone := actsIn(logs...).twice(list), lost(acks, list)
	r.twice, r.lost = len(twice), len(gone)
	r.broke = append(append(r.broke, twice...), gone...)
	return nil
}

func total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}
