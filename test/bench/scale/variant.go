package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hearsay-llm/hearsay/autoscale"
)

// variant is hearsay with some of its constants changed; the zero one has its defaults.
type variant struct {
	text string
	set  func(c *autoscale.Config)
}

// never stands for 0, which is each constant's default.
const never = 1e-9

// variants reads a list such as "headroom=3;busiest=0.85,regrow=9".
func variants(s string) (list []variant, err error) {
	for _, text := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' }) {
		values := map[string]float64{}
		for _, one := range strings.Split(text, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
			x, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("variant %q: %w", one, err)
			}
			if constant(&autoscale.Config{}, name) == nil && name != "fade" && name != "rated" {
				return nil, fmt.Errorf("variant %q: no such constant", one)
			}
			values[name] = max(x, never)
		}
		list = append(list, variant{text, func(c *autoscale.Config) {
			for name, x := range values {
				switch name {
				case "fade":
					c.Fade = seconds(x * hour)
				case "rated":
					c.Rated = max(1, int(x))
				default:
					*constant(c, name) = x
				}
			}
		}})
	}
	return list, nil
}

// constant is one of the loop's by its name; nil: none.
func constant(c *autoscale.Config, name string) *float64 {
	return map[string]*float64{
		"utilisation": &c.Utilisation, "busiest": &c.Busiest, "headroom": &c.Headroom, "rush": &c.Rush,
		"margin": &c.DownMargin, "share": &c.DownShare, "regrow": &c.Regrow, "attainment": &c.Attainment,
	}[name]
}
