package proxy

import "time"

// limitSlack is how much too early a connection's deadline may lie.
const limitSlack = 2 * time.Second

// limit is one of a connection's deadlines as its system has it. A stream's moves with
// each piece, and to move it takes longer than to read a piece's head. So one that lies
// somewhat too early is left where it is: who finds that it passed before its time sets it
// anew and goes on, which is rare. Nothing ends early and nothing late by that.
type limit struct {
	at time.Time // zero: there is none
}

// serves reports whether nothing has to be set for a limit at that time, zero for none.
func (l *limit) serves(by time.Time) bool {
	if by.IsZero() || l.at.IsZero() {
		return by.IsZero() && l.at.IsZero()
	}
	d := by.Sub(l.at)
	return d >= 0 && d < limitSlack
}

// early reports whether err says only that the limit lay too early: then it has to be set.
func (l *limit) early(err error, by time.Time) bool {
	if err == nil || !timedOut(err) || !l.at.Before(by) {
		return false
	}
	l.at = time.Time{}
	return true
}
