package sim

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot draws what the results have curves for: SVG files in dir, made if needed.
func Plot(dir string, results []Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	hit := func(r *Result) float64 { return r.Figures.HitRate }
	ttft := func(r *Result) float64 { return r.Figures.TTFTMean }
	for _, c := range []struct {
		file, title, y string
		lines          []curve
	}{
		{"sim-hit-agents.svg", "Cache hits of follow-up turns, agents' chats", "cached / prompt tokens", byRouters(results, "m1-agents", "", func(r *Result) float64 { return r.Figures.FollowUpHit })},
		{"sim-ttft-agents.svg", "Mean time to first token, agents' chats", "TTFT (s)", byRouters(results, "m1-agents", "", ttft)},
		{"sim-hit-mooncake.svg", "Cache hits, Mooncake conversation", "cached / prompt tokens", byRouters(results, "m1-mooncake", "", hit)},
		{"sim-ttft-mooncake.svg", "Mean time to first token, Mooncake conversation", "TTFT (s)", byRouters(results, "m1-mooncake", "", ttft)},
		{"sim-hit-groups.svg", "Cache hits, prompts below shared prefixes (K01)", "cached / prompt tokens", append(byRouters(results, "k01", "repeated", hit), byRouters(results, "k01", "fresh", hit)...)},
		{"sim-bytes.svg", "What a router sends to the others", "kB/s", byReplicas(results)},
	} {
		if err := drawCurves(filepath.Join(dir, c.file), c.title, "routers", c.y, c.lines, true); err != nil {
			return err
		}
	}
	var cdf, errs []curve
	for _, r := range results {
		if r.Group != "m3" || r.Seed != 1 {
			continue
		}
		cdf = append(cdf, curve{name: r.Name, points: cdfOf(r.Figures.Regrets)})
	}
	errs = errorByCache(results)
	if err := drawCurves(filepath.Join(dir, "sim-regret.svg"), "Regret of a pick: true score less the best one's", "regret (ms)", "share of picks", cdf, false); err != nil {
		return err
	}
	return drawCurves(filepath.Join(dir, "sim-prediction.svg"), "Predicted against reported cached tokens", "cache of a replica (of the workload's middle size)", "p90 of error / prompt tokens", errs, false)
}

type curve struct {
	name   string
	points plotter.XYs
	low    []float64 // by point; nil: no range
	high   []float64
	dashed bool
}

// byRouters are two curves over the number of routers: with and without sharing.
func byRouters(results []Result, group, prefix string, get func(*Result) float64) (out []curve) {
	for _, sharing := range []bool{true, false} {
		c := curve{name: "sharing", dashed: !sharing}
		if !sharing {
			c.name = "sharing off"
		}
		if prefix != "" {
			c.name = prefix + ", " + c.name
		}
		by := map[int][]Result{}
		for _, r := range results {
			if r.Group == group && strings.HasPrefix(r.Name, prefix) && !strings.Contains(r.Name, "true caches") && (r.Sharing == sharing || r.Routers == 1) {
				by[r.Routers] = append(by[r.Routers], r)
			}
		}
		c.fill(by, get)
		out = append(out, c)
	}
	return out
}

// byReplicas are curves over the number of routers, one per number of replicas.
func byReplicas(results []Result) (out []curve) {
	by := map[int]map[int][]Result{}
	for _, r := range results {
		if r.Group == "scale" {
			if by[r.Replicas] == nil {
				by[r.Replicas] = map[int][]Result{}
			}
			by[r.Replicas][r.Routers] = append(by[r.Replicas][r.Routers], r)
		}
	}
	for _, n := range sortedKeys(by) {
		c := curve{name: fmt.Sprintf("%d replicas", n)}
		c.fill(by[n], func(r *Result) float64 { return r.Figures.BytesOut / 1e3 })
		out = append(out, c)
	}
	return out
}

// errorByCache are curves over the cache's size, one per workload.
func errorByCache(results []Result) (out []curve) {
	for _, w := range []struct {
		name   string
		middle int
	}{{"agents", AgentsKV}, {"mooncake", 400_000}} {
		by := map[int][]Result{}
		for _, r := range results {
			if r.Group == "m3" && r.Workload == w.name && !strings.Contains(r.Name, "said to be") {
				by[100*r.KVTokens/w.middle] = append(by[100*r.KVTokens/w.middle], r)
			}
		}
		c := curve{name: w.name}
		c.fill(by, func(r *Result) float64 { return r.Figures.PredictErr90 })
		for i := range c.points {
			c.points[i].X /= 100
		}
		out = append(out, c)
	}
	return out
}

func (c *curve) fill(by map[int][]Result, get func(*Result) float64) {
	for _, n := range sortedKeys(by) {
		lo, mid, hi := spread(by[n], get)
		c.points = append(c.points, plotter.XY{X: float64(n), Y: mid})
		c.low, c.high = append(c.low, mid-lo), append(c.high, hi-mid)
	}
}

func sortedKeys[T any](m map[int]T) (keys []int) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func cdfOf(quantiles []float64) (out plotter.XYs) {
	for i, v := range quantiles {
		out = append(out, plotter.XY{X: v, Y: float64(i) / float64(len(quantiles)-1)})
	}
	return out
}

// Okabe and Ito's colours, told apart by colour-blind readers too.
var colours = []color.Color{
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 204, G: 121, B: 167, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255},
}

// drawCurves writes one plot; without a point it writes none.
func drawCurves(file, title, x, y string, lines []curve, routers bool) error {
	lines = slices.DeleteFunc(lines, func(c curve) bool { return len(c.points) == 0 })
	if len(lines) == 0 {
		return nil
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	top := 0.0
	for i, c := range lines {
		if err := c.draw(p, i, routers); err != nil {
			return fmt.Errorf("plot %s: %w", filepath.Base(file), err)
		}
		for _, xy := range c.points {
			top = max(top, xy.Y)
		}
	}
	p.Y.Min, p.Y.Max = 0, top*1.25 // room for the legend
	if routers {
		p.X.Tick.Marker = powers{}
	} else {
		p.Legend.Top, p.Y.Max = false, top*1.02
	}
	return saveSVG(p, file)
}

func (c *curve) draw(p *plot.Plot, i int, routers bool) error {
	points := slices.Clone(c.points)
	if routers { // a step to the right is twice the routers
		for k := range points {
			points[k].X = math.Log2(points[k].X)
		}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = colours[i%len(colours)], vg.Points(1.2)
	if c.dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(line)
	p.Legend.Add(c.name, line)
	if c.low == nil {
		return nil
	}
	bars := struct {
		plotter.XYs
		plotter.YErrors
	}{XYs: points}
	for k := range points {
		bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{c.low[k], c.high[k]})
	}
	e, err := plotter.NewYErrorBars(bars)
	if err != nil {
		return err
	}
	e.Color = line.Color
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2)
	p.Add(e, dots)
	return nil
}

// powers labels an axis of log2 with the numbers themselves.
type powers struct{}

// Ticks implements plot.Ticker.
func (powers) Ticks(from, to float64) (list []plot.Tick) {
	for k := math.Ceil(from); k <= to; k++ {
		list = append(list, plot.Tick{Value: k, Label: fmt.Sprint(int(math.Exp2(k)))})
	}
	return list
}

func saveSVG(p *plot.Plot, file string) error {
	canvas := vgsvg.New(18*vg.Centimeter, 9*vg.Centimeter)
	const margin = 4 * vg.Millimeter
	p.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// The file names the font that gonum measured with; a reader without it must not
	// fall back to a serif one.
	out := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif"))
	return os.WriteFile(file, out, 0o644)
}
