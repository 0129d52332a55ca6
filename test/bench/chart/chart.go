// Package chart draws the curves of the benchmarks below test/bench as SVG files.
// The legend stands beside the plot, never in it, so that it hides no curve.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is one picture. The Y axis begins at 0.
type Chart struct {
	Title string
	X, Y  string // labels of the axes, with their units
	Log2  bool   // a step to the right on the X axis is twice as much
	Lines []Line // those without points are left out
}

// Line is one curve.
type Line struct {
	Name   string
	Points []Point // by X
	Dashed bool
	Dots   bool // the points are marked, with their range where there is one
}

// Point is one of a curve's. Low and High are the ends of its range; both 0: none.
type Point struct{ X, Y, Low, High float64 }

// Okabe and Ito's colours, told apart by colour-blind readers too.
var colours = []color.Color{
	color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255},
	color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 204, G: 121, B: 167, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255},
}

// Save writes the chart; without a point it writes nothing.
func (c *Chart) Save(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Title.Padding = vg.Points(6)
	legend := plot.NewLegend()
	legend.Left, legend.Top = true, true // the sample first: text of any width then runs into nothing
	legend.Padding, legend.ThumbnailWidth = vg.Points(3), vg.Points(24)
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Add(plotter.NewGrid())
	top, drawn, longest := 0.0, 0, 0
	for i := range c.Lines {
		l := &c.Lines[i]
		if len(l.Points) == 0 {
			continue
		}
		if err := l.add(p, &legend, colours[drawn%len(colours)], c.Log2); err != nil {
			return fmt.Errorf("draw %s: %w", filepath.Base(file), err)
		}
		drawn++
		longest = max(longest, len(l.Name))
		for _, x := range l.Points {
			top = max(top, x.Y, x.High)
		}
	}
	if drawn == 0 {
		return nil
	}
	p.Y.Min, p.Y.Max = 0, top*1.05
	if c.Log2 {
		p.X.Tick.Marker = powers{}
	}
	return save(file, p, &legend, longest)
}

func (l *Line) add(p *plot.Plot, legend *plot.Legend, colour color.Color, log2 bool) error {
	var points plotter.XYs
	var bars struct {
		plotter.XYs
		plotter.YErrors
	}
	for _, x := range l.Points {
		at := plotter.XY{X: x.X, Y: x.Y}
		if log2 {
			at.X = math.Log2(x.X)
		}
		points = append(points, at)
		if x.Low != 0 || x.High != 0 {
			bars.XYs = append(bars.XYs, at)
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{x.Y - x.Low, x.High - x.Y})
		}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = colour, vg.Points(1.5)
	if l.Dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	p.Add(line)
	legend.Add(l.Name, line)
	if len(bars.XYs) > 0 {
		e, err := plotter.NewYErrorBars(bars)
		if err != nil {
			return err
		}
		e.Color = colour
		p.Add(e)
	}
	if l.Dots {
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.Color, dots.Shape, dots.Radius = colour, draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(dots)
	}
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

// Sizes of a picture: that of a plot, and of the legend beside it by the letters of
// its longest name, of a wider font than the one measured with.
const (
	width, height = 18 * vg.Centimeter, 9 * vg.Centimeter
	margin        = 4 * vg.Millimeter
	letter        = 7.5 // points
)

func save(file string, p *plot.Plot, legend *plot.Legend, longest int) error {
	beside := legend.ThumbnailWidth + vg.Points(letter*float64(longest)+20)
	canvas := vgsvg.New(width+beside, height)
	all := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	left := draw.Crop(all, 0, -beside, 0, 0)
	p.Draw(left)
	legend.Draw(draw.Crop(all, left.Max.X-left.Min.X+3*margin/2, 0, 0, -vg.Points(24)))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// The file names the font that gonum measured with; a reader without it must not
	// fall back to a serif one.
	out := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif"))
	return os.WriteFile(file, out, 0o644)
}
