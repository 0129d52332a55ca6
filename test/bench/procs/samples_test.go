package procs

import "testing"

func TestSumOverRequests(t *testing.T) {
	list := []Sample{
		{Target: "a", OK: true, Prompt: 100, Cached: 50},
		{Target: "a", Prompt: 100},
		{Target: "b", OK: true, Prompt: 100, Cached: 100},
	}
	got := Sum(list, func(s Sample) bool { return s.Target == "a" })
	if want := (Part{Requests: 2, Failed: 1, Hit: 0.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
