package routing

import (
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// adapterLoad is what an engine takes to get an adapter into a slot, ms: 50-200 MB
	// (rank 16 to 64 of models of 8B to 70B) from the host's memory at 10 GB/s.
	adapterLoad = 20
	// spareShare is how much of a load into a free slot counts: it is paid once, and
	// every later request for the adapter has one more replica to go to.
	spareShare = 0.25
	// adapterEviction is the price of a slot that holds another adapter, ms: that one may
	// have to be loaded again, and streams beside it wait while it is.
	adapterEviction = 30
	// maxSlotWait bounds the wait for a slot, ms: the estimate is coarse.
	maxSlotWait = 60_000
)

// adapterWait is the time in ms until an adapter can run at a replica beyond what a
// request of its model waits, and what it costs others: nothing where it is loaded, or
// nothing is known of what is. Where all slots are taken by adapters that run, one has
// to end first: about half of an answer is before it.
func adapterWait(r *state.ReplicaView, adapter string, par *Params, t *Terms, output float64) float64 {
	loaded, known := r.HasLoaded(adapter)
	if loaded || !known {
		return 0
	}
	rd := &r.Reading
	if len(r.Loaded) < rd.AdapterSlots {
		return spareShare * adapterLoad
	}
	const cost = adapterLoad + adapterEviction
	if len(rd.AdaptersRunning) < rd.AdapterSlots || slices.Contains(rd.AdaptersWaiting, adapter) {
		return cost
	}
	queue := float64(1 + len(rd.AdaptersWaiting))
	return cost + min(maxSlotWait, queue*max(1, output)/2*par.ITLAt(t.Decode)/float64(rd.AdapterSlots))
}
