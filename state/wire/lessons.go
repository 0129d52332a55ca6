package wire

import (
	"github.com/hearsay-llm/hearsay/state"
)

// Lessons is what one router learned, in one message. Lesson i has the sequence
// Seq+i of its origin's boot; a message whose Seq is 0 holds summaries, which have
// none and are for the receiver alone.
type Lessons struct {
	Boot    state.BootID
	Seq     uint64
	Lessons []state.Lesson
}

// AppendLessons appends the message. Values past state.MaxLessonValues do not
// travel.
func AppendLessons(dst []byte, m *Lessons) []byte {
	e := encoder{b: dst}
	e.fixed(uint64(m.Boot))
	e.uint(m.Seq)
	e.uint(uint64(len(m.Lessons)))
	for i := range m.Lessons {
		l := &m.Lessons[i]
		e.item(func() {
			e.byte(byte(l.Kind))
			e.str(l.Subject)
			e.str(l.Pool)
			values := l.Values[:min(len(l.Values), state.MaxLessonValues)]
			e.uint(uint64(len(values)))
			for _, v := range values {
				e.float32(v)
			}
		})
	}
	return e.b
}

// minLesson is the least number of bytes of one lesson.
const minLesson = 5

// Lessons reads what AppendLessons wrote, of kinds unknown here, too.
func (d *Decoder) Lessons(b []byte) (m Lessons, err error) {
	r := reader{dec: d, b: b}
	m.Boot = state.BootID(r.fixed())
	m.Seq = r.uint()
	n := r.list()
	m.Lessons = make([]state.Lesson, 0, min(n, 1+len(r.b)/minLesson))
	for range n {
		var l state.Lesson
		r.item(func() {
			l.Kind = state.LessonKind(r.byte())
			l.Subject = r.str()
			l.Pool = r.str()
			k := min(r.list(), state.MaxLessonValues)
			if k > 0 {
				l.Values = make([]float32, k)
			}
			for i := range l.Values {
				l.Values[i] = r.float32()
			}
		})
		if r.err != nil {
			return Lessons{}, r.err
		}
		m.Lessons = append(m.Lessons, l)
	}
	return m, r.err
}
