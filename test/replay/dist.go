package replay

import (
	"encoding/json"
	"math"
	"slices"
)

// Dist sums up a set of values: times in seconds, tokens as counts. All fields are 0 when Count is, and null in JSON.
type Dist struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// MarshalJSON writes null for what has no values: a reader must not take it for a time of 0.
func (d Dist) MarshalJSON() ([]byte, error) {
	type plain Dist // without this method
	if d.Count > 0 {
		return json.Marshal(plain(d))
	}
	return json.Marshal(struct {
		Count int  `json:"count"`
		Mean  *int `json:"mean"`
		P50   *int `json:"p50"`
		P90   *int `json:"p90"`
		P99   *int `json:"p99"`
		Max   *int `json:"max"`
	}{})
}

// newDist sorts values in place.
func newDist(values []float64) Dist {
	if len(values) == 0 {
		return Dist{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return Dist{
		Count: len(values),
		Mean:  sum / float64(len(values)),
		P50:   percentile(values, 0.50),
		P90:   percentile(values, 0.90),
		P99:   percentile(values, 0.99),
		Max:   values[len(values)-1],
	}
}

// percentile interpolates linearly between the closest ranks of sorted values, as numpy does by default (Hyndman and Fan's
// definition 7). The values must not be empty.
func percentile(sorted []float64, q float64) float64 {
	rank := q * float64(len(sorted)-1)
	low := int(math.Floor(rank))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (rank-float64(low))*(sorted[high]-sorted[low])
}

// scaled returns the distribution of every value times k.
func (d Dist) scaled(k float64) Dist {
	d.Mean *= k
	d.P50 *= k
	d.P90 *= k
	d.P99 *= k
	d.Max *= k
	return d
}

// histogram counts seconds in buckets that grow by a tenth: enough for a running median, at a fixed size.
type histogram struct {
	count   int
	buckets [histogramBuckets]int
}

const (
	histogramBuckets = 240
	histogramLeast   = 1e-5 // seconds; 240 buckets reach 86,000 s
	histogramGrowth  = 1.1
)

func (h *histogram) add(seconds float64) {
	i := 0
	if seconds > histogramLeast {
		i = min(int(math.Log(seconds/histogramLeast)/math.Log(histogramGrowth)), histogramBuckets-1)
	}
	h.buckets[i]++
	h.count++
}

// median is within a twentieth of the true one; 0 without values.
func (h *histogram) median() float64 {
	if h.count == 0 {
		return 0
	}
	seen := 0
	for i, n := range h.buckets {
		if seen += n; 2*seen >= h.count {
			return histogramLeast * math.Pow(histogramGrowth, float64(i)+0.5)
		}
	}
	return 0
}
