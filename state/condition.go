package state

import "time"

// Condition is the one word that says most about a replica, as this router sees it:
// the same in metrics, in the admin API and on the command line. Picks do not read
// it; they know more (routing's filter).
type Condition string

// Conditions of a replica, by precedence: the first one that holds is its condition.
const (
	Draining    Condition = "draining"
	Unreachable Condition = "unreachable" // before ejected, which follows from it and tells less
	HalfOpen    Condition = "half_open"
	Ejected     Condition = "ejected"
	Unread      Condition = "unread"
	Loading     Condition = "loading"
	Unreadable  Condition = "unreadable"
	WrongModel  Condition = "wrong_model"
	Failing     Condition = "failing"
	Warming     Condition = "warming"
	Busy        Condition = "busy"
	SlowStart   Condition = "slow_start"
	Ready       Condition = "ready"
)

// meanings are what the conditions mean, for people, the best one first.
var meanings = []struct {
	condition Condition
	meaning   string
}{
	{Ready, "takes requests"},
	{SlowStart, "takes requests; new or recovered, so it counts as slower than it is for its first seconds"},
	{Busy, "answered 429 or 503: takes requests, but others are preferred for a moment"},
	{Warming, "has an empty cache and is sent the pool's hottest prefixes: gets requests only when no other can take them; 30 s at most"},
	{Failing, "failed as often as leads to ejection, but `breaker.max_ejected` of its pool is reached: takes requests, but others are preferred"},
	{HalfOpen, "was ejected; one trial request at a time may go there, and one good answer ends the ejection"},
	{Ejected, "failed too often: gets no requests for a while"},
	{Draining, "gets no new requests; those running there end"},
	{Loading, "answers that it is not ready: gets requests only when no other is ready"},
	{Unread, "has no reading yet, or none of the last seconds"},
	{Unreachable, "does not answer when it is read, and has given no first token since"},
	{Unreadable, "answers, but its load can't be read: takes requests, and is picked by what the routers themselves have running there"},
	{WrongModel, "does not serve its pool's model: gets requests only when no replica of the pool does"},
}

// Conditions lists all there are, the best one first.
func Conditions() []Condition {
	list := make([]Condition, 0, len(meanings))
	for _, m := range meanings {
		list = append(list, m.condition)
	}
	return list
}

// Meaning says what a condition means, in a line of Markdown.
func (c Condition) Meaning() string {
	for _, m := range meanings {
		if m.condition == c {
			return m.meaning
		}
	}
	return ""
}

// TakesRequests reports whether a replica in this condition is in ordinary traffic.
func (c Condition) TakesRequests() bool {
	return c == Ready || c == SlowStart || c == Busy
}

// Condition is the replica's condition at now. spec is its pool's, w its weight.
func (r *ReplicaView) Condition(spec *PoolSpec, w Weight, now time.Time) Condition {
	sensed := r.Sensed(spec, now)
	switch {
	case r.Draining:
		return Draining
	case sensed == Unreachable:
		return Unreachable
	case w.Trial:
		return HalfOpen
	case w.Ejected:
		return Ejected
	case sensed != Ready:
		return sensed
	}
	switch {
	case w.Reason == ReasonEjectionLimit:
		return Failing
	case w.Warms(now):
		return Warming
	case w.BusyUntil.After(now):
		return Busy
	case w.Slow < 1:
		return SlowStart
	}
	return Ready
}

// Sensed is the part of the condition that readings tell: Ready where they find no
// fault. It also holds of a replica that is ejected or draining.
func (r *ReplicaView) Sensed(spec *PoolSpec, now time.Time) Condition {
	x, down := &r.Reading, r.DownSince
	if x.Refused {
		down = r.ReadingAt
	}
	switch {
	case r.ReadingAt.IsZero():
		return Unread
	case x.Loading:
		return Loading
	case x.OK && now.Sub(r.ReadingAt) > ReadingUseful:
		return Unread
	case x.OK && r.OfWrongModel(spec, now):
		return WrongModel
	case x.OK:
		return Ready
	case x.Answered, r.Cell.LastFirstToken().After(down):
		return Unreadable
	}
	return Unreachable
}

// wrongModelUseful is the age past which it is no longer believed of an engine that
// it serves another model.
const wrongModelUseful = 10 * time.Second

// OfWrongModel reports whether the engine is known not to serve the model of its
// pool, whose spec is given: it would answer 404.
func (r *ReplicaView) OfWrongModel(spec *PoolSpec, now time.Time) bool {
	return r.Reading.WrongModel != "" && r.Reading.WrongModel == spec.UpstreamName() && now.Sub(r.ReadingAt) < wrongModelUseful
}
