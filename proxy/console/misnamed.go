package console

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/state"
)

// misnamed warns of engines that this router reads and that would answer their
// pool's requests with 404.
func misnamed(v *state.View) (warn []string) {
	for _, p := range v.Pools {
		for _, r := range p.Replicas {
			if what := p.Spec.Misnamed(&r.Reading); what != "" {
				warn = append(warn, fmt.Sprintf("engine %s %s", r.ID, what))
			}
		}
	}
	return warn
}
