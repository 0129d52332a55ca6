package autoscale

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// What may happen to a leader in the middle of a decision.
const (
	killed      = "killed"      // nothing of it goes on
	paused      = "paused"      // it stands still, and goes on when another one leads
	partitioned = "partitioned" // it commits and hears nothing, and still reaches the actuator
)

var errCut = errors.New("no leader could be reached")

// leader is one router in its term. Its steps are commits, and calls of the actuator
// that say something new.
type leader struct {
	d     *drama
	epoch uint64
	real  Actuator
	told  string      // to the actuator last
	view  *state.View // of one that is cut off; nil: it hears all
	cut   bool
	steps []string
}

// drama is a world whose leader meets a fault at one step.
type drama struct {
	*world
	rig    rig
	leads  *leader
	fault  string
	at     int // the step, from 1; 0: none
	after  bool
	met    bool
	parked chan struct{}
	wake   chan struct{}

	acted   uint64            // highest epoch that an actuator has heeded
	ids     map[uint64]string // of decisions, as actuators were told
	refused int               // calls of leaders of the past
}

// newDrama is a world with so many replicas at rest, of one kind.
func newDrama(t *testing.T, build func(*testing.T, *world) rig, n int) *drama {
	t.Helper()
	s := dramaSpec()
	s.ScaleMin = n
	d := &drama{world: newWorld(t, s), ids: map[uint64]string{}, parked: make(chan struct{}), wake: make(chan struct{})}
	d.rig = build(t, d.world)
	d.seat = func(c *Config) {
		d.leads = &leader{d: d, epoch: d.facts.Epoch, real: d.rig.actuator()}
		c.Cluster, c.Committer, c.Actuators = d.leads, d.leads, map[string]Actuator{"fake": d.leads}
	}
	d.elect()
	if d.rig.running == nil { // what there is has to be there
		var list []state.Replica
		for i := range n {
			list = append(list, state.Replica{ID: state.ReplicaID(fmt.Sprint("static", i)), Role: state.RoleBoth, URL: fmt.Sprintf("http://x%d:1", i)})
		}
		d.store.SetReplicas(state.SourceStatic, "chat", list)
		d.store.SetPools([]state.PoolSpec{dramaSpec()})
		d.pass(2 * time.Second)
		return d
	}
	for i := 0; !d.settled() || len(d.facts.Replicas) != n; i++ {
		if i > 2000 {
			t.Fatalf("%d replicas did not come: %+v", n, d.facts.Decisions)
		}
		d.pass(time.Second)
	}
	d.store.SetPools([]state.PoolSpec{dramaSpec()})
	d.world.now = d.world.now.Add(2 * time.Minute) // past the cooldown
	d.elect()
	d.pass(2 * time.Second)
	return d
}

// dramaSpec has a short window, since a call of an actuator takes real time.
func dramaSpec() state.PoolSpec {
	s := spec()
	s.ScaleDownWindow = 20 * time.Second
	return s
}

// pass lets time pass for who leads.
func (d *drama) pass(t time.Duration) {
	d.t.Helper()
	for range int(t / time.Second) {
		if err := d.second(d.loop); err != nil {
			d.t.Fatal(err)
		}
	}
}

// second is one second of one leader's loop.
func (d *drama) second(l *Loop) error {
	d.world.now = d.world.now.Add(time.Second)
	if d.rig.second > 0 && !d.settled() {
		<-time.After(d.rig.second)
	}
	d.hear()
	return l.Step(context.Background(), d.world.now)
}

func (l *leader) View() *state.View {
	if l.view != nil {
		return l.view
	}
	return l.d.View()
}

func (l *leader) Live() []state.RouterID { return l.d.live }

func (l *leader) Commit(ctx context.Context, c state.Command) error {
	var err error
	ferr := l.step(string(c.Kind), func() {
		if err = errCut; !l.cut {
			err = l.d.world.Commit(ctx, c)
		}
	})
	if l.cut { // its answer is lost, too
		err = errCut
	}
	return errors.Join(ferr, err)
}

func (l *leader) List(ctx context.Context, k state.TargetKey) (state.Actual, error) {
	return l.real.List(ctx, k)
}

func (l *leader) Ensure(ctx context.Context, w state.Desired) (a state.Actual, err error) {
	call := func() {
		a, err = l.real.Ensure(ctx, w)
		l.judge(&w, err)
	}
	if news := fmt.Sprint(w.Decision, w.Want, w.Remove); news != l.told {
		l.told = news
		if ferr := l.step("ensure", call); ferr != nil {
			return a, ferr
		}
		return a, err
	}
	call()
	return a, err
}

// judge checks what an actuator made of a call.
func (l *leader) judge(w *state.Desired, err error) {
	d := l.d
	switch {
	case l.epoch < d.acted && !errors.Is(err, state.ErrFenced):
		d.t.Errorf("a leader of epoch %d was heeded (%v) after one of epoch %d", l.epoch, err, d.acted)
	case l.epoch < d.acted:
		d.refused++
	case err != nil:
		d.t.Errorf("epoch %d: %v", l.epoch, err)
	}
	if id := d.ids[w.Decision]; id != "" && id != w.ID {
		d.t.Errorf("decision %d was called %s and %s", w.Decision, id, w.ID)
	}
	d.ids[w.Decision] = w.ID
	d.acted = max(d.acted, l.epoch)
}

// step takes one step, with the fault before or after its effect.
func (l *leader) step(what string, effect func()) error {
	d := l.d
	if l != d.leads || d.met || d.at == 0 {
		effect()
		return nil
	}
	l.steps = append(l.steps, what)
	hit, view := len(l.steps) == d.at, d.View()
	if hit && !d.after {
		if err := l.meet(view); err != nil {
			return err
		}
	}
	effect()
	if hit && d.after {
		return l.meet(view)
	}
	return nil
}

// meet is the fault; view is the last that was heard before the step.
func (l *leader) meet(view *state.View) error {
	d := l.d
	d.met = true
	switch d.fault {
	case killed:
		return errDied
	case paused:
		d.parked <- struct{}{}
		<-d.wake
	case partitioned:
		l.cut, l.view = true, view
	}
	return nil
}

// play lets the leader meet the fault on the way to a target, and the next one finish.
// It reports whether there was such a step, and which.
func (d *drama) play(to int) (met bool, step string) {
	done := func() bool { return d.target() == to && d.settled() && (d.rig.running == nil || d.rig.running() == to) }
	old, first := d.loop, d.leads
	var pausing chan error
	for i := 0; !d.met; i++ {
		if done() {
			return false, ""
		}
		if i > 3000 {
			d.t.Fatalf("the target was not reached without a fault: %+v", d.facts.Decisions)
		}
		ended := make(chan error, 1)
		go func() { ended <- d.second(old) }()
		select {
		case <-d.parked:
			pausing = ended
		case err := <-ended:
			if err != nil && !d.met {
				d.t.Fatal(err)
			}
		}
	}
	step = first.steps[len(first.steps)-1]
	if d.fault == partitioned { // it goes on alone for as long as nobody else leads
		for range 2 {
			_ = d.second(old)
		}
	}
	d.world.now = d.world.now.Add(2 * time.Second)
	d.elect()
	over1 := false
	for i := 0; !done(); i++ {
		if i > 3000 {
			d.t.Fatalf("%s at %s: the next leader did not finish: %+v", d.fault, step, d.facts.Decisions)
		}
		d.pass(time.Second)
		if d.fault == partitioned && !over1 {
			over1 = over(old.Step(context.Background(), d.world.now))
		}
	}
	d.pass(3 * time.Second)
	first.cut, first.view = false, nil // the partition heals
	d.wakes(old, pausing, over1)
	d.pass(3 * time.Second)
	return true, step
}

// wakes lets the old leader go on where it stood, until it is told that its term is
// over.
func (d *drama) wakes(old *Loop, pausing chan error, told bool) {
	if d.fault == killed {
		return
	}
	if pausing != nil {
		d.wake <- struct{}{}
		told = over(<-pausing)
	}
	for range 5 {
		if !told {
			told = over(old.Step(context.Background(), d.world.now))
		}
	}
	if !told {
		d.t.Errorf("the old leader was not told that its term is over")
	}
}

// course is the way to a target that is decided on under a load.
type course struct {
	name     string
	from, to int
	load     int // requests
}

// Whatever happens to a leader, at whatever step of a decision, the pool ends at the
// committed target, by one decision, which is carried out once under one id; and
// nothing that the old leader still does has an effect.
func TestLeaderFaultsAtEveryStep(t *testing.T) {
	for name, build := range rigs {
		for _, fault := range []string{killed, paused, partitioned} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				refused, tried := 0, map[string]int{}
				for _, c := range []course{{"up", 1, 3, 24}, {"down", 2, 1, 0}} {
					for _, after := range []bool{false, true} {
						more := true
						for at := 1; more; at++ {
							more = t.Run(fmt.Sprintf("%s, step %d, after its effect %v", c.name, at, after), func(t *testing.T) {
								d := newDrama(t, build, c.from)
								d.fault, d.at, d.after = fault, at, after
								step := d.check(c)
								if more = step != ""; more {
									tried[step]++
									refused += d.refused
								}
							}) && more
						}
					}
				}
				if t.Failed() {
					return
				}
				want := []string{"set_target", "ensure", "settle"}
				if name != "dry_run" {
					want = append(want, "add_replica", "drain", "remove_replica")
				}
				for _, s := range want {
					if tried[s] < 2 {
						t.Errorf("tried at %v: too little of %s", tried, s)
					}
				}
				if (refused > 0) != (fault != killed) {
					t.Errorf("%d calls of old leaders were refused", refused)
				}
				t.Logf("at %v; %d calls of old leaders refused", tried, refused)
			})
		}
	}
}

// check plays a course and checks how it ended. It returns the step at which the fault
// was met; empty: there are no so many steps.
func (d *drama) check(c course) string {
	if c.load > 0 {
		d.spread(c.load)
	}
	decisions, changes := len(d.facts.Decisions), d.rig.changes()
	met, step := d.play(c.to)
	if !met {
		return ""
	}
	if n := len(d.facts.Decisions) - decisions; n != 1 {
		d.t.Errorf("%d decisions: %+v", n, d.facts.Decisions)
	}
	if n, want := d.rig.changes()-changes, d.rig.wanted(c.from, c.to); n != want {
		d.t.Errorf("%d changes, want %d", n, want)
	}
	if x := d.facts.LastDecision(chat); x.Outcome != state.OutcomeDone || x.To != c.to || len(d.facts.Draining) != 0 {
		d.t.Errorf("%+v, draining %v", x, d.facts.Draining)
	}
	if d.t.Failed() {
		d.t.Logf("%s at %s; ids %v, log %q", d.fault, step, d.ids, d.log)
	}
	return step
}
