package engine

import "time"

// offset bounds how far an engine's wall clock is ahead of this host's, from the
// Date headers of its answers: whole seconds, which some servers renew only once a
// second.
type offset struct{ low, high time.Duration }

const (
	dateStep  = 2 * time.Second
	clockSlip = 50 * time.Millisecond // of two clocks that agree
)

// noteClock takes an answer's Date, come at an instant, into account.
func (p *profile) noteClock(date, at time.Time) {
	o := offset{date.Sub(at), date.Sub(at) + dateStep}
	if p.clockChecked {
		o = offset{max(o.low, p.clock.low), min(o.high, p.clock.high)}
		if o.low > o.high { // somebody set a clock
			o = offset{date.Sub(at), date.Sub(at) + dateStep}
		}
	}
	p.clock, p.clockChecked = o, true
}

// uptime is how long before at a process began that says so by its own wall clock;
// negative when nothing is known of that clock. Where the two clocks may well agree
// they are taken to; else the result may be off by half of what is known.
func (p *profile) uptime(started float64, at time.Time) time.Duration {
	if !p.clockChecked {
		return -1
	}
	ahead := time.Duration(0)
	if o := p.clock; o.low > clockSlip || o.high < -clockSlip {
		ahead = (o.low + o.high) / 2
	}
	const most = 1e10 // seconds; beyond it no time is meant
	if started > most {
		return -1
	}
	began := time.UnixMicro(int64(started * 1e6)).Add(-ahead)
	return max(0, at.Sub(began))
}
