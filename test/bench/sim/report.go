package sim

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// column is one figure of a table.
type column struct {
	head string
	get  func(*Result) float64
	show func(float64) string
}

func three(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
func four(v float64) string  { return strconv.FormatFloat(v, 'f', 4, 64) }
func one(v float64) string   { return strconv.FormatFloat(v, 'f', 1, 64) }
func none(v float64) string  { return strconv.FormatFloat(v, 'f', 0, 64) }

func extra(key string) func(*Result) float64 { return func(r *Result) float64 { return r.Extra[key] } }

var (
	colHit    = column{"hit rate", func(r *Result) float64 { return r.Figures.HitRate }, four}
	colFollow = column{"follow-ups", func(r *Result) float64 { return r.Figures.FollowUpHit }, four}
	colMean   = column{"TTFT mean s", func(r *Result) float64 { return r.Figures.TTFTMean }, three}
	colP99    = column{"p99 s", func(r *Result) float64 { return r.Figures.TTFTP99 }, three}
	colTPOT   = column{"TPOT p99 ms", func(r *Result) float64 { return r.Figures.TPOTP99 }, one}
	colBytes  = column{"kB/s out", func(r *Result) float64 { return r.Figures.BytesOut / 1e3 }, one}
	colRows   = column{"rows p99 ms", func(r *Result) float64 { return r.Figures.RowsP99 }, one}
	colOps    = column{"ops p99 ms", func(r *Result) float64 { return r.Figures.OpsP99 }, one}
	colEqual  = column{"equal picks", func(r *Result) float64 { return r.Figures.Equal }, three}
	colReg    = column{"regret mean ms", func(r *Result) float64 { return r.Figures.RegretAvg }, one}
	colReg50  = column{"regret p50 ms", func(r *Result) float64 { return r.Figures.RegretP50 }, one}
	colReg95  = column{"regret p95 ms", func(r *Result) float64 { return r.Figures.RegretP95 }, one}
	colErr    = column{"prediction error", func(r *Result) float64 { return r.Figures.PredictErr }, four}
	colErr90  = column{"p90", func(r *Result) float64 { return r.Figures.PredictErr90 }, four}
	colCEff   = column{"C_eff ratio", func(r *Result) float64 { return r.Figures.CEff }, three}
	colGood   = column{"goodput req/s", func(r *Result) float64 { return r.Figures.Goodput }, two}
	colFailed = column{"failed", func(r *Result) float64 { return float64(r.Figures.Failed) }, none}
	colCPU    = column{"CPU s", func(r *Result) float64 { return r.Figures.CPU }, one}
)

// hotColumns say how evenly replicas are loaded, and what it costs in hits.
var hotColumns = []column{
	{"longest queue now/mean", func(r *Result) float64 { return r.Figures.QueueNow }, two},
	{"queue max/mean", func(r *Result) float64 { return r.Figures.QueueSpread }, two},
	{"in flight max/mean", func(r *Result) float64 { return r.Figures.InFlightSpread }, two},
	{"in flight", func(r *Result) float64 { return r.Figures.InFlight }, one},
	{"queue tokens", func(r *Result) float64 { return r.Figures.Queue }, none},
	colHit, colMean, colP99, colTPOT, colFailed, colCPU,
}

// tables says which figures a group shows.
var tables = map[string][]column{
	"k01": {colHit, colMean, colP99, colFailed},
	"k02": {
		{"away s", extra("down_s"), three},
		{"hit before", extra("hit_before"), three},
		{"others meanwhile", extra("hit_others_while_down"), three},
		{"first 1 s", extra("hit_1s"), three},
		{"first 5 s", extra("hit_5s"), three},
		{"to the end", extra("hit_rest"), three},
		colFailed,
	},
	"k03": {
		{"ready s", extra("ready_s"), three},
		{"hit before", extra("hit_before"), three},
		{"first 100", extra("hit_100"), three},
		{"first 400", extra("hit_400"), three},
		colFailed,
	},
	"k06":         {{"replicas used", extra("holders"), none}, colMean, {"worst s", extra("ttft_worst_s"), three}, colFailed},
	"m1-agents":   {colHit, colFollow, colMean, colP99, colReg95, colRows, colOps, colBytes, colCPU},
	"m1-mooncake": {colHit, colMean, colP99, colTPOT, colReg95, colRows, colOps, colBytes, colCPU},
	"why": {
		colHit, colMean, colP99,
		{"best", func(r *Result) float64 { return r.Figures.Missed.Best }, four},
		{"unknown", func(r *Result) float64 { return r.Figures.Missed.Unknown }, four},
		{"rightly", func(r *Result) float64 { return r.Figures.Missed.Rightly }, four},
		{"wrongly", func(r *Result) float64 { return r.Figures.Missed.Queue }, four},
		{"phantom", func(r *Result) float64 { return r.Figures.Missed.Phantom }, four},
		{"queue error", func(r *Result) float64 { return r.Figures.Missed.QueueErr }, none},
		colReg, colReg95,
		{"tokens/s", func(r *Result) float64 { return r.Figures.PrefillRate }, none},
		{"differ by", func(r *Result) float64 { return r.Figures.PrefillRateSpread }, three},
		{"fixed ms", func(r *Result) float64 { return r.Figures.FixedMS }, one},
		{"differ by", func(r *Result) float64 { return r.Figures.FixedSpreadMS }, one},
		{"bytes/token differ by", func(r *Result) float64 { return r.Figures.BytesSpread }, four},
	},
	"m3": {
		colHit, colEqual,
		{"matches differ", func(r *Result) float64 { return r.Figures.Disagree }, four},
		{"queues differ by", func(r *Result) float64 { return r.Figures.QueueGap }, none},
		colReg, colReg50, colReg95,
		colErr, colErr90, colCEff,
	},
	"knee": {
		{"knee, of its own rate", extra("knee"), three},
		{"requests/s", extra("knee_rps"), two},
		{"met SLO", func(r *Result) float64 { return r.Figures.MetSLO }, three},
		colMean, colTPOT, colHit,
	},
	"policies": {
		colMean, colP99, colTPOT, colGood, colHit,
		oneOf("TTFT of the best", "of_best"), oneOf("of one router", "of_one"),
		oneOf("TPOT p99 of the best", "tpot_of_best"), oneOf("goodput of the best", "goodput_of_best"),
		colFailed, colCPU,
	},
	"llmd": {
		{"TTFT p90 s", func(r *Result) float64 { return r.Figures.TTFTP90 }, three},
		colMean, colTPOT, colHit,
		{"output tokens/s", func(r *Result) float64 { return r.Figures.OutputRate }, none},
		colFailed, colCPU,
	},
	"hot": hotColumns,
	"k07": hotColumns,
	"k05": {
		{"in flight max/mean at the wave's end", extra("in_flight_spread"), three},
		{"requests max/mean", extra("requests_spread"), three},
		colMean, colP99, colFailed,
	},
	"k12": {
		{"slow one's requests of a fast one's", extra("slow_share"), three},
		colMean, colP99, colTPOT, colFailed,
	},
	"learn": {
		{"1-5", extra("err_5"), three},
		{"6-25", extra("err_25"), three},
		{"26-50", extra("err_50"), three},
		{"51-100", extra("err_100"), three},
		{"101-200", extra("err_200"), three},
		{"201-400", extra("err_400"), three},
		{"slowed one, first 100", extra("err_slowed_100"), three},
		{"then taken for slower by", extra("slow_by"), three},
		{"all, later", extra("err_others_rest"), three},
		colMean,
	},
	"mixed": {
		{"high p50 s", extra("high_p50"), two},
		{"high p99 s", extra("high_p99"), two},
		{"refused", extra("high_refused"), two},
		{"normal p50 s", extra("normal_p50"), two},
		{"p99 s", extra("normal_p99"), two},
		{"refused", extra("normal_refused"), two},
		{"low p50 s", extra("low_p50"), two},
		{"refused", extra("low_refused"), two},
		{"a of its fair share", extra("of_fair_a"), two},
		{"b", extra("of_fair_b"), two},
		{"c", extra("of_fair_c"), two},
		{"low's tokens", extra("low_share"), two},
		{"tokens/s", extra("tokens_s"), none},
		colCPU,
	},
	"scale": {
		colHit, colEqual, colReg95, colBytes,
		{"most", func(r *Result) float64 { return r.Figures.BytesMax / 1e3 }, one},
		{"rows p50 ms", func(r *Result) float64 { return r.Figures.RowsP50 }, one},
		colRows,
		{"ops p50 ms", func(r *Result) float64 { return r.Figures.OpsP50 }, one},
		colOps,
		{"req/s", func(r *Result) float64 { return r.Figures.Rate }, one},
		{"entries", func(r *Result) float64 { return r.Figures.Entries }, none},
		{"MB a router", func(r *Result) float64 { return r.Figures.HeapBytes / 1e6 }, one},
		colCPU,
	},
}

// oneOf is a ratio that compare notes.
func oneOf(head, key string) column { return column{head, extra(key), two} }

func two(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// titles of the groups' tables.
var titles = map[string]string{
	"k01":         "K01: 150 groups x 5 prompts, 8 replicas, requests to routers at random",
	"k02":         "K02: kill -9 and restart of a router under K01 with fresh questions (hit rates)",
	"k03":         "K03: a new router gets all traffic as soon as it is ready (hit rates)",
	"k06":         "K06: 32 requests with one cold 8k prefix within 5 ms",
	"m1-agents":   "M1: agents' multi-turn chats, 8 replicas of 40,000 KV tokens",
	"m1-mooncake": "M1: Mooncake conversation at 0.7 of the knee, 8 replicas of 400,000 KV tokens",
	"why":         "Mooncake with 4 routers, one thing changed at a time (shares of prompt tokens)",
	"m3":          "M3: one request offered to all 4 routers at one instant",
	"knee":        "Knee: the highest rate at which 90 % of requests meet TTFT 10 s and TPOT 250 ms, one router, 8 replicas",
	"policies":    "M2: every policy in the same cells (KV of each replica; replicas x routers)",
	"llmd":        "llm-d's shape: 150 groups x 5 prompts, 6,000 + 1,200 tokens, answers of 1,000, 8 replicas of 307,328 KV tokens",
	"hot":         "M10: 70 % of requests share one prefix of 4,096 tokens, 8 replicas, 4 routers",
	"k07":         "K07: a system prompt of 6,000 tokens in every request, 16 replicas, 4 routers",
	"k05":         "K05: 800 short requests in 100 ms, 8 idle replicas, 4 routers",
	"k12":         "K12: one of 8 replicas takes 4 times as long, 3 routers",
	"learn":       "Predicted TTFT: median of |predicted - observed| / observed by requests seen; then one of 8 replicas takes 4 times as long",
	"mixed":       "M11: bands and tenants of weights 1, 1, 2 (a, b, c) under overload, adapters, 6 replicas of 4 requests at most, 3 routers; loads in parts of what is served at most",
	"scale":       "Routers x replicas, 1 % loss, 1-2 ms one way",
}

// Tables prints a table for every group that has results: medians over seeds, with
// the range where there are several.
func Tables(w io.Writer, results []Result) {
	compare(results)
	for _, g := range Groups() {
		var names []string
		by := map[string][]Result{}
		for _, r := range results {
			if r.Group != g {
				continue
			}
			if by[r.Name] == nil {
				names = append(names, r.Name)
			}
			by[r.Name] = append(by[r.Name], r)
		}
		if len(names) == 0 {
			continue
		}
		head := []string{"cell", "seeds"}
		for _, c := range tables[g] {
			head = append(head, c.head)
		}
		var rows [][]string
		for _, n := range names {
			row := []string{n, strconv.Itoa(len(by[n]))}
			for _, c := range tables[g] {
				row = append(row, c.cell(by[n]))
			}
			rows = append(rows, row)
		}
		table.Print(w, titles[g], 1, head, rows)
	}
}

// cell is the median with the range.
func (c *column) cell(rs []Result) string {
	lo, mid, hi := spread(rs, c.get)
	if c.show(lo) == c.show(hi) {
		return c.show(mid)
	}
	return fmt.Sprintf("%s (%s-%s)", c.show(mid), c.show(lo), c.show(hi))
}

// spread is the least, median and greatest of a figure over seeds.
func spread(rs []Result, get func(*Result) float64) (lo, mid, hi float64) {
	var v []float64
	for i := range rs {
		v = append(v, get(&rs[i]))
	}
	slices.Sort(v)
	return v[0], table.Quantile(v, 0.5), v[len(v)-1]
}

// csvOf is one row per cell and seed, for other tools.
func csvOf(results []Result) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := []string{"group", "name", "seed", "routers", "replicas", "sharing", "workload", "size", "kv_tokens"}
	figures := []column{
		colHit, colFollow, colMean,
		{"TTFT p50 s", func(r *Result) float64 { return r.Figures.TTFTP50 }, four},
		colP99, colTPOT, colReg50, colReg95,
		colErr, colErr90, colEqual, colCEff,
		{"bytes/s out", func(r *Result) float64 { return r.Figures.BytesOut }, none},
		{"rows p50 ms", func(r *Result) float64 { return r.Figures.RowsP50 }, one},
		colRows,
		{"ops p50 ms", func(r *Result) float64 { return r.Figures.OpsP50 }, one},
		colOps,
		{"entries", func(r *Result) float64 { return r.Figures.Entries }, none},
		{"heap bytes", func(r *Result) float64 { return r.Figures.HeapBytes }, none},
		{"req/s", func(r *Result) float64 { return r.Figures.Rate }, one},
		colFailed, colCPU,
	}
	for _, c := range figures {
		head = append(head, c.head)
	}
	_ = w.Write(head) // a buffer takes all
	for i := range results {
		r := &results[i]
		row := []string{
			r.Group, r.Name, strconv.FormatUint(r.Seed, 10), strconv.Itoa(r.Routers), strconv.Itoa(r.Replicas),
			strconv.FormatBool(r.Sharing), r.Workload, strconv.Itoa(r.Size), strconv.Itoa(r.KVTokens),
		}
		for _, c := range figures {
			row = append(row, c.show(c.get(r)))
		}
		_ = w.Write(row)
	}
	w.Flush()
	return b.Bytes()
}
