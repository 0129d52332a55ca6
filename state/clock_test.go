package state_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hearsay-llm/hearsay/state"
)

func TestClockPlacesByTheFastestDelivery(t *testing.T) {
	start := time.Now()
	c := state.NewClock(1, start)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	place := func(s state.Stamp, now time.Duration) time.Duration {
		d, _ := c.Place(s, at(now), 0)
		return d
	}
	if d, ok := c.Place(state.Stamp{Boot: 2, At: time.Second}, at(time.Minute), 7*time.Second); ok || d != 7*time.Second {
		t.Errorf("an origin never heard of: %v %v", d, ok)
	}
	if d, ok := c.Place(state.Stamp{Boot: 2}, at(time.Second), time.Hour); ok || d != time.Second {
		t.Errorf("a fallback after now: %v %v", d, ok)
	}
	c.Observe(2, 5*time.Second, at(10*time.Second)) // started 5 s after us, or slow delivery
	c.Observe(2, 6*time.Second, at(10500*time.Millisecond))
	c.Observe(2, 7*time.Second, at(13*time.Second))
	if d := place(state.Stamp{Boot: 2, At: 6 * time.Second}, 20*time.Second); d != 10500*time.Millisecond {
		t.Errorf("placed at %v", d)
	}
	if d := place(state.Stamp{Boot: 2, At: time.Hour}, 20*time.Second); d != 20*time.Second {
		t.Errorf("a stamp after now is placed at %v", d)
	}
	if d := place(state.Stamp{Boot: 1, At: 3 * time.Second}, 20*time.Second); d != 3*time.Second {
		t.Errorf("an own stamp is placed at %v", d)
	}
	c.Observe(0, 0, at(0))
	if _, ok := c.Place(state.Stamp{Boot: 0}, at(time.Second), 0); ok {
		t.Error("the unknown boot was observed")
	}
}

// Two clocks a little apart in speed: events stay as old as they are after days.
func TestClockFollowsDrift(t *testing.T) {
	f := func(name string, ppm int64) {
		t.Helper()
		start := time.Now()
		c := state.NewClock(1, start)
		var now, sent time.Duration
		for now < 48*time.Hour {
			now += 10 * time.Second
			sent = now - now*time.Duration(ppm)/1e6
			c.Observe(2, sent, start.Add(now+time.Millisecond))
		}
		d, _ := c.Place(state.Stamp{Boot: 2, At: sent}, start.Add(now+time.Second), 0)
		if off := (now - d).Abs(); off > 50*time.Millisecond {
			t.Errorf("%s: placed %v off after two days", name, off)
		}
	}
	f("same speed", 0)
	f("a slower origin", 50)
	f("a faster origin", -50)
}

func TestClockForgetsTheOriginHeardFromLeastRecently(t *testing.T) {
	start := time.Now()
	c := state.NewClock(1, start)
	const many = 4096
	for i := range many {
		c.Observe(state.BootID(i+2), 0, start.Add(time.Duration(i)*time.Millisecond))
	}
	now := start.Add(time.Hour)
	c.Observe(2, 0, now)
	c.Observe(state.BootID(many+2), 0, now)
	if _, ok := c.Place(state.Stamp{Boot: 3}, now, 0); ok {
		t.Error("the one heard from least recently is still there")
	}
	if _, ok := c.Place(state.Stamp{Boot: 2}, now, 0); !ok {
		t.Error("the one heard from just now is gone")
	}
}

// Travelling never makes an event younger than its fastest delivery would.
func TestClockNeverMakesEventsYounger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		c := state.NewClock(1, start)
		ahead := time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "ahead"))
		now := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			now += time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "gap"))
			delay := time.Duration(rapid.Int64Range(0, 1e8).Draw(t, "delay"))
			c.Observe(2, now+ahead, start.Add(now+delay))
			event := time.Duration(rapid.Int64Range(0, int64(now)).Draw(t, "event"))
			d, _ := c.Place(state.Stamp{Boot: 2, At: event + ahead}, start.Add(now+delay), 0)
			if d < event || d > now+delay {
				t.Fatalf("event of %v placed at %v, now %v", event, d, now+delay)
			}
		}
	})
}
