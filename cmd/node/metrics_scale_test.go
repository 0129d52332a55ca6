package node

import (
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/autoscale"
)

// scaleTail is the end of docs/metrics.md: why pools are not scaled, and how others may
// scale by what is measured.
var scaleTail = strings.ReplaceAll(`
## Why a pool is not scaled

~hearsay_scale_refusals_total~, label ~reason~, counts plans: when one is refused, and every 15 s for as long as it is. An actuator that fails, or may not, counts also while nothing is to change:

| reason | meaning |
|---|---|
| ~hold~ | an operator set the target: ~hearsay scale POOL --release~ |
| ~coverage~ | too few of the live routers have been heard of lately |
| ~readings~ | too few replicas were read lately; for a step down, not all of them |
| ~open~, ~pending~, ~cooldown~ | the last decision is being carried out, its replicas do not serve yet, or it was a short while ago |
| ~skewed~ | the load is uneven, which more replicas do not help |
| ~spike~ | a burst that the replicas work off before a new one would serve |
| ~maximum~, ~budget~ | more is needed than ~scale.max~ or ~scale.budget~ allow |
| ~not_ours~ | the replicas that could go are the file's or an operator's; or something else sets their number, such as a HorizontalPodAutoscaler |
| ~actuator~, ~commit~ | what is decided could not be carried out, or not be committed |
| ~config~ | the routers differ in how the pool is configured |

## Scaling by something else

Where a HorizontalPodAutoscaler or KEDA is to set the number of replicas, leave ~scale.actuator~ at ~dry_run~ and let it follow ~hearsay_scale_needed~: it is in replicas, with forecast and objectives, and
not bounded by ~scale.max~. Only the leader shows it, so take the greatest over the routers:

~~~
max(hearsay_scale_needed{pool="chat", role="both"})
~~~

In KEDA that is a Prometheus trigger with ~threshold: "1"~, ~metricType: AverageValue~ and ~ignoreNullValues: "false"~; with a metrics adapter an External metric with ~averageValue: "1"~. Without a leader the series is missing:
both then keep the number as it is. Neither knows of bursts, uneven pools and starts: bound their steps up (~behavior.scaleUp~) as ~hearsay~ does itself, two replicas a minute.
`, "~", "`")

// Every reason for which a plan is refused is explained.
func TestScaleRefusalsAreDocumented(t *testing.T) {
	for _, r := range autoscale.Refusals() {
		if !strings.Contains(scaleTail, "`"+r+"`") {
			t.Errorf("%s is not explained", r)
		}
	}
}
