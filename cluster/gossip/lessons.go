package gossip

import (
	"math/rand/v2"
	"time"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// Lessons is what routers teach each other beside sketches. Drain and All are
// called by one goroutine, Learn by another; none may block.
type Lessons interface {
	// Drain appends the lessons of requests learned here since it was last called,
	// each once, and forgets them.
	Drain(dst []state.Lesson) []state.Lesson
	// Learn takes another router's lesson, of any kind: unknown ones are ignored. It
	// comes at most once, unless it is a summary.
	Learn(l state.Lesson)
	// All appends the sums of everything learned, for a router that has just started.
	All(dst []state.Lesson) []state.Lesson
}

const (
	lessonsEvery = 100 * time.Millisecond
	lessonsBurst = time.Second / lessonsEvery // turns whose unused allowance is kept
	maxLesson    = 256                        // of one message
	maxSummaries = 1 << 14
)

// teacher is the sending side of lessons; the sender goroutine's own.
type teacher struct {
	seq       uint64 // of the next own lesson
	at        time.Time
	allowance float64
	list      []state.Lesson
	summaries [][]byte // encoded, for all who come soon
	takenAt   time.Time
}

func (g *Gossip) teaches() bool { return g.cfg.Lessons != nil && g.cfg.Version >= tableVersion }

// teach tells every peer what was learned here since the last turn. Where that is
// more than the rate allows a random part is told: they are samples.
func (g *Gossip) teach(now time.Time) {
	o := &g.out.teacher
	o.at = now.Add(jitter(lessonsEvery))
	o.list = g.cfg.Lessons.Drain(o.list[:0])
	turn := float64(g.cfg.LessonRate) * lessonsEvery.Seconds()
	o.allowance = min(o.allowance+turn, turn*float64(lessonsBurst))
	if len(o.list) == 0 {
		// Requests teach: what they change wakes the sender (see learns).
		o.at = now.Add(jitter(lessonsBurst * lessonsEvery))
		o.allowance = turn * float64(lessonsBurst)
		return
	}
	list := o.list
	if most := int(o.allowance); len(list) > most {
		g.metrics.dropped.WithLabelValues("lessons").Add(float64(len(list) - most))
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:most]
	}
	o.allowance -= float64(len(list))
	for len(list) > 0 {
		m := wire.Lessons{Boot: g.boot, Seq: o.seq, Lessons: list[:min(len(list), maxLesson)]}
		g.out.buf = wire.AppendLessons(g.out.buf[:0], &m)
		g.all(wire.KindLessons, g.out.buf)
		o.seq += uint64(len(m.Lessons))
		list = list[len(m.Lessons):]
	}
	clear(o.list)
}

// learns says that a request begins or ends here: lessons may follow.
func (t *teacher) learns(now time.Time) {
	if soon := now.Add(lessonsEvery); soon.Before(t.at) {
		t.at = soon
	}
}

// summarise encodes all that was learned; what it made is given to further peers
// for a while. It is called by the sender goroutine only.
func (g *Gossip) summarise(now time.Time) [][]byte {
	o := &g.out.teacher
	if o.summaries != nil && now.Sub(o.takenAt) <= reuse {
		return o.summaries
	}
	list := g.cfg.Lessons.All(nil)
	if len(list) > maxSummaries {
		g.metrics.dropped.WithLabelValues("lessons").Add(float64(len(list) - maxSummaries))
		list = list[:maxSummaries]
	}
	o.summaries, o.takenAt = [][]byte{}, now
	for len(list) > 0 {
		m := wire.Lessons{Boot: g.boot, Lessons: list[:min(len(list), maxLesson)]}
		o.summaries = append(o.summaries, wire.AppendLessons(nil, &m))
		list = list[len(m.Lessons):]
	}
	return o.summaries
}

// sendSummaries tells those who have just come, within what is left of a turn's
// budget for snapshots; more says that some wait. A router that starts has them
// before the end of its snapshot, and so before it is ready.
func (g *Gossip) sendSummaries(p *peer, now time.Time, budget *int) (more bool) {
	g.mu.Lock()
	due := p.untaught
	g.mu.Unlock()
	if !due {
		return false
	}
	if p.lessons == nil {
		p.lessons = g.summarise(now)
	}
	for len(p.lessons) > 0 {
		if *budget <= 0 || !g.send(p.id, wire.KindLessons, p.lessons[0]) {
			return true
		}
		*budget -= len(p.lessons[0])
		p.lessons = p.lessons[1:]
	}
	p.lessons = nil
	g.mu.Lock()
	p.untaught = false
	g.mu.Unlock()
	return false
}

// lessonWindow bounds how far behind the newest a lesson may come, in lessons.
const lessonWindow = 4096

// taught remembers which lessons of one boot were learned; the apply loop's own.
type taught struct {
	next uint64 // one past the highest sequence seen
	bits [lessonWindow / 64]uint64
}

// learn notes a sequence and reports whether it is new here. One so far behind
// that it may have come before is not.
func (t *taught) learn(seq uint64) bool {
	word, bit := &t.bits[seq%lessonWindow/64], uint64(1)<<(seq%64)
	switch {
	case seq >= t.next:
		if seq-t.next >= lessonWindow {
			clear(t.bits[:])
		} else {
			for s := t.next; s < seq; s++ {
				t.bits[s%lessonWindow/64] &^= 1 << (s % 64)
			}
		}
		t.next = seq + 1
	case t.next-seq > lessonWindow || *word&bit != 0:
		return false
	}
	*word |= bit
	return true
}

// maxTaught bounds the boots whose lessons are told apart.
const maxTaught = 1024

// takeLessons applies a message of lessons and passes it on if any was new.
func (g *Gossip) takeLessons(m *wire.Lessons, in *inbound) {
	if m.Boot == g.boot || m.Boot == 0 || g.cfg.Lessons == nil {
		return
	}
	if m.Seq == 0 { // summaries
		if m.Boot == in.boot {
			for i := range m.Lessons {
				g.cfg.Lessons.Learn(m.Lessons[i])
			}
		}
		return
	}
	t := g.taught[m.Boot]
	if t == nil {
		if len(g.taught) >= maxTaught {
			clear(g.taught)
		}
		t = new(taught)
		g.taught[m.Boot] = t
	}
	news := 0
	for i := range m.Lessons {
		if t.learn(m.Seq + uint64(i)) {
			news++
			g.cfg.Lessons.Learn(m.Lessons[i])
		}
	}
	g.metrics.lessons.add(news, len(m.Lessons)-news)
	if news > 0 {
		g.pass(relayed{in.kind, in.payload, m.Boot, in.from})
	}
}
