package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestLegendStandsBesideThePlot(t *testing.T) {
	c := Chart{Title: "Hits", X: "routers", Y: "share of prompt tokens", Log2: true, Lines: []Line{
		{Name: "told by nobody", Dots: true, Points: []Point{{X: 1, Y: 0.9}, {X: 2, Y: 0.7, Low: 0.6, High: 0.8}, {X: 32, Y: 0.5}}},
		{Name: "without points"},
		{Name: "told", Dashed: true, Points: []Point{{X: 1, Y: 0.9}, {X: 32, Y: 0.9}}},
	}}
	file := filepath.Join(t.TempDir(), "x.svg")
	if err := c.Save(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	svg := string(b)
	if strings.Contains(svg, "without points") {
		t.Error("a line without points is in the legend")
	}
	right := 0.0 // of the plot: its last tick's label
	at := map[string]float64{}
	for _, m := range regexp.MustCompile(`<text x="([-0-9.]+)"[^>]*>([^<]*)</text>`).FindAllStringSubmatch(svg, -1) {
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		at[m[2]] = x
		if m[2] == "32" {
			right = x
		}
	}
	if right == 0 {
		t.Fatalf("no label 32 on the axis: %v", at)
	}
	for _, name := range []string{"told by nobody", "told"} {
		if at[name] < right+10 {
			t.Errorf("%q begins at %v, the plot ends at %v", name, at[name], right)
		}
	}
}

func TestNothingToDrawWritesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.svg")
	c := Chart{Lines: []Line{{Name: "empty"}}}
	if err := c.Save(file); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a file was written: %v", err)
	}
}
