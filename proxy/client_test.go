package proxy

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

// gated gives a rig these keys; the secret of each is its name.
func gated(list ...gateway.Key) option {
	for i := range list {
		list[i].Digest = gateway.DigestOf([]byte(list[i].Name))
	}
	return func(cfg *Config, _ *poolSpec) { cfg.Gate = gateway.New(gateway.Config{Keys: list}) }
}

func bearer(key string) string { return "Authorization: Bearer " + key }

// odd panics when it is told to: as a reporter, a picker, and where connections are made.
type odd struct {
	atomic.Bool
	reports
}

func (o *odd) now() {
	if o.Swap(false) {
		panic("odd")
	}
}

func (o *odd) Report(id state.ReplicaID, out Outcome, wait time.Duration, at time.Time) {
	o.now()
	o.reports.Report(id, out, wait, at)
}

type oddPicker struct {
	inOrder
	*odd
}

func (p oddPicker) Pick(c *routing.Choice, req *routing.Request, v *state.View, now time.Time) error {
	p.now()
	return p.inOrder.Pick(c, req, v, now)
}

// A panic wherever a request is takes no place with it.
func TestPlacesOutlivePanics(t *testing.T) {
	for name, at := range map[string]func(cfg *Config, o *odd){
		"a pick": func(cfg *Config, o *odd) { cfg.Core.Picker = oddPicker{odd: o} },
		"a dial": func(cfg *Config, o *odd) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				o.now()
				return dial(ctx, addr)
			}
		},
		"the books": func(cfg *Config, o *odd) { cfg.Core.Reporter = o },
	} {
		for _, body := range []string{ask, askStream} {
			o := &odd{}
			g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
				if strings.Contains(string(in.body), `"stream":true`) {
					return streams(role, word, done)(nil, in)
				}
				return in.write(jsonAnswer(200, good)) == nil
			}), func(cfg *Config, _ *poolSpec) {
				at(cfg, o)
				cfg.Logger = cfg.Logger.Level(7)
			}, gated(gateway.Key{Name: "k", MaxParallel: 1}))
			o.Store(true)
			c := g.conn()
			_, err := c.Write([]byte(post("/v1/chat/completions", body, bearer("k"))))
			must(t, err)
			until(t, name+": it panics", func() bool { return g.metric("hearsay_panics_total") == 1 })
			until(t, name+": the place is free", func() bool { return g.metric("hearsay_key_inflight", "key", "k") == 0 })
			if r := g.chat(body, bearer("k")); r.StatusCode != 200 {
				t.Errorf("%s: afterwards: %d %q", name, r.StatusCode, r.body)
			}
			_ = c.Close()
			g.stop()
		}
	}
}

// A panic while the client of a stream hears comments alone.
func TestPlacesOutlivePanicsBehindHeartbeats(t *testing.T) {
	o := &odd{}
	g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
		<-time.After(50 * time.Millisecond)
		o.Store(true)
		return false // hangs up without a word: the books of the attempt are closed
	}, says(jsonAnswer(200, good))), func(cfg *Config, spec *poolSpec) {
		cfg.Core.Reporter, spec.Heartbeat, cfg.Logger = o, 10*time.Millisecond, cfg.Logger.Level(7)
	}, gated(gateway.Key{Name: "k", MaxParallel: 1}))
	if r := g.chat(askStream, bearer("k")); r.StatusCode != 200 || r.err == nil {
		t.Errorf("%d %q %v", r.StatusCode, r.body, r.err)
	}
	until(t, "the place is free", func() bool { return g.metric("hearsay_key_inflight", "key", "k") == 0 })
	if n := g.metric("hearsay_panics_total"); n != 1 {
		t.Errorf("%v panics", n)
	}
}

// What a request claims, what its key allows, and what the engine is told.
func TestPriorities(t *testing.T) {
	keys := []gateway.Key{
		{Name: "top", Cap: state.BandHigh, Tenant: "t"}, {Name: "plain", Tenant: "t"}, {Name: "batch", Cap: state.BandLow, Tenant: "u"},
	}
	for kind, gate := range map[state.EngineKind]option{
		state.EngineVLLM: gated(keys...), state.EngineSGLang: gated(keys...), state.EngineOpenAI: gated(keys...), state.EngineAuto: func(*Config, *poolSpec) {},
	} {
		var last atomic.Pointer[string]
		g := newRig(t, loopback{t}, handlers(func(_ *engine, in *incoming) bool {
			body := string(in.body)
			last.Store(&body)
			return in.write(jsonAnswer(200, good)) == nil
		}), gate, func(_ *Config, spec *poolSpec) {
			if spec.Engine = kind; kind == state.EngineAuto {
				spec.Engine = state.EngineVLLM // and nobody has keys
			}
		})
		f := func(key, header, field, band, sent string) {
			t.Helper()
			body := func(field string) string { return strings.Replace(ask, `"messages"`, field+`"messages"`, 1) }
			fields := []string{"X-Request-Id: r", bearer(key)}
			if header != "" {
				fields = append(fields, "x-priority: "+header)
			}
			r := g.chat(body(field), fields...)
			picks := g.srv.Picks().Latest(1)
			if r.StatusCode != 200 || picks[0].Band != band {
				t.Errorf("%s: %s claims %q and %s: %d, %+v, want %s", kind, key, header, field, r.StatusCode, picks, band)
			}
			if sent == "" {
				sent = field
			}
			if got := *last.Load(); got != body(sent) {
				t.Errorf("%s: %s sends %s, the engine gets %s", kind, key, field, got)
			}
		}
		const none = ""
		switch kind {
		case state.EngineVLLM:
			f("top", none, none, "normal", "")
			f("top", "high", none, "high", "")
			f("top", "HIGH", none, "high", "")
			f("top", "low", none, "low", "")
			f("top", none, `"priority":-9,`, "high", "")
			f("top", none, `"priority":9,`, "low", "")
			f("top", "high", `"priority":9,`, "high", "")
			f("top", "low", `"priority":-9,`, "low", "")
			f("top", none, `"priority":0,"service_tier":"priority",`, "normal", "")
			f("top", none, `"service_tier":"priority",`, "high", "")
			f("top", none, `"service_tier":"flex",`, "low", "")
			f("top", none, `"service_tier":"auto",`, "normal", "")
			f("plain", "high", none, "normal", "")
			f("plain", "low", none, "low", "")
			f("plain", none, `"priority":-9,`, "normal", `"priority":0,`)
			f("plain", none, `"priority":9,`, "low", "")
			f("plain", none, `"priority":"-9",`, "normal", `"priority":0,`)
			f("plain", none, `"service_tier":"priority",`, "normal", "")
			f("batch", "high", none, "low", "")
			f("batch", none, none, "low", "")
			f("batch", none, `"priority":-999,`, "low", `"priority":0,`)
			f("batch", none, `"priority":999,`, "low", "")
			f("stranger", "high", `"priority":-1,`, "normal", `"priority":0,`)
		case state.EngineSGLang:
			f("top", none, `"priority":9,`, "high", "")
			f("top", none, `"priority":-9,`, "low", "")
			f("plain", none, `"priority":9,`, "normal", `"priority":null,`)
			f("plain", none, `"priority":-9,`, "low", `"priority":null,`)
			f("plain", none, `"priority":null,`, "normal", "")
			f("batch", none, `"priority":999,`, "low", `"priority":null,`)
		case state.EngineOpenAI:
			f("top", none, `"service_tier":"priority",`, "high", "")
			f("plain", none, `"service_tier":"priority",`, "normal", `"service_tier":"default",`)
			f("plain", none, `"service_tier":"flex",`, "low", "")
		default: // without keys nobody may claim more than another, and bodies are as they were
			f("top", "high", `"priority":-9,"service_tier":"priority",`, "normal", "")
			f("top", none, `"priority":9,`, "low", "")
		}
		for _, word := range []string{"urgent", "1", "high,low", "-9"} {
			r := g.chat(ask, bearer("top"), "x-priority: "+word)
			if r.StatusCode != 400 || !strings.Contains(r.body, `"param":"x-priority"`) || !strings.Contains(r.body, word) {
				t.Errorf("%s: %d %q", word, r.StatusCode, r.body)
			}
		}
		g.stop()
	}
}

// Keys beyond the first hundred share one series.
func TestKeySeriesAreBounded(t *testing.T) {
	var list []gateway.Key
	for i := range maxKeySeries + 5 {
		list = append(list, gateway.Key{Name: string([]byte{'a' + byte(i/26), 'a' + byte(i%26)})})
	}
	g := newRig(t, loopback{t}, handlers(says(jsonAnswer(200, good))), gated(list...))
	first, last := g.srv.gate.Find([]byte("aa")), g.srv.gate.Find([]byte(list[len(list)-1].Name))
	for range 2 {
		one, _ := first.Enter()
		two, _ := last.Enter()
		defer one.Leave()
		defer two.Leave()
	}
	if n := g.metric("hearsay_key_inflight", "key", "aa"); n != 2 {
		t.Errorf("%v of the first", n)
	}
	if n := g.metric("hearsay_key_inflight", "key", otherKeys); n != 2 {
		t.Errorf("%v of others", n)
	}
	families, err := g.reg.Gather()
	must(t, err)
	for _, f := range families {
		if n := len(f.GetMetric()); f.GetName() == "hearsay_key_inflight" && n != maxKeySeries+1 {
			t.Errorf("%d series", n)
		}
	}
}

// A scheme ends with spaces, as RFC 9110 and vLLM have it.
func TestBearerIsFollowedBySpaces(t *testing.T) {
	f := func(header, want string) {
		t.Helper()
		if got := string(bearerOf([]byte(header))); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	f("Bearer key", "key")
	f("bearer  key ", "key")
	f("Bearer\tkey", "")
	f("Bearerkey", "")
	f("Basic key", "")
}
