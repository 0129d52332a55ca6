package main

import (
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
)

func TestFiguresOfARun(t *testing.T) {
	f := sum([]procs.Sample{
		{OK: true, Prompt: 100, Predicted: 0, Cached: 0, TTFT: 400 * time.Millisecond},
		{OK: true, Prompt: 100, Predicted: 50, Cached: 40, TTFT: 300 * time.Millisecond}, // half is not more than half
		{OK: true, Prompt: 200, Predicted: 150, Cached: 190, TTFT: 100 * time.Millisecond},
		{Prompt: 1000, Predicted: 1000, TTFT: time.Hour},
	})
	if f.Requests != 4 || f.Failed != 1 || f.Warm != (part{1, 100, 100}) || f.Cold != (part{2, 400, 350}) || f.All.Requests != 3 {
		t.Errorf("%+v", f)
	}
	if f.Predicted != 0.5 || f.Reported != 0.575 || f.Prefilled < 56.6 || f.Prefilled > 56.7 || f.ErrorP50 != 0.1 || f.ErrorP90 != 0.2 || f.Bias > -0.033 || f.Bias < -0.034 {
		t.Errorf("%+v", f)
	}
}
