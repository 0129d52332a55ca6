package whatif

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Variant is one of the things to compare: a configuration and what it differs by.
type Variant struct {
	Name string
	Config
}

// maxVariants bounds the runs of one comparison.
const maxVariants = 64

// settings are what a variant may change.
var settings = map[string]func(*Config, string) error{
	"policy":         func(c *Config, v string) error { c.Policy = v; return nil },
	"copy_weight":    number(func(c *Config) *float64 { return &c.Routing.CopyWeight }),
	"stream_weight":  number(func(c *Config) *float64 { return &c.Routing.StreamWeight }),
	"stream_tokens":  count(func(c *Config) *int { return &c.Routing.StreamTokens }),
	"stall_weight":   number(func(c *Config) *float64 { return &c.Routing.StallWeight }),
	"pending_credit": number(func(c *Config) *float64 { return &c.Routing.PendingCredit }),
	"faded_credit":   number(func(c *Config) *float64 { return &c.Routing.FadedCredit }),
	"near_share":     number(func(c *Config) *float64 { return &c.Routing.NearShare }),
	"hash_bound":     number(func(c *Config) *float64 { return &c.Routing.HashBound }),
	"speed":          number(func(c *Config) *float64 { return &c.Speed }),
	"hash_tokens":    count(func(c *Config) *int { return &c.Routing.HashTokens }),
	"routers":        count(func(c *Config) *int { return &c.Routers }),
	"replicas":       count(func(c *Config) *int { return &c.Replicas }),
	"kv_tokens":      count(func(c *Config) *int { return &c.KVTokens }),
	"batch_tokens":   count(func(c *Config) *int { return &c.BatchTokens }),
	"delay":          duration(func(c *Config) *time.Duration { return &c.Delay }),
	"read_every":     duration(func(c *Config) *time.Duration { return &c.ReadEvery }),
}

// Settings lists what a variant may change.
func Settings() []string { return slices.Sorted(maps.Keys(settings)) }

func number(at func(*Config) *float64) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *at(c), err = strconv.ParseFloat(v, 64); err != nil || math.IsNaN(*at(c)) {
			return fmt.Errorf("%q is not a number", v)
		}
		return nil
	}
}

func count(at func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *at(c), err = strconv.Atoi(strings.ReplaceAll(v, "_", "")); err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		return nil
	}
}

func duration(at func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *at(c), err = time.ParseDuration(v); err == nil {
			return nil
		}
		if _, bare := strconv.ParseFloat(v, 64); bare == nil {
			return fmt.Errorf("%s what? write %ss", v, v)
		}
		return fmt.Errorf("%q is not a duration such as 250ms or 5s", v)
	}
}

// Variants makes every combination of what the lists name, each "setting=value,value",
// in their order; the first one is what the others are compared with.
func Variants(base Config, lists []string) ([]Variant, error) {
	out := []Variant{{Config: base}}
	seen := map[string]bool{}
	for _, list := range lists {
		key, values, ok := strings.Cut(list, "=")
		key = strings.TrimSpace(key)
		set := settings[key]
		switch {
		case !ok || values == "":
			return nil, fmt.Errorf("%q is not setting=value,value", list)
		case set == nil:
			return nil, fmt.Errorf("unknown setting %q: use one of %s", key, strings.Join(Settings(), ", "))
		case seen[key]:
			return nil, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		var next []Variant
		for _, v := range out {
			for value := range strings.SplitSeq(values, ",") {
				value = strings.TrimSpace(value)
				x := v
				if err := set(&x.Config, value); err != nil {
					return nil, fmt.Errorf("%s: %w", key, err)
				}
				x.Name = strings.TrimPrefix(v.Name+" "+key+"="+value, " ")
				next = append(next, x)
			}
		}
		if out = next; len(out) > maxVariants {
			return nil, fmt.Errorf("more than %d combinations", maxVariants)
		}
	}
	var errs []error
	for i := range out {
		if err := out[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", out[i].Name, err))
		}
	}
	return out, errors.Join(errs...)
}
