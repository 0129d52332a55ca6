package enginesim

import (
	"testing"
	"testing/synctest"
	"time"
)

// The leg that decodes waits for the other one, which makes one token whatever it is
// asked for, and computes none of the prompt but its last token.
func TestLegsMeetInTheirRoom(t *testing.T) {
	cfg := simpleConfig()
	cfg.Kind, cfg.Pairs, cfg.Leg = SGLang, &Pairs{}, LegPrefill
	bubble(t, cfg, func(t *testing.T, p *sim) {
		other := cfg
		other.Leg = LegDecode
		ln := newMemListener()
		serve(t, other, ln, ln.dial, func(d *sim) {
			body := `{"prompt":` + tokenPrompt(1000) + `,"max_tokens":5,"bootstrap_room":9223372036854775807}`
			answered := make(chan time.Duration)
			began := time.Now()
			go func() {
				d.post(textPath, body)
				answered <- time.Since(began)
			}()
			synctest.Wait()
			time.Sleep(time.Second)
			if n := d.Totals().Steps; n != 0 {
				t.Fatalf("it began before the prompt was prefilled: %d steps", n)
			}
			p.post(textPath, body)
			if took := <-answered; took < time.Second || took > time.Second+300*msec {
				t.Errorf("answered after %v", took)
			}
			if a, b := p.Totals(), d.Totals(); a.GeneratedTokens != 1 || a.PrefilledTokens != 1000 || b.GeneratedTokens != 5 || b.PrefilledTokens > 1 {
				t.Errorf("prefill %+v, decode %+v", a, b)
			}
			if status, _ := d.post(textPath, `{"prompt":[1],"max_tokens":1}`); status != 400 {
				t.Errorf("without a room: %d", status)
			}
		})
	})
}
