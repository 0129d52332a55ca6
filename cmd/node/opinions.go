package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
)

// opinions asks another router, about once a second, where it would send a prompt
// that was just picked for here, and keeps how far the two are apart. That is what
// sharing is for, measured while it runs. It costs one call of about 20 bytes per
// mark.
type opinions struct {
	judge func(*proxy.Question, state.ReplicaID) (proxy.Opinion, error)
	call  func(ctx context.Context, to state.RouterID, method string, payload []byte) ([]byte, error)
	peers func() []state.RouterID // with a stream

	questions chan proxy.Question
	regret    prometheus.Histogram
	results   *prometheus.CounterVec

	mu   sync.Mutex
	last []opinion // guarded by mu; a ring of the latest maxOpinions
	next int       // guarded by mu
}

// opinion is how one question came out.
type opinion struct {
	same   bool
	regret time.Duration // by the other's scores
}

const (
	callPick    = "pick" // method of calls: judge a prompt
	maxOpinions = 512
	askFor      = 2 * time.Second
	// maxMarks bounds the marks of a question; a longer prompt is asked about up to
	// there.
	maxMarks  = 1024
	markBytes = 20
)

func newOpinions(reg prometheus.Registerer) *opinions {
	o := &opinions{
		questions: make(chan proxy.Question, 1),
		regret: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "hearsay_pick_regret_seconds",
			Help:    "How much worse another router scores this router's pick than its own, sampled about once a second.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hearsay_pick_opinions_total",
			Help: "Picks another router was asked about: it would take the same replica, another one, can't take that one, or did not answer.",
		}, []string{"result"}),
	}
	for _, r := range []string{opinionSame, opinionOther, opinionExcluded, opinionFailed} {
		o.results.WithLabelValues(r)
	}
	reg.MustRegister(o.regret, o.results)
	return o
}

// Results of a question.
const (
	opinionSame     = "same"
	opinionOther    = "other"
	opinionExcluded = "excluded"
	opinionFailed   = "failed"
)

// sample takes a question; one that waits is not replaced.
func (o *opinions) sample(q proxy.Question) {
	select {
	case o.questions <- q:
	default:
	}
}

// Run asks until ctx ends.
func (o *opinions) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-o.questions:
			// Not at once, when the prompt's own dispatch is what the other has not
			// heard of yet, but at an instant like any other.
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(rand.N(time.Second)):
			}
			o.ask(ctx, &q)
		}
	}
}

// ask compares both routers' picks of now: of the same instant but for the call's
// way.
func (o *opinions) ask(ctx context.Context, q *proxy.Question) {
	peers := o.peers()
	if len(peers) == 0 {
		return
	}
	q.Marks = q.Marks[:min(len(q.Marks), maxMarks)]
	own, err := o.judge(q, "")
	if err != nil {
		return // nothing to pick from
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	b, err := o.call(ctx, peers[rand.IntN(len(peers))], callPick, appendQuestion(nil, q, own.Best))
	var theirs proxy.Opinion
	if err == nil {
		err = json.Unmarshal(b, &theirs)
	}
	switch regret := time.Duration((theirs.Score - theirs.BestScore) * float64(time.Millisecond)); {
	case err != nil:
		o.results.WithLabelValues(opinionFailed).Inc()
	case !theirs.Eligible:
		o.results.WithLabelValues(opinionExcluded).Inc()
	default:
		same := theirs.Best == own.Best
		o.results.WithLabelValues(map[bool]string{true: opinionSame, false: opinionOther}[same]).Inc()
		o.regret.Observe(regret.Seconds())
		o.keep(opinion{same: same, regret: regret})
	}
}

func (o *opinions) keep(x opinion) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) < maxOpinions {
		o.last = append(o.last, x)
		return
	}
	o.last[o.next] = x
	o.next = (o.next + 1) % maxOpinions
}

// Figures adds how the latest picks were judged.
func (o *opinions) Figures(f *console.Figures) {
	n, same, p95 := o.summary()
	f.Opinions, f.Alike, f.RegretP95MS = n, same, float64(p95)/float64(time.Millisecond)
	if n == 0 {
		f.RegretP95MS = -1
	}
}

// summary is the share of the latest picks that the others would make alike, and
// their 95th percentile of regret. n = 0: none was asked about yet.
func (o *opinions) summary() (n int, same float64, p95 time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n = len(o.last); n == 0 {
		return 0, 0, 0
	}
	regrets := make([]time.Duration, 0, n)
	for _, x := range o.last {
		if x.same {
			same++
		}
		regrets = append(regrets, x.regret)
	}
	slices.Sort(regrets)
	return n, same / float64(n), regrets[int(math.Ceil(0.95*float64(n)))-1]
}

// answer judges another router's question.
func (o *opinions) answer(payload []byte) ([]byte, error) {
	q, id, err := parseQuestion(payload)
	if err != nil {
		return nil, err
	}
	x, err := o.judge(&q, id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(x)
}

// appendQuestion encodes a question: lengths and numbers as varints, marks as
// fixed 20 bytes.
func appendQuestion(b []byte, q *proxy.Question, id state.ReplicaID) []byte {
	b = appendText(b, q.Pool)
	b = appendText(b, string(id))
	b = binary.AppendUvarint(b, uint64(max(0, q.MaxTokens)))
	b = appendMark(b, q.Total)
	for _, m := range q.Marks {
		b = appendMark(b, m)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendMark(b []byte, m prefix.Mark) []byte {
	b = binary.LittleEndian.AppendUint64(b, m.Hash)
	b = binary.LittleEndian.AppendUint32(b, m.ASCII)
	b = binary.LittleEndian.AppendUint32(b, m.Wide)
	return binary.LittleEndian.AppendUint32(b, m.Exact)
}

var errQuestion = errors.New("malformed question")

// parseQuestion decodes what appendQuestion made. It is total.
func parseQuestion(b []byte) (q proxy.Question, id state.ReplicaID, err error) {
	text := func() string {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			err = errQuestion
			return ""
		}
		s := string(b[w : w+int(n)])
		b = b[w+int(n):]
		return s
	}
	if q.Pool = text(); err == nil {
		id = state.ReplicaID(text())
	}
	if err != nil {
		return q, id, err
	}
	n, w := binary.Uvarint(b)
	if w <= 0 || n > 1<<31-1 || (len(b)-w)%markBytes != 0 || len(b)-w < markBytes {
		return q, id, errQuestion
	}
	q.MaxTokens, b = int(n), b[w:]
	marks := len(b)/markBytes - 1
	if marks > maxMarks {
		return q, id, fmt.Errorf("%w: %d marks", errQuestion, marks)
	}
	q.Total, b = parseMark(b), b[markBytes:]
	for range marks {
		q.Marks = append(q.Marks, parseMark(b))
		b = b[markBytes:]
	}
	return q, id, nil
}

func parseMark(b []byte) prefix.Mark {
	return prefix.Mark{
		Hash: binary.LittleEndian.Uint64(b), ASCII: binary.LittleEndian.Uint32(b[8:]),
		Wide: binary.LittleEndian.Uint32(b[12:]), Exact: binary.LittleEndian.Uint32(b[16:]),
	}
}
