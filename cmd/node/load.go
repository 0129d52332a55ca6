package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Load reads a configuration file (none if path is empty) over the defaults, then
// the environment over both, fills in defaults and validates. environ has the
// form of os.Environ. The error names the file, the line where there is one, and
// every fault found.
func Load(path string, environ []string) (Config, error) {
	cfg := Defaults()
	if path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return cfg, fmt.Errorf("read configuration: %w", err)
		}
		if err := decode(b, &cfg); err != nil {
			return cfg, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := applyEnv(&cfg, environ); err != nil {
		return cfg, err
	}
	cfg.Finish()
	if err := cfg.Validate(); err != nil {
		if path != "" {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return cfg, err
	}
	return cfg, nil
}

// Finish fills in what depends on the host and on other keys.
func (c *Config) Finish() {
	if c.Node.Name == "" {
		c.Node.Name, _ = os.Hostname()
	}
	for i := range c.Pools {
		c.Pools[i].setDefaults()
	}
}

// decode reads one YAML document strictly: unknown keys are errors with their line.
func decode(b []byte, cfg *Config) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(cfg); err != nil && !errors.Is(err, io.EOF) {
		if text, ok := strings.CutPrefix(err.Error(), "yaml: "); ok && !strings.Contains(text, "line ") {
			return fmt.Errorf("line 1: %s", text) // the library names no line when it is the first
		}
		return err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one YAML document")
	}
	return nil
}

const envPrefix = "HEARSAY_"

// notConfig are variables with our prefix that are not configuration keys.
var notConfig = map[string]bool{"HEARSAY_SERVER": true, "HEARSAY_TOKEN": true}

// applyEnv sets keys from HEARSAY_SECTION_KEY variables.
func applyEnv(cfg *Config, environ []string) error {
	fields := map[string]reflect.Value{}
	v := reflect.ValueOf(cfg).Elem()
	for i := range v.NumField() {
		section := v.Type().Field(i)
		if section.Type.Kind() != reflect.Struct {
			continue
		}
		for j := range section.Type.NumField() {
			name := envPrefix + strings.ToUpper(section.Tag.Get("yaml")+"_"+section.Type.Field(j).Tag.Get("yaml"))
			fields[name] = v.Field(i).Field(j)
		}
	}
	var errs []error
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || notConfig[name] {
			continue
		}
		f, ok := fields[name]
		if !ok {
			errs = append(errs, fmt.Errorf("environment: %s is not a configuration key", name))
			continue
		}
		if err := setField(f, value); err != nil {
			errs = append(errs, fmt.Errorf("environment: %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func setField(f reflect.Value, s string) error {
	switch p := f.Addr().Interface().(type) {
	case *string:
		*p = s
	case *bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is not true or false", s)
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
		*p = n
	case *time.Duration:
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 5m", s)
		}
		*p = d
	case *Bytes:
		return p.parse(s)
	case *[]string:
		*p = nil
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*p = append(*p, part)
			}
		}
	default:
		return fmt.Errorf("can't be set from the environment")
	}
	return nil
}

// Bytes is a size; in files a number with an optional unit: 64MiB, 16KiB, 1GB.
type Bytes int64

var units = []struct {
	suffix string
	factor float64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"B", 1},
	{"", 1},
}

func (b *Bytes) parse(s string) error {
	for _, u := range units {
		n, ok := strings.CutSuffix(strings.TrimSpace(s), u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
		if err != nil || f < 0 || f*u.factor > 1<<50 {
			break
		}
		*b = Bytes(f * u.factor)
		return nil
	}
	return fmt.Errorf("%q is not a size such as 64MiB", s)
}

// UnmarshalYAML reads a size.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	if err := b.parse(n.Value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// MarshalYAML writes a size with the largest whole unit.
func (b Bytes) MarshalYAML() (any, error) {
	for _, u := range units[:3] {
		if f := Bytes(u.factor); b >= f && b%f == 0 {
			return strconv.FormatInt(int64(b/f), 10) + u.suffix, nil
		}
	}
	return int64(b), nil
}

// Percent is a share 0..1; in files 50% or 0.5.
type Percent float64

// UnmarshalYAML reads a share.
func (p *Percent) UnmarshalYAML(n *yaml.Node) error {
	s, pct := strings.CutSuffix(strings.TrimSpace(n.Value), "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if pct {
		f /= 100
	}
	if err != nil || f < 0 || f > 1 {
		return fmt.Errorf("line %d: %q is not a share such as 50%%", n.Line, n.Value)
	}
	*p = Percent(f)
	return nil
}

// MarshalYAML writes a share in per cent.
func (p Percent) MarshalYAML() (any, error) {
	return strconv.FormatFloat(float64(p)*100, 'f', -1, 64) + "%", nil
}
