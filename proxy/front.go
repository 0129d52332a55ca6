package proxy

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// NewCore returns a core for a front other than this package's server: one that
// brings its own transport, or a simulation that has none. It starts nothing and
// remembers no picks. A nil registerer leaves its metrics unregistered.
func NewCore(cfg CoreConfig, reg prometheus.Registerer) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	return newCore(cfg, 0, newMetrics(reg)), nil
}
