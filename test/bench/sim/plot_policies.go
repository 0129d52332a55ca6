package sim

import (
	"strings"

	"github.com/hearsay-llm/hearsay/test/bench/chart"
)

// byRate are curves over the rate, one per policy, of the cells whose name begins and
// ends as said; %s in the end stands for the policy.
func byRate(results []Result, group, begin, end string, get func(*Result) float64) (out []chart.Line) {
	for i, p := range policiesOf(results) {
		by := map[int][]Result{}
		for _, r := range results {
			if r.Group == group && strings.HasPrefix(r.Name, begin) && strings.HasSuffix(r.Name, strings.Replace(end, "%s", p, 1)) {
				by[int(1000*r.Rate)] = append(by[int(1000*r.Rate)], r)
			}
		}
		c := chart.Line{Name: p, Dots: true, Dashed: i >= 6} // there are six colours
		c.Points = spreads(by, get)
		for i := range c.Points {
			c.Points[i].X /= 1000
		}
		out = append(out, c)
	}
	return out
}
