package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plot draws every router's resident memory, and the heap of the first, over time.
func (run *uniqueRun) plot(file string) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Memory of %d routers over %d unique prompts", run.Routers, run.Prompts)
	p.X.Label.Text, p.Y.Label.Text = "time (s): load, idle, replicas removed", "MB"
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	// Okabe and Ito's colours, told apart by colour-blind readers too.
	colours := []color.Color{
		color.RGBA{R: 0, G: 114, B: 178, A: 255},
		color.RGBA{R: 230, G: 159, B: 0, A: 255},
		color.RGBA{R: 213, G: 94, B: 0, A: 255},
		color.RGBA{R: 0, G: 158, B: 115, A: 255},
	}
	add := func(name string, n int, get func(sample) float64) error {
		var points plotter.XYs
		for _, s := range run.Samples {
			points = append(points, plotter.XY{X: s.At, Y: get(s) / 1e6})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = colours[n%len(colours)], vg.Points(1.2)
		p.Add(line)
		p.Legend.Add(name, line)
		return nil
	}
	for i := range run.Routers {
		if err := add(fmt.Sprintf("RSS, router %d", i+1), i, func(s sample) float64 { return s.Routers[i].RSS }); err != nil {
			return err
		}
	}
	if err := add("heap, router 1", run.Routers, func(s sample) float64 { return s.Routers[0].Heap }); err != nil {
		return err
	}
	p.X.Min, p.Y.Min = 0, 0
	canvas := vgsvg.New(20*vg.Centimeter, 10*vg.Centimeter)
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
