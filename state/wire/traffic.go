package wire

import "github.com/hearsay-llm/hearsay/state"

// alwaysCounted is how many counts travel whatever they are; those behind them are left
// out where none is there any more.
const alwaysCounted = 8

// traffic is left out where nothing was asked: releases that know nothing of it end
// before it, and those that read it find nothing there.
func (e *encoder) traffic(list []state.Traffic) {
	if len(list) == 0 {
		return
	}
	list = list[:min(len(list), state.MaxTraffics)]
	e.uint(uint64(len(list)))
	for i := range list {
		t := &list[i]
		e.item(func() {
			e.bytes([]byte(t.Pool[:min(len(t.Pool), maxString)]))
			list := t.Counts()
			most := len(list)
			for most > alwaysCounted && *list[most-1] == 0 {
				most--
			}
			for _, n := range list[:most] {
				e.count(*n)
			}
		})
	}
}

// traffic reads what encoder.traffic wrote. Counts that a sender does not know are 0.
func (r *reader) traffic() (list []state.Traffic) {
	if !r.more() {
		return nil
	}
	n := r.list()
	if n > state.MaxTraffics {
		r.fail("too many traffics")
		return nil
	}
	for range n {
		var t state.Traffic
		r.item(func() {
			pool := r.bytes()
			if len(pool) > maxString {
				r.fail("pool")
				return
			}
			t.Pool = r.dec.intern(pool)
			for _, n := range t.Counts() {
				if r.more() {
					*n = r.count()
				}
			}
		})
		if r.err != nil {
			return nil
		}
		list = append(list, t)
	}
	return list
}
