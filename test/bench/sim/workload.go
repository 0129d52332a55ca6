package sim

import "github.com/hearsay-llm/hearsay/test/whatif"

// Workloads are those that hearsay replay --what-if runs.
type (
	Item     = whatif.Item
	Workload = whatif.Workload
)

// Model is the model that clients ask for, Pool the pool that serves it.
const (
	Model    = whatif.Model
	Pool     = whatif.Pool
	chatPath = whatif.ChatPath
)

// NewWorkload renders a source.
var NewWorkload = whatif.NewWorkload
