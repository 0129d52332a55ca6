package routing

import (
	"slices"

	"github.com/hearsay-llm/hearsay/state"
)

const (
	// adapterLoad is what an engine takes to get an adapter into a slot, ms: some 50-200
	// MB (rank 16 to 64 of models of 8B to 70B) from the host's memory at 10 GB/s and
	// more are 5-20 ms; from a file it is the tenfold. It is also what the next one pays
	// whose adapter is evicted for it.
	adapterLoad = 50
	// maxSlotWait bounds the wait for a slot, ms: the estimate is coarse.
	maxSlotWait = 60_000
)

// adapterWait is the time in ms until an adapter can run at a replica beyond what a
// request of its model waits: nothing where it is loaded, or nothing is known of what
// is. Where all slots are taken by adapters that run, one has to end first: about half
// of an answer is before it.
func adapterWait(r *state.ReplicaView, adapter string, par *Params, t *Terms, output float64) float64 {
	loaded, known := r.HasLoaded(adapter)
	if loaded || !known {
		return 0
	}
	rd := &r.Reading
	if slices.Contains(rd.AdaptersWaiting, adapter) || len(rd.AdaptersRunning) < rd.AdapterSlots {
		return adapterLoad
	}
	queue := float64(1 + len(rd.AdaptersWaiting))
	return adapterLoad + min(maxSlotWait, queue*max(1, output)/2*par.ITLAt(t.Decode)/float64(rd.AdapterSlots))
}
