package replay

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth   = 20 * vg.Centimeter
	plotHeight  = 10 * vg.Centimeter
	plotMargin  = 4 * vg.Millimeter
	plotWindows = 60  // over a run's time
	cdfPoints   = 400 // of a curve
)

// ErrNothingToPlot is returned by WritePlot for a report without a whole answer.
var ErrNothingToPlot = errors.New("no whole answer to plot")

// WritePlot writes ttft_cdf.svg, ttft_time.svg and, when hits were reported, hit_rate_time.svg to dir, which it makes if needed.
// It returns the paths written, also with an error.
func (r *Report) WritePlot(dir string) ([]string, error) {
	if r.OK == 0 {
		return nil, ErrNothingToPlot
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("plot: %w", err)
	}
	plots := []struct {
		file string
		draw func() (*plot.Plot, error)
	}{
		{"ttft_cdf.svg", r.plotCDF},
		{"ttft_time.svg", r.plotTTFT},
		{"hit_rate_time.svg", r.plotHits},
	}
	if r.HitRate == nil {
		plots = plots[:2]
	}
	var written []string
	for _, p := range plots {
		drawn, err := p.draw()
		if err != nil {
			return written, fmt.Errorf("plot %s: %w", p.file, err)
		}
		path := filepath.Join(dir, p.file)
		if err := saveSVG(drawn, path); err != nil {
			return written, fmt.Errorf("plot: %w", err)
		}
		written = append(written, path)
	}
	return written, nil
}

func saveSVG(p *plot.Plot, path string) error {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(canvas), plotMargin, -plotMargin, plotMargin, -plotMargin))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// The file names the font that gonum measured with; a reader without it must not fall back to a serif one.
	return os.WriteFile(path, bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif")), 0o644)
}

func (r *Report) plotCDF() (*plot.Plot, error) {
	values := make([]float64, 0, r.OK)
	for _, s := range r.samples {
		if s.kind == OK {
			values = append(values, s.ttft.Seconds()*r.Speed)
		}
	}
	newDist(values) // sorts
	line := make(plotter.XYs, 0, cdfPoints+1)
	for i := range cdfPoints + 1 {
		q := float64(i) / cdfPoints
		line = append(line, plotter.XY{X: percentile(values, q), Y: q})
	}
	p := r.newPlot("Time to first token", "TTFT (s)", "share of requests")
	p.Y.Min, p.Y.Max, p.X.Min = 0, 1, 0
	if last := line[len(line)-1].X; last == 0 {
		p.X.Max = 1 // gonum needs a range
	}
	return p, addLine(p, "", line, 0)
}

func (r *Report) plotTTFT() (*plot.Plot, error) {
	windows, width := r.windows()
	curves := [3]plotter.XYs{}
	for i, w := range windows {
		if w.ttft.Count == 0 {
			continue
		}
		x := (float64(i) + 0.5) * width
		for k, y := range [3]float64{w.ttft.P50, w.ttft.P90, w.ttft.P99} {
			curves[k] = append(curves[k], plotter.XY{X: x, Y: y * r.Speed})
		}
	}
	p := r.newPlot("Time to first token over time", "time of sending (s)", "TTFT (s)")
	p.X.Min, p.X.Max, p.Y.Min = 0, width*float64(len(windows)), 0
	for k, name := range [3]string{"p50", "p90", "p99"} {
		if err := addLine(p, name, curves[k], k); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *Report) plotHits() (*plot.Plot, error) {
	windows, width := r.windows()
	var inWindow, soFar plotter.XYs
	var prompt, cached int64
	for i, w := range windows {
		if w.prompt == 0 {
			continue
		}
		prompt += w.prompt
		cached += w.cached
		x := (float64(i) + 0.5) * width
		inWindow = append(inWindow, plotter.XY{X: x, Y: float64(w.cached) / float64(w.prompt)})
		soFar = append(soFar, plotter.XY{X: x, Y: float64(cached) / float64(prompt)})
	}
	p := r.newPlot("Cache hit rate over time", "time of sending (s)", "cached / prompt tokens")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, width*float64(len(windows)), 0, 1
	return p, errors.Join(addLine(p, "window", inWindow, 0), addLine(p, "so far", soFar, 2))
}

type windowSum struct {
	ttft           Dist // wall-clock seconds
	prompt, cached int64
}

// windows cuts the run into equal parts by time of sending; width is in the engine's seconds.
func (r *Report) windows() ([]windowSum, float64) {
	var last time.Duration
	for _, s := range r.samples {
		last = max(last, s.sent)
	}
	step := last/plotWindows + 1
	windows := make([]windowSum, plotWindows)
	ttft := make([][]float64, plotWindows)
	for _, s := range r.samples {
		if !s.begun {
			continue
		}
		i := int(s.sent / step)
		if s.kind == OK {
			ttft[i] = append(ttft[i], s.ttft.Seconds())
		}
		if s.usage.known {
			windows[i].prompt += int64(s.usage.prompt)
			windows[i].cached += int64(s.usage.cached)
		}
	}
	for i := range windows {
		windows[i].ttft = newDist(ttft[i])
	}
	return windows, step.Seconds() * r.Speed
}

func (r *Report) newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	if r.Trace != "" {
		p.Title.Text += ": " + r.Trace
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, style := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		style.Variant = "Sans"
	}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

func addLine(p *plot.Plot, name string, points plotter.XYs, style int) error {
	if len(points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	// Okabe and Ito's colours, told apart by colour-blind readers too.
	line.Color = [3]color.Color{
		color.RGBA{R: 0, G: 114, B: 178, A: 255},
		color.RGBA{R: 230, G: 159, B: 0, A: 255},
		color.RGBA{R: 213, G: 94, B: 0, A: 255},
	}[style]
	line.Width = vg.Points(1.2)
	p.Add(line)
	if name != "" {
		p.Legend.Add(name, line)
	}
	return nil
}
