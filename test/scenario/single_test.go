package scenario

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// One router and one engine: what the client gets is what the engine said, what
// the engine got is what the client sent, and the counts add up.
func TestOneRouterRelaysChats(t *testing.T) {
	t.Parallel()
	f := func(name string, c harness.Chat) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			harness.InBubble(t, harness.BubbleConfig{Delay: time.Millisecond}, func(t *testing.T, b *harness.Bubble) {
				body := c.Body()
				r := ok(t, b.Do(0, body))
				e, rec := b.Served(r.ID)
				if !bytes.Equal(rec.Body, body) {
					t.Errorf("the engine got %q, the client sent %q", rec.Body, body)
				}
				if r.Replica != e.ID {
					t.Errorf("the client was told of %s", r.Replica)
				}
				u := r.Usage()
				if u == nil || u.PromptTokens != rec.PromptTokens || u.CompletionTokens != 40 {
					t.Errorf("usage %+v, the engine counted %d prompt tokens", u, rec.PromptTokens)
				}
				if r.Text() == "" {
					t.Error("no text")
				}
				if c.Stream && len(r.Events) < 40 {
					t.Errorf("%d events for 40 tokens", len(r.Events))
				}
				again := ok(t, b.Do(0, body))
				if u := again.Usage(); u.PromptTokensDetails.CachedTokens < u.PromptTokens-32 {
					t.Errorf("asked again, %d of %d tokens were cached", u.PromptTokensDetails.CachedTokens, u.PromptTokens)
				}
				b.Idle(time.Second)

				m := metrics(t, b.Router(0))
				if n := m.sum("hearsay_requests_total", "code", "200"); n != 2 {
					t.Errorf("%v requests counted", n)
				}
				if n := m.sum("hearsay_tokens_total", "type", "input"); n != float64(2*u.PromptTokens) {
					t.Errorf("%v input tokens counted, not 2 x %d", n, u.PromptTokens)
				}
				if n := m.sum("hearsay_tokens_total", "type", "output"); n != 80 {
					t.Errorf("%v output tokens counted", n)
				}
				if n := m.sum("hearsay_replica_inflight"); n != 0 {
					t.Errorf("%v in flight", n)
				}
			})
		})
	}
	c := chat(words("one", 600), "Why?", 40)
	f("plain", c)
	f("streamed", streamed(c))
}

type exposition map[string][]sample

type sample struct {
	labels model.Metric
	value  float64
}

// metrics scrapes a router as Prometheus would.
func metrics(t testing.TB, r *harness.Router) exposition {
	t.Helper()
	var text string
	status, err := r.Admin("GET", "/metrics", nil, &text)
	if err != nil || status != 200 {
		t.Fatalf("metrics: %d %v", status, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	out := exposition{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			labels := model.Metric{}
			for _, l := range m.GetLabel() {
				labels[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
			}
			out[name] = append(out[name], sample{labels, m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())})
		}
	}
	return out
}

// sum adds the samples that have these labels.
func (x exposition) sum(name string, labels ...string) (sum float64) {
next:
	for _, s := range x[name] {
		for i := 0; i+1 < len(labels); i += 2 {
			if s.labels[model.LabelName(labels[i])] != model.LabelValue(labels[i+1]) {
				continue next
			}
		}
		sum += s.value
	}
	return sum
}
