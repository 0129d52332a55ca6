package enginesim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The profiles give back what was measured: medians of five runs from the
// calibration file, H100 TP4.
func TestProfileReproducesMeasurements(t *testing.T) {
	p, err := NewTiming("h100-70b-tp4")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		load   StepLoad
		lo, hi float64 // ms
	}{
		{StepLoad{PrefillTokens: 512}, 58, 65},
		{StepLoad{PrefillTokens: 2048}, 198, 204},
		{StepLoad{PrefillTokens: 8192}, 935, 960},
		{StepLoad{DecodeStreams: 1, DecodeContext: 512}, 28, 31},
		{StepLoad{DecodeStreams: 64, DecodeContext: 64 * 512}, 51, 53},
		{StepLoad{DecodeStreams: 24, DecodeContext: 24 * 512}, 33, 37}, // between 16 and 32
		// Not measured at batch 1 but as a batch: 8 and 16 prompts of 512 at once (442
		// and 882 ms) take what one prompt of their sum takes, within 10 %.
		{StepLoad{PrefillTokens: 8 * 512}, 442 * .9, 442 * 1.1},
		{StepLoad{PrefillTokens: 16 * 512}, 882 * .9, 882 * 1.1},
		{StepLoad{}, 0, 0},
	} {
		if got := ms(p.StepTime(x.load)); got < x.lo || got > x.hi {
			t.Errorf("%+v takes %.1f ms, want %v to %v", x.load, got, x.lo, x.hi)
		}
	}
}

// A prompt cut into chunks takes longer than in one piece, by the weights read
// for each chunk and not by much more.
func TestChunksCostMore(t *testing.T) {
	p, err := NewTiming("h100-70b-tp4")
	if err != nil {
		t.Fatal(err)
	}
	var chunks time.Duration
	for at := 0; at < 8192; at += 2048 {
		chunks += p.StepTime(StepLoad{PrefillTokens: 2048, PrefillPairs: int64(at) * 2048})
	}
	whole := p.StepTime(StepLoad{PrefillTokens: 8192})
	if chunks <= whole*8/10 || chunks > whole*13/10 {
		t.Errorf("4 chunks take %v, the whole %v", chunks, whole)
	}
}

// More work never takes less time, in any profile.
func TestMoreWorkTakesMoreTime(t *testing.T) {
	for _, name := range ProfileNames() {
		p, err := NewTiming(name)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			draw := func(label string, limit int) int { return rapid.IntRange(0, limit).Draw(t, label) }
			a := StepLoad{PrefillTokens: draw("prefill", 40_000), PrefillPairs: int64(draw("pairs", 1e8)), DecodeStreams: draw("streams", 300)}
			a.DecodeContext = int64(a.DecodeStreams) * int64(draw("context", 5000))
			b := a
			switch draw("what", 3) {
			case 0:
				b.PrefillTokens += draw("more", 1000)
			case 1:
				b.PrefillPairs += int64(draw("more", 1e6))
			case 2:
				b.DecodeStreams++
				b.DecodeContext += measuredPrompt
			case 3:
				if a.DecodeStreams > 0 {
					b.DecodeContext += int64(draw("more", 1000))
				}
			}
			if x, y := p.StepTime(a), p.StepTime(b); y < x {
				t.Fatalf("%s: %+v takes %v, %+v takes %v", name, a, x, b, y)
			}
		})
	}
	if _, err := NewTiming("tpu"); err == nil {
		t.Error("unknown profile accepted")
	}
}
