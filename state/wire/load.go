package wire

import (
	"math"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Rows is a router's load message and the moment on its own clock it was sent.
type Rows struct {
	state.Rows
	Sent time.Duration // since the router's boot began
}

// AppendRows appends the message. Negative loads travel as zero.
func AppendRows(dst []byte, m *Rows) []byte {
	e := encoder{b: dst}
	e.str(string(m.Router))
	e.fixed(uint64(m.Boot))
	e.uint(m.Seq)
	e.bool(m.Full)
	e.uint(m.FactsIndex)
	e.duration(m.Sent)
	e.uint(uint64(len(m.Rows.Rows)))
	for i := range m.Rows.Rows {
		row := &m.Rows.Rows[i]
		e.item(func() {
			e.str(string(row.Replica))
			e.count(row.InFlight)
			e.count(row.Prefill)
			e.count(row.UncachedTokens)
			e.uint(uint64(row.Failures))
		})
	}
	e.waiting(m)
	return e.b
}

// waiting writes what waits and what was asked. Both are left out where there is
// neither.
func (e *encoder) waiting(m *Rows) {
	if len(m.Backlogs) == 0 && len(m.Traffic) == 0 {
		return
	}
	e.backlogs(m.Backlogs)
	e.traffic(m.Traffic)
}

// waiting reads what encoder.waiting wrote.
func (r *reader) waiting(m *Rows) {
	m.Backlogs = r.backlogs()
	m.Traffic = r.traffic()
}

func (e *encoder) backlogs(list []state.Backlog) {
	list = list[:min(len(list), state.MaxBacklogs)]
	e.uint(uint64(len(list)))
	for i := range list {
		b := &list[i]
		e.item(func() {
			e.bytes([]byte(b.Pool[:min(len(b.Pool), maxString)]))
			e.count(b.Requests)
			e.count(b.Tokens)
		})
	}
}

// backlogs reads what encoder.backlogs wrote.
func (r *reader) backlogs() (list []state.Backlog) {
	if !r.more() {
		return nil
	}
	n := r.list()
	if n > state.MaxBacklogs {
		r.fail("too many backlogs")
		return nil
	}
	for range n {
		var b state.Backlog
		r.item(func() {
			pool := r.bytes()
			if len(pool) > maxString {
				r.fail("pool")
				return
			}
			b.Pool = r.dec.intern(pool)
			b.Requests, b.Tokens = r.count(), r.count()
		})
		if r.err != nil {
			return nil
		}
		list = append(list, b)
	}
	return list
}

// Rows reads a load message.
func (d *Decoder) Rows(b []byte) (m Rows, err error) {
	r := reader{dec: d, b: b}
	m.Router = state.RouterID(r.str())
	m.Boot = state.BootID(r.fixed())
	m.Seq = r.uint()
	m.Full = r.bool()
	m.FactsIndex = r.uint()
	m.Sent = r.duration()
	n := r.list()
	m.Rows.Rows = make([]state.Row, 0, min(n, 1+len(r.b)/6))
	for range n {
		var row state.Row
		r.item(func() {
			row.Replica = state.ReplicaID(r.str())
			row.InFlight = r.count()
			row.Prefill = r.count()
			row.UncachedTokens = r.count()
			row.Failures = uint32(r.limit(math.MaxUint32))
		})
		if r.err != nil {
			return Rows{}, r.err
		}
		m.Rows.Rows = append(m.Rows.Rows, row)
	}
	if r.waiting(&m); r.err != nil {
		return Rows{}, r.err
	}
	return m, nil
}

// maxAdapters bounds each list of adapters in a reading.
const maxAdapters = state.MaxAdapters

// adapters writes the names of adapters. There may be many, told once in a while: they
// are not remembered as ids are.
func (e *encoder) adapters(names []string) {
	names = names[:min(len(names), maxAdapters)]
	e.uint(uint64(len(names)))
	for _, n := range names {
		e.bytes([]byte(n[:min(len(n), maxString)]))
	}
}

// adapters reads what encoder.adapters wrote; nil for none.
func (r *reader) adapters() (names []string) {
	n := r.list()
	if n > maxAdapters {
		r.fail("too many adapters")
		return nil
	}
	for range n {
		b := r.bytes()
		if r.err != nil || len(b) > maxString {
			r.fail("adapter")
			return nil
		}
		names = append(names, string(b))
	}
	return names
}

// lora writes what is known of adapters beside those that run; of engines that have none
// it is left out. The list itself is written where it is there.
func (e *encoder) lora(x *state.Reading) {
	e.count(int64(x.AdapterSlots))
	e.adapters(x.AdaptersWaiting)
	e.fixed(x.AdaptersSum)
	e.adapters(x.Adapters)
}

// lora reads what encoder.lora wrote.
func (r *reader) lora(x *state.Reading) {
	x.AdapterSlots = int(min(r.count(), maxAdapters))
	x.AdaptersWaiting = r.adapters()
	x.AdaptersSum = r.fixed()
	x.Adapters = r.adapters()
}

// maxServed bounds the served models that one reading names. They are for people.
const maxServed = 8

// served reads the names of models that an engine serves instead of its pool's.
func (r *reader) served() (models []string) {
	n := r.uint()
	if n > maxServed {
		r.fail("too many models")
		return nil
	}
	for range n {
		m := r.bytes()
		if r.err != nil || len(m) > maxString {
			r.fail("model")
			return nil
		}
		models = append(models, string(m))
	}
	return models
}

const (
	readingOK = 1 << iota
	readingLoading
	readingRefused
	readingAnswered
)

// AppendReadings appends readings as their readers took them.
func AppendReadings(dst []byte, list []state.Reading) []byte {
	e := encoder{b: dst}
	e.uint(uint64(len(list)))
	for i := range list {
		x := &list[i]
		e.item(func() {
			e.str(string(x.Replica))
			e.str(string(x.Reader))
			e.boot(x.At.Boot)
			e.duration(x.At.At)
			var flags byte
			if x.OK {
				flags |= readingOK
			}
			if x.Loading {
				flags |= readingLoading
			}
			if x.Refused {
				flags |= readingRefused
			}
			if x.Answered {
				flags |= readingAnswered
			}
			e.byte(flags)
			e.str(x.Err)
			e.str(string(x.Kind))
			e.str(x.Version)
			for _, f := range []float64{
				x.Started, x.Running, x.Waiting, x.KVUsage, x.Capacity, x.WaitingUncached, x.Queries, x.Hits,
			} {
				e.float(f)
			}
			adapters := x.AdaptersRunning[:min(len(x.AdaptersRunning), maxAdapters)]
			e.uint(uint64(len(adapters)))
			for _, a := range adapters {
				e.str(a)
			}
			e.duration(x.Uptime)
			for _, f := range []float64{x.BlockSize, x.Slots, x.Context, x.Processed} {
				e.float(f)
			}
			lora := x.AdaptersSum != 0 || x.AdapterSlots > 0
			if x.WrongModel != "" || lora {
				e.str(x.WrongModel)
				models := x.Models[:min(len(x.Models), maxServed)]
				if x.WrongModel == "" {
					models = nil
				}
				e.uint(uint64(len(models)))
				for _, m := range models {
					e.bytes([]byte(m[:min(len(m), maxString)]))
				}
			}
			if lora {
				e.lora(x)
			}
		})
	}
	return e.b
}

// Readings reads what AppendReadings wrote.
func (d *Decoder) Readings(b []byte) ([]state.Reading, error) {
	r := reader{dec: d, b: b}
	n := r.list()
	list := make([]state.Reading, 0, min(n, 1+len(r.b)/24))
	for range n {
		var x state.Reading
		r.item(func() {
			x.Replica = state.ReplicaID(r.str())
			x.Reader = state.RouterID(r.str())
			x.At.Boot = r.boot()
			x.At.At = r.duration()
			flags := r.byte()
			x.OK, x.Loading, x.Refused = flags&readingOK != 0, flags&readingLoading != 0, flags&readingRefused != 0
			x.Answered = flags&readingAnswered != 0
			x.Err = r.str()
			x.Kind = state.EngineKind(r.str())
			x.Version = r.str()
			for _, f := range []*float64{
				&x.Started, &x.Running, &x.Waiting, &x.KVUsage, &x.Capacity, &x.WaitingUncached, &x.Queries, &x.Hits,
			} {
				*f = r.float()
			}
			k := r.list()
			if k > maxAdapters {
				r.fail("too many adapters")
			}
			for range k {
				x.AdaptersRunning = append(x.AdaptersRunning, r.str())
				if r.err != nil {
					return
				}
			}
			x.Uptime, x.BlockSize, x.Slots, x.Context, x.Processed = -1, -1, -1, -1, -1
			if len(r.b) == 0 {
				return // of a release that ends here
			}
			x.Uptime = r.duration()
			for _, f := range []*float64{&x.BlockSize, &x.Slots, &x.Context, &x.Processed} {
				*f = r.float()
			}
			if len(r.b) > 0 {
				x.WrongModel = r.str()
			}
			if len(r.b) > 0 {
				x.Models = r.served()
			}
			if len(r.b) > 0 {
				r.lora(&x)
			}
		})
		if r.err != nil {
			return nil, r.err
		}
		list = append(list, x)
	}
	return list, r.err
}
