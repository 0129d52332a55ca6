package wire

import (
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	loadFull  = 1 << iota
	loadFacts // the index of facts follows: it is another than before
)

// AppendLoads appends load messages of any number of origins in one. Sent travels
// in whole microseconds.
func (t *Table) AppendLoads(dst []byte, list []Rows) []byte {
	e := encoder{b: t.begin(dst), told: &t.names}
	e.uint(uint64(len(list)))
	for i := range list {
		m := &list[i]
		was := t.base(m.Boot)
		now := loadBase{m.Seq, m.FactsIndex, m.Sent.Truncate(time.Microsecond)}
		e.item(func() {
			e.str(string(m.Router))
			e.boot(m.Boot)
			e.int(int64(now.seq - was.seq))
			e.int(int64((now.sent - was.sent) / time.Microsecond))
			var flags byte
			if m.Full {
				flags |= loadFull
			}
			if now.facts != was.facts {
				flags |= loadFacts
			}
			e.byte(flags)
			if flags&loadFacts != 0 {
				e.uint(now.facts)
			}
			e.uint(uint64(len(m.Rows.Rows)))
			for i := range m.Rows.Rows {
				e.item(func() { e.row(&m.Rows.Rows[i]) })
			}
			e.waiting(m)
		})
		t.setBase(m.Boot, now)
	}
	t.next()
	return e.b
}

// row leaves out zeros at the end.
func (e *encoder) row(row *state.Row) {
	e.str(string(row.Replica))
	figures := [4]int64{row.InFlight, row.Prefill, row.UncachedTokens, int64(row.Failures)}
	n := len(figures)
	for n > 0 && figures[n-1] <= 0 {
		n--
	}
	for _, f := range figures[:n] {
		e.count(f)
	}
}

// Loads reads what AppendLoads wrote; t is the receiver's table of the stream. After
// any error but ErrMalformed of a message that does not use the table the sender
// has to start over.
func (d *Decoder) Loads(t *Table, b []byte) ([]Rows, error) {
	r := reader{dec: d, b: b}
	r.follow(t)
	defer r.settle(t)
	n := r.list()
	list := make([]Rows, 0, min(n, 1+len(r.b)/8))
	for range n {
		var m Rows
		r.item(func() { r.load(&m, t) })
		if r.err != nil {
			return nil, r.err
		}
		list = append(list, m)
	}
	return list, r.err
}

func (r *reader) load(m *Rows, t *Table) {
	m.Router = state.RouterID(r.str())
	m.Boot = r.boot()
	was := t.base(m.Boot)
	m.Seq = was.seq + uint64(r.int())
	m.Sent = was.sent + time.Duration(r.limitInt(math.MaxInt64/int64(2*time.Microsecond)))*time.Microsecond
	flags := r.byte()
	m.Full = flags&loadFull != 0
	m.FactsIndex = was.facts
	if flags&loadFacts != 0 {
		m.FactsIndex = r.uint()
	}
	n := r.list()
	m.Rows.Rows = make([]state.Row, 0, min(n, 1+len(r.b)/3))
	for range n {
		var row state.Row
		r.item(func() { r.row(&row) })
		if r.err != nil {
			return
		}
		m.Rows.Rows = append(m.Rows.Rows, row)
	}
	if r.waiting(m); r.err != nil {
		return
	}
	if len(t.loads) >= 2*maxTable {
		r.fail("table too large")
		return
	}
	t.setBase(m.Boot, loadBase{m.Seq, m.FactsIndex, m.Sent})
}

func (r *reader) row(row *state.Row) {
	row.Replica = state.ReplicaID(r.str())
	for _, f := range []*int64{&row.InFlight, &row.Prefill, &row.UncachedTokens} {
		if r.more() {
			*f = r.count()
		}
	}
	if r.more() {
		row.Failures = uint32(r.limit(math.MaxUint32))
	}
}

// limitInt is a number of at most most in size.
func (r *reader) limitInt(most int64) int64 {
	v := r.int()
	if v > most || v < -most {
		r.fail("number out of range")
		return 0
	}
	return v
}

// On makes the batch one for a stream: its names and differences go on from t's.
// Call it on an empty batch, and Append before anything else uses t; where the
// message is then not sent, Reset t.
func (b *OpBatch) On(t *Table) {
	b.table = t
	b.head = t.begin(b.head[:0])
	b.e.told, b.prev = &t.names, t.ops
}

// AppendOn appends the batch begun by On, as Append does.
func (b *OpBatch) AppendOn(dst []byte, from, next uint64) []byte {
	dst = append(dst, b.head...)
	e := encoder{b: dst}
	e.uint(from)
	e.uint(next - from)
	e.uint(uint64(b.n))
	b.table.ops = b.prev
	b.table.next()
	return append(e.b, b.e.b...)
}

// OpsOn reads what AppendOn wrote; t is the receiver's table of the stream.
func (d *Decoder) OpsOn(t *Table, b []byte) (Ops, error) {
	r := reader{dec: d, b: b}
	r.follow(t)
	defer r.settle(t)
	var m Ops
	m.From = r.uint()
	m.Next = m.From + r.uint()
	prev := t.ops
	r.ops(&m, &prev)
	if r.err != nil {
		return Ops{}, r.err
	}
	t.ops = prev
	return m, nil
}
