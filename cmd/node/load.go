package node

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// Load reads a configuration file (none if path is empty) over the defaults, then
// the environment over both, fills in defaults and validates. environ has the
// form of os.Environ. The error names the file, and every fault found with its
// line or variable, its key, and what is expected.
func Load(path string, environ []string) (Config, error) { return LoadWith(path, environ, nil) }

// LoadWith is Load with flags over all: the function sets the keys that flags give,
// and returns by which flag each was given, for faults to name it. What it refuses
// is returned as it is. An error of Load's own kind has a method ByFlag() bool, which
// is true when a flag is at fault.
func LoadWith(path string, environ []string, flags func(*Config) (given map[string]string, err error)) (Config, error) {
	v := &faults{file: path}
	cfg, err := read(path, environ, flags, v)
	if err != nil {
		return cfg, err
	}
	cfg.here(v, environ)
	return cfg, v.err()
}

// read is Load without a look at what the machine has.
func read(path string, environ []string, flags func(*Config) (map[string]string, error), v *faults) (Config, error) {
	cfg := Defaults()
	if path != "" {
		b, err := readConfig(path)
		if err != nil {
			return cfg, fmt.Errorf("configuration: %w", err)
		}
		decode(b, &cfg, v)
	}
	applyEnv(&cfg, environ, v)
	if flags != nil {
		given, err := flags(&cfg)
		if err != nil {
			return cfg, err
		}
		for key, flag := range given {
			v.gave(key, flag)
		}
	}
	zeros := cfg.zeros(v)
	cfg.Finish()
	cfg.noZeros(zeros, v)
	cfg.validate(v)
	return cfg, nil
}

// maxConfig bounds a configuration file, maxNamed the other files that a configuration
// names.
const (
	maxConfig = 16 << 20
	maxNamed  = 1 << 20
)

// Streamed reports whether a path stands for what the process was given by its parent,
// such as /dev/stdin: it can be read once.
func Streamed(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

func readConfig(path string) ([]byte, error) {
	if !Streamed(path) {
		return state.ReadFile(path, maxConfig)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("read %s: it is larger than %d bytes", path, maxConfig)
	}
	return b, err
}

// zeros are the pools' numbers that the file gives as 0.
func (c *Config) zeros(v *faults) map[string]bool {
	zeros := map[string]bool{}
	walk(reflect.ValueOf(c).Elem(), "", func(key string, x reflect.Value) {
		if _, given := v.lines[key]; given && !v.unread[key] && x.IsZero() && (x.CanInt() || x.CanFloat()) {
			zeros[key] = true
		}
	})
	return zeros
}

// noZeros reports those that defaults have replaced: nobody asked for these.
func (c *Config) noZeros(zeros map[string]bool, v *faults) {
	walk(reflect.ValueOf(c).Elem(), "", func(key string, x reflect.Value) {
		if zeros[key] && !x.IsZero() {
			v.broken(key, "is 0: give more, or leave it out for the default (%v)", x.Interface())
		}
	})
}

// Finish fills in what depends on the host and on other keys.
func (c *Config) Finish() {
	if c.Node.Name == "" {
		c.Node.Name, _ = os.Hostname()
	}
	for i := range c.Pools {
		c.Pools[i].setDefaults()
	}
	for i := range c.Gateway.Keys {
		c.Gateway.Keys[i].setDefaults()
	}
}

const envPrefix = "HEARSAY_"

// notConfig are variables with our prefix that are not configuration keys: the
// command line's, and the mark of what the process actuator has started.
var notConfig = map[string]bool{"HEARSAY_SERVER": true, "HEARSAY_TOKEN": true, "HEARSAY_PROCESS": true}

// ofService reports whether Kubernetes sets the variable in the pods beside a Service
// named hearsay, or hearsay-something.
func ofService(name string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name+"_", "_SERVICE_PORT_") || strings.Contains(name+"_", "_PORT_")
}

// applyEnv sets keys from HEARSAY_SECTION_KEY variables.
func applyEnv(cfg *Config, environ []string, v *faults) {
	type target struct {
		key string
		v   reflect.Value
	}
	fields := map[string]target{}
	walk(reflect.ValueOf(cfg).Elem(), "", func(key string, x reflect.Value) {
		if !strings.Contains(key, "[") && !strings.HasPrefix(key, "pools") && !strings.HasPrefix(key, "gateway.keys") {
			fields[envPrefix+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = target{key, x}
		}
	})
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || notConfig[name] || ofService(name) {
			continue
		}
		f, ok := fields[name]
		if !ok {
			text := "is not a configuration key of the environment"
			var known []string
			for n := range fields {
				known = append(known, strings.ToLower(n))
			}
			slices.Sort(known)
			if _, ok := fields[name+"_FILE"]; ok { // secrets are in files
				text += ": did you mean " + name + "_FILE?"
			} else if near := Nearest(name, known); near != "" {
				text += ": did you mean " + strings.ToUpper(near) + "?"
			}
			v.list = append(v.list, fault{where: name, text: text})
			continue
		}
		v.gave(f.key, name)
		if f.v.Kind() == reflect.Slice && f.v.Type().Elem().Kind() == reflect.String {
			f.v.SetZero()
			for part := range strings.SplitSeq(value, ",") {
				if part = strings.TrimSpace(part); part != "" {
					f.v.Set(reflect.Append(f.v, reflect.ValueOf(part).Convert(f.v.Type().Elem())))
				}
			}
			continue
		}
		if err := setText(f.v, value); err != nil {
			v.broken(f.key, "%s", err)
		}
	}
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
		if err != nil || !(f >= 0 && f*u.factor <= 1<<50) {
			break
		}
		*b = Bytes(f * u.factor)
		return nil
	}
	return fmt.Errorf("%q is not a size such as 64MiB", s)
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

func (p *Percent) parse(text string) error {
	s, pct := strings.CutSuffix(strings.TrimSpace(text), "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if pct {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%q is not a share such as 50%%", text)
	}
	*p = Percent(f)
	return nil
}

// MarshalYAML writes a share in per cent.
func (p Percent) MarshalYAML() (any, error) {
	return strconv.FormatFloat(float64(p)*100, 'f', -1, 64) + "%", nil
}
