package actuator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/deploy/kube"
)

const (
	holdFirst = time.Second // what failed is left alone so long, then longer
	holdMost  = 30 * time.Second
)

// Kinds of calls of a Kubernetes.
const (
	callList = iota
	callEnsure
	calls // how many kinds there are
)

// callWaits are how long they may take in all.
var callWaits = [calls]time.Duration{callList: listWait, callEnsure: ensureWait}

// hold keeps calls from what just failed.
type hold struct {
	until time.Time
	err   error // of the last failure
	fails int   // in a row
}

// ask runs calls of a kind about a target. While they are held to fail they fail at once,
// so that a loop over many pools is not slowed by each. What fails for one object, or when
// it is written, may work for another one, or when it is read: each is held by itself,
// unless the server itself asks for patience.
func (k *Kubernetes) ask(ctx context.Context, call int, t *kubeTarget, f func(context.Context) error) error {
	k.mu.Lock()
	h := t.holds[call]
	if k.busy.until.After(h.until) {
		h = k.busy
	}
	k.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.err
	}
	inner, cancel := context.WithTimeout(ctx, callWaits[call])
	defer cancel()
	err := f(inner)
	if err != nil {
		err = fmt.Errorf("%s: %w", t.where, err)
	}
	if ctx.Err() != nil {
		return err // the term is over: that says nothing of the server
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	asked, trouble := troubled(err)
	if !trouble {
		t.holds[call] = hold{}
		return err
	}
	now, fails := time.Now(), t.holds[call].fails
	wait := max(asked, min(holdFirst<<min(fails, 10), holdMost))
	t.holds[call] = hold{until: now.Add(wait), err: err, fails: fails + 1}
	if asked > 0 {
		k.busy = hold{until: now.Add(asked), err: err}
	}
	return err
}

// troubled reports whether an error is one that the same call will likely meet again, and
// how long the server asks to be left alone.
func troubled(err error) (wait time.Duration, trouble bool) {
	var said *kube.Error
	var silent *kube.Unreachable
	switch {
	case errors.As(err, &said):
		return said.RetryAfter, said.Code == http.StatusTooManyRequests || said.Code >= http.StatusInternalServerError
	case errors.As(err, &silent):
		return 0, true
	}
	return 0, false
}
