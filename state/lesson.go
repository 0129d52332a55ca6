package state

// Lesson is a small thing a router learned that makes the estimates of other routers
// better: what one request told of a replica's speed, a model's bytes per token or a
// pool's outputs, or the sum of what it has learned of one of them. A lesson of a
// request adds to what the receiver knows; a summary serves only a receiver that
// knows less.
type Lesson struct {
	Kind    LessonKind
	Subject string    // what it is about: a ReplicaID, a model as its engine names it, or a pool's name
	Pool    string    // of a replica; else empty
	Values  []float32 // by Kind; at most MaxLessonValues
}

// LessonKind says what a lesson's values mean. Kinds a release does not know are
// carried and ignored. Numbers are never given twice.
type LessonKind uint8

// Kinds of lessons. Those of one request:
const (
	// LessonSpeed, of a replica: prompt tokens, uncached tokens, tokens queued before
	// it, decode streams beside it, TTFT in ms, mean inter-token time in ms (0: not
	// observed), streams meanwhile.
	LessonSpeed LessonKind = 1
	// LessonTokens, of a model: ASCII bytes, other bytes, exact tokens, tokens reported.
	LessonTokens LessonKind = 2
	// LessonOutput, of a pool: the client's bound (0: none), output tokens.
	LessonOutput LessonKind = 3
)

// Summaries, for a router that has just started:
const (
	// LessonParams, of a replica: rate in tokens/s, fixed ms, slowdown per stream,
	// quadratic ms, ITL ms, ITL ms per stream, mean uncached tokens, samples behind
	// them.
	LessonParams LessonKind = 16
	// LessonRatio, of a model: ASCII bytes per token, other bytes per token, samples.
	LessonRatio LessonKind = 17
	// LessonOutputs, of a pool: mean output tokens by class of bound; 0: none seen.
	LessonOutputs LessonKind = 18
)

// MaxLessonValues bounds a lesson's values.
const MaxLessonValues = 16

// Summary reports whether the lesson is a sum of many.
func (k LessonKind) Summary() bool { return k >= LessonParams }
