package node

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/observe"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// The adapters here give one part the form that another part's interface has.

// reporter takes the proxy's outcomes to the balance loop.
type reporter struct{ loop *balance.Loop }

func (r reporter) Report(id state.ReplicaID, o proxy.Outcome, retryAfter time.Duration, now time.Time) {
	r.loop.Report(balance.Outcome{Replica: id, Kind: kinds[o], RetryAfter: retryAfter, At: now})
}

// kinds is what the proxy's outcomes say of a replica's health.
var kinds = map[proxy.Outcome]balance.Kind{
	proxy.OutcomeServed:   balance.OK,
	proxy.OutcomeRejected: balance.Neutral,
	proxy.OutcomeBusy:     balance.Busy,
	proxy.OutcomeFailed:   balance.Failed,
	proxy.OutcomeTimeout:  balance.Failed,
	proxy.OutcomeAborted:  balance.Neutral,
}

// caches takes what readings say of an engine's cache to the index.
type caches struct {
	index *sketch.Index
	clock *state.Clock
}

func (c caches) SetCapacity(id state.ReplicaID, x observe.Capacity) {
	c.index.SetSlots(id, int(min(x.Slots, sketch.MaxSlots)), x.Tokens, sketch.CapacityEngine)
}

func (c caches) Cleared(id state.ReplicaID, at time.Time, _ string) {
	c.index.Clear(id, c.clock.Stamp(at))
}

// engineClient reads engines: few connections, none kept as long as engines do.
func engineClient(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dial, MaxIdleConnsPerHost: 1, MaxIdleConns: 1024,
			IdleConnTimeout: 4 * time.Second,                           // uvicorn closes at 5 s
			MaxConnsPerHost: 8, ResponseHeaderTimeout: 5 * time.Second, // probes run side by side
			DisableCompression: true, // it would cost the engine more than it saves
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
