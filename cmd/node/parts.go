package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// part is one running piece of the node.
type part struct {
	name   string
	run    func(context.Context) error
	bound  time.Duration // it is waited for so long when it is told to stop
	cancel context.CancelFunc
	done   chan struct{}
	err    error // read after done is closed
}

// parts run together: started in order, stopped in reverse order, one after
// another. When one ends by itself, all are stopped.
type parts struct {
	list []*part
	log  zerolog.Logger
}

func (p *parts) add(name string, bound time.Duration, run func(context.Context) error) {
	p.list = append(p.list, &part{name: name, run: run, bound: bound, done: make(chan struct{})})
}

// run starts every part and blocks until ctx ends or a part does, then stops them
// and returns what went wrong.
func (p *parts) run(ctx context.Context) error {
	// Parts outlive ctx: each is stopped in its turn.
	base := context.WithoutCancel(ctx)
	ended := make(chan *part, len(p.list))
	for _, x := range p.list {
		var pctx context.Context
		pctx, x.cancel = context.WithCancel(base)
		go func() {
			x.err = x.run(pctx)
			close(x.done)
			ended <- x
		}()
	}
	var errs []error
	select {
	case <-ctx.Done():
	case x := <-ended:
		if x.err == nil {
			x.err = errors.New("ended by itself")
		}
	}
	for i := len(p.list) - 1; i >= 0; i-- {
		x := p.list[i]
		x.cancel()
		bound := time.NewTimer(x.bound)
		select {
		case <-x.done:
			if x.err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", x.name, x.err))
			}
		case <-bound.C:
			p.log.Error().Str("part", x.name).Dur("bound_ms", x.bound).Msg("part did not stop in time")
			errs = append(errs, fmt.Errorf("%s: did not stop within %v", x.name, x.bound))
		}
		bound.Stop()
	}
	return errors.Join(errs...)
}
