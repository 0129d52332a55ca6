package node

import (
	"time"

	"go.yaml.in/yaml/v3"
)

// asMap renders a configuration as the file would have it, for JSON: the same
// keys, durations and sizes as text.
func asMap(c Config) any {
	b, err := yaml.Marshal(c)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	var out map[string]any
	if err := yaml.Unmarshal(b, &out); err != nil {
		return map[string]string{"error": err.Error()}
	}
	return out
}

// age is the time since t in milliseconds; negative when it never was.
func age(t, now time.Time) float64 {
	if t.IsZero() {
		return -1
	}
	return float64(now.Sub(t).Microseconds()) / 1e3
}
