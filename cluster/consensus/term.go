package consensus

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hearsay-llm/hearsay/state"
)

// office follows Raft's word on whether this router leads. Its one reader takes
// every change, since Raft blocks on a channel that is not read.
type office struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	leading bool               // guarded by mu
	end     context.CancelFunc // guarded by mu; of the present term
}

func (o *office) read(ctx context.Context, notify <-chan bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-notify:
			o.set(v)
		}
	}
}

func (o *office) set(leading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leading = leading
	if o.end != nil {
		o.end()
		o.end = nil
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// begin gives a context that ends with the term, or nil if there is none.
func (o *office) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.leading || ctx.Err() != nil {
		return nil, nil
	}
	term, end := context.WithCancel(ctx)
	o.end = end
	return term, end
}

// lead serves one term after the other until ctx ends.
func (n *Node) lead(ctx context.Context) {
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.office.wake:
		case <-retry.C: // a term that ended although Raft still has us lead
		}
		term, end := n.office.begin(ctx)
		if term == nil {
			continue
		}
		if err := n.serve(ctx, term, end); err != nil && term.Err() == nil {
			n.log.Warn().Err(err).Msg("term not begun")
		}
		end()
	}
}

// serve runs one term: nothing acts before everything of earlier terms is applied
// here and this term has an epoch; all is joined before it returns.
func (n *Node) serve(run, term context.Context, end context.CancelFunc) error {
	if err := n.barrier(term); err != nil {
		return err
	}
	if n.superseded() || n.passed() {
		return errSuperseded
	}
	if n.ledger.current().ClusterID == "" {
		c := state.Command{Kind: state.CommandSetClusterID, Cluster: rand.Text()}
		if _, err := n.apply(term, c); err != nil {
			return err
		}
	}
	r, err := n.apply(term, state.Command{Kind: state.CommandBeginTerm, Router: n.cfg.Self})
	if err != nil {
		return err
	}
	epoch := r.Index
	n.log.Info().Uint64("term", n.term()).Uint64("epoch", epoch).Msg("leading")
	defer n.log.Info().Uint64("epoch", epoch).Msg("no longer leading")
	var wg sync.WaitGroup
	defer wg.Wait()
	if n.cfg.OnLead != nil {
		wg.Go(func() { n.cfg.OnLead(term, epoch) })
	}
	wg.Go(func() { n.keepVoters(term) })
	n.tick(run, term, end)
	return nil
}

func (n *Node) barrier(ctx context.Context) error {
	_, err := n.wait(ctx, func(r *raft.Raft) (any, error) { return nil, r.Barrier(minApplyTimeout).Error() })
	return err
}

// tick makes the leader prove to itself that its log takes entries and its state
// machine moves. When one does not come through, heartbeats would still keep it in
// office, so it ends the term and falls silent until Raft moves again: the others
// elect, or a healthy log begins a new term.
func (n *Node) tick(run, term context.Context, end context.CancelFunc) {
	t := time.NewTicker(n.cfg.TickInterval)
	defer t.Stop()
	for {
		select {
		case <-term.Done():
			return
		case <-t.C:
		}
		done, err := n.start(term, func(r *raft.Raft) (any, error) {
			return nil, r.Barrier(n.cfg.TickTimeout).Error()
		})
		if err != nil {
			return
		}
		late := time.NewTimer(n.cfg.TickTimeout)
		select {
		case a := <-done:
			late.Stop()
			if errors.Is(a.err, raft.ErrEnqueueTimeout) {
				n.fallSilent(run, end, nil)
				return
			}
		case <-term.Done():
			late.Stop()
			return
		case <-late.C:
			n.fallSilent(run, end, done)
			return
		}
	}
}

// fallSilent ends the term and says nothing to peers until Raft answers again.
func (n *Node) fallSilent(run context.Context, end context.CancelFunc, done <-chan answer) {
	end()
	n.log.Error().Dur("dur_ms", n.cfg.TickTimeout).Msg("the log takes no entries: giving up leadership")
	n.stream.mute(true)
	defer n.stream.mute(false)
	if done == nil {
		var err error
		done, err = n.start(run, func(r *raft.Raft) (any, error) {
			return nil, r.VerifyLeader().Error()
		})
		if err != nil {
			return
		}
	}
	select {
	case <-done:
	case <-run.Done():
	}
}
