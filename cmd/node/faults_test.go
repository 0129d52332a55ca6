package node

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// faultsOf are the lines of what Load says of a file, without the file's name.
func faultsOf(t *testing.T, text string, env ...string) []string {
	t.Helper()
	_, err := load(t, text, env...)
	if err == nil {
		return nil
	}
	head, rest, ofFile := strings.Cut(err.Error(), "hearsay.yaml")
	if !ofFile {
		return []string{err.Error()}
	}
	if strings.Contains(head, "\n") {
		t.Fatalf("no file is named first: %v", err)
	}
	lines := strings.Split(rest, "\n  ")
	if len(lines) == 1 {
		return []string{strings.TrimPrefix(lines[0], ": ")}
	}
	return lines[1:]
}

func TestEveryFaultOfAFileIsToldAtOnce(t *testing.T) {
	f := func(name, text string, want ...string) {
		t.Helper()
		got := faultsOf(t, text)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	f("more to found it than vote", `
cluster: {voters: 3, bootstrap_expect: 5}
pools: [{name: chat, model: m, replicas: [{url: "http://127.0.0.1:8000"}]}]
`, `line 2: cluster.bootstrap_expect: is 5, with 3 voters: 3 found the cluster, further routers only join it`)
	f("types, unknown keys and judgements", `
node: {name: [a], datadir: x}
listen:
  api: localhost
cluster: {voters: many, bootstrap_expect: 0}
api:
  max_body: lots
  debug: maybe
  drain_delay: 3
pools:
  - name: chat
    model: m
    retry: {attempts: two}
    slo: {ttft: soon, itl: -1s}
    breaker: {max_ejected: 120%, failures: 1.5}
    replicas: http://127.0.0.1:8000
  - model: {name: n}
    policy: best
    replicas:
      - url: "ftp://h"
        roll: both
`,
		`line 2: node.name: a list stands where a text is expected`,
		`line 2: node.datadir: is no key: did you mean data_dir?`,
		`line 4: listen.api: "localhost" is not host:port: write localhost:8080`,
		`line 5: cluster.voters: "many" is not a whole number`,
		`line 5: cluster.bootstrap_expect: is 0: the number of nodes that start a cluster is at least 1`,
		`line 7: api.max_body: "lots" is not a size such as 64MiB`,
		`line 8: api.debug: "maybe" is not true or false`,
		`line 9: api.drain_delay: "3" is not a duration such as 30s or 5m`,
		`line 13: pools[0].retry.attempts: "two" is not a whole number`,
		`line 14: pools[0].slo.ttft: "soon" is not a duration such as 30s or 5m`,
		`line 14: pools[0].slo.itl: is -1s: a time is not negative`,
		`line 15: pools[0].breaker.max_ejected: "120%" is not a share such as 50%`,
		`line 15: pools[0].breaker.failures: "1.5" is not a whole number`,
		`line 16: pools[0].replicas: "http://127.0.0.1:8000" stands where a list is expected: write [...] or lines that begin with -`,
		`line 17: pools[1].model: a mapping stands where a text is expected`,
		`line 17: pools[1].name: is missing`,
		`line 18: pools[1].policy: "best" is unknown: use `+strings.Join(Policies(), ", "),
		`line 20: pools[1].replicas[0].url: "ftp://h": the scheme must be http or https`,
		`line 21: pools[1].replicas[0].roll: is no key: did you mean role?`,
	)
	f("a section that is none", "listen: 8080\n", `line 1: listen: "8080" stands where keys with values are expected: api, admin, cluster, advertise`)
	f("a file that is a list", "- a\n- b\n", `line 1: a list stands where keys with values are expected: node, listen, cluster, api, admin, log, gateway, pools, diagnose`)
	f("a key of another section", "listen:\n  max_body: 1MiB\n", `line 2: listen.max_body: is no key: did you mean api.max_body?`)
	f("a key like no other", "node: {favourite_colour: red}\n", `line 1: node.favourite_colour: is no key: node takes name, data_dir`)
	f("a key twice", "node:\n  name: a\n  name: b\n", `line 3: node.name: stands twice: it is on line 2 already`)
	f("a key that is a list", "node: {[a]: b}\n", `line 1: node: a list stands where a key is expected`)
	f("zeros that are no values", "pools:\n  - name: c\n    model: m\n    retry: {attempts: 0}\n    breaker: {open: 0s}\n",
		`line 4: pools[0].retry.attempts: is 0: give more, or leave it out for the default (2)`,
		`line 5: pools[0].breaker.open: is 0: give more, or leave it out for the default (10s)`)
	f("an engine's command without a port", "pools:\n  - {name: c, model: m, scale: {actuator: process, command: [vllm]}}\n",
		`line 2: pools[0].scale.command: lacks {port}, which stands for the port that the engine is to listen on`)
	f("no YAML", "node: {name: a", `line 1: not YAML, here or below: did not find expected ',' or '}'`)
	f("an anchor in itself", "node: &n\n  <<: *n\n  name: a\n", `line 2: node.<<: takes a mapping, or a list of them, that does not hold itself`)
}

func TestFaultsOfTheEnvironmentNameTheVariable(t *testing.T) {
	f := func(text, env string, want ...string) {
		t.Helper()
		if got := faultsOf(t, text, env); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", env, got, want)
		}
	}
	f(minimal, "HEARSAY_CLUSTER_SECRET=foo", "HEARSAY_CLUSTER_SECRET: is not a configuration key of the environment: did you mean HEARSAY_CLUSTER_SECRET_FILE?")
	f(minimal, "HEARSAY_LISTEN_APPI=:1", "HEARSAY_LISTEN_APPI: is not a configuration key of the environment: did you mean HEARSAY_LISTEN_API?")
	f(minimal, "HEARSAY_CLUSTER_VOTERS=x", `HEARSAY_CLUSTER_VOTERS: cluster.voters: "x" is not a whole number`)
	for _, service := range []string{"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_API", "PORT", "PORT_8080_TCP", "PORT_8080_TCP_ADDR", "ADMIN_PORT_8081_TCP_PORT"} {
		if _, err := load(t, minimal, "HEARSAY_"+service+"=tcp://10.0.0.1:8080"); err != nil {
			t.Errorf("%s of a Kubernetes Service: %v", service, err)
		}
	}
	f(minimal, "HEARSAY_LISTEN_API=8080", `HEARSAY_LISTEN_API: listen.api: "8080" is not host:port: write :8080`)
	f(minimal, "HEARSAY_LISTEN_API=80800", `HEARSAY_LISTEN_API: listen.api: "80800" is not host:port`)
	f(minimal, "HEARSAY_LISTEN_API=here", `HEARSAY_LISTEN_API: listen.api: "here" is not host:port: write here:8080`)
	f(minimal, "HEARSAY_CLUSTER_JOIN=::1", `HEARSAY_CLUSTER_JOIN: cluster.join[0]: "::1" is not host:port: write [::1]:7946`)
	f(minimal, "HEARSAY_LISTEN_ADMIN=127.0.0.1", `HEARSAY_LISTEN_ADMIN: listen.admin: "127.0.0.1" is not host:port: write 127.0.0.1:8081`)
	f(minimal, "HEARSAY_LISTEN_ADMIN=http://h:1", `HEARSAY_LISTEN_ADMIN: listen.admin: "http://h:1" is not host:port`)
	f(minimal, "HEARSAY_CLUSTER_JOIN=a", `HEARSAY_CLUSTER_JOIN: cluster.join[0]: "a" is not host:port: write a:7946`)
	f("cluster: {join: [x, 'h:1']}\n"+minimal, "HEARSAY_CLUSTER_JOIN=h:1,a", `HEARSAY_CLUSTER_JOIN: cluster.join[1]: "a" is not host:port: write a:7946`)
	f(minimal, "HEARSAY_LISTEN_API=:8081", "HEARSAY_LISTEN_API: listen.admin: port 8081 is listen.api's too")
	f("listen: {api: ':8081'}\n"+minimal, "HEARSAY_NODE_NAME=r", "line 1: listen.admin: port 8081 is listen.api's too")
	f(minimal, "HEARSAY_API_MAX_BODY=2GiB", "HEARSAY_API_MAX_BODY: api.body_budget: is 1073741824 bytes: no less than api.max_body")
	f("cluster: {bootstrap_expect: 3}\n"+minimal, "HEARSAY_CLUSTER_VOTERS=1", "line 1: cluster.bootstrap_expect: is 3, with 1 voters: 1 found the cluster, further routers only join it")
	f(minimal, "HEARSAY_LOG_LEVEL=debg", `HEARSAY_LOG_LEVEL: log.level: "debg" is unknown: use debug, info, warn, error`)
	f(minimal, "HEARSAY_CLUSTER_SECRET_FILE=/none", `HEARSAY_CLUSTER_SECRET_FILE: cluster.secret_file: /none does not exist: all routers share it: make it once and copy it to each: (umask 077; openssl rand -hex 32 > /none)`)
	f(minimal, "HEARSAY_API_DEBUG=perhaps", `HEARSAY_API_DEBUG: api.debug: "perhaps" is not true or false`)
	f("cluster: {voters: many}\n"+minimal, "HEARSAY_CLUSTER_VOTERS=2", "HEARSAY_CLUSTER_VOTERS: cluster.voters: is 2: use 1, 3 or 5", `line 1: cluster.voters: "many" is not a whole number`)
	if _, err := load(t, minimal, "HEARSAY_PROCESS=mark", "HEARSAY_TOKEN=x"); err != nil {
		t.Errorf("variables that are not the configuration's: %v", err)
	}
}

// Whatever key a variable gives in a form that can't be read, the variable is named.
func TestEveryVariableIsNamedInItsFault(t *testing.T) {
	c, n := Defaults(), 0
	walk(reflect.ValueOf(&c).Elem(), "", func(key string, x reflect.Value) {
		if strings.HasPrefix(key, "pools") || x.Kind() == reflect.String || x.Kind() == reflect.Slice {
			return
		}
		n++
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
		if got := faultsOf(t, minimal, name+"=perhaps"); len(got) != 1 || !strings.HasPrefix(got[0], name+": "+key+`: "perhaps" is not `) {
			t.Errorf("%s: %q", name, got)
		}
	})
	if n < 10 {
		t.Errorf("only %d keys", n)
	}
}

// Flags win over the environment, and are named in what they make wrong.
func TestFaultsOfFlagsNameTheFlag(t *testing.T) {
	f := func(name, env string, given map[string]string, set func(*Config), want string) {
		t.Helper()
		_, err := LoadWith("", []string{env}, func(c *Config) (map[string]string, error) {
			set(c)
			return given, nil
		})
		got := ""
		if err != nil {
			got = err.Error()
			if v, ok := err.(interface{ ByFlag() bool }); !ok || v.ByFlag() != strings.HasPrefix(want, "--") {
				t.Errorf("%s: by a flag: %v", name, ok)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	api := map[string]string{"listen.api": "--listen"}
	f("a bad flag", "", api, func(c *Config) { c.Listen.API = "x" }, `--listen: listen.api: "x" is not host:port: write x:8080`)
	f("a port alone, where only this machine may", "", map[string]string{"listen.admin": "--admin"}, func(c *Config) { c.Listen.Admin = "8081" },
		`--admin: listen.admin: "8081" is not host:port: write 127.0.0.1:8081`)
	f("over a bad variable", "HEARSAY_LISTEN_API=x", api, func(c *Config) { c.Listen.API = ":1" }, "")
	f("over a bad list", "HEARSAY_CLUSTER_JOIN=x", map[string]string{"cluster.join": "--join"}, func(c *Config) { c.Cluster.Join = []string{"h:1", "y"} },
		`--join: cluster.join[1]: "y" is not host:port: write y:7946`)
	f("one of a list", "", map[string]string{"pools[0].replicas": "--replica", "pools[0].model": "--model"},
		func(c *Config) {
			c.Pools = []PoolConfig{{Name: "p", Model: "m", Replicas: []ReplicaConfig{{URL: "ftp://h"}}}}
		},
		`--replica: pools[0].replicas[0].url: "ftp://h": the scheme must be http or https`)
	f("takes a variable's port", "HEARSAY_LISTEN_ADMIN=127.0.0.1:9", api, func(c *Config) { c.Listen.API = ":9" }, "HEARSAY_LISTEN_ADMIN: listen.admin: port 9 is listen.api's too")
	f("takes a default's port", "", api, func(c *Config) { c.Listen.API = ":8081" }, "--listen: listen.admin: port 8081 is listen.api's too")
}

// What YAML offers to say things once works: anchors, aliases and merged mappings.
func TestMergedMappings(t *testing.T) {
	c, err := load(t, `
node: {name: r}
pools:
  - &first
    name: a
    model: m
    timeouts: {idle: 7s}
    scale: {min: 2, max: 4}
    replicas: [{url: "http://h:1"}]
  - <<: *first
    name: b
    model: n
    replicas: [{url: "http://h:2"}]
    scale: {max: 9}
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Pools[0], c.Pools[1]
	if b.Name != "b" || b.Model != "n" || b.Timeouts.Idle != 7*time.Second || a.Replicas[0].URL != "http://h:1" || b.Replicas[0].URL != "http://h:2" {
		t.Errorf("merged: %+v", b)
	}
	if a.Scale.Max != 4 || b.Scale.Max != 9 || b.Scale.Min != 0 {
		t.Errorf("own keys win whole: %+v, %+v", a.Scale, b.Scale)
	}
}

// A configuration shown by a router is a file that says the same.
func TestShownConfigurationLoads(t *testing.T) {
	c, err := load(t, "api: {max_body: 3000, body_budget: 1GiB}\n"+minimal+"    breaker: {max_ejected: 25%}\n")
	if err != nil {
		t.Fatal(err)
	}
	shown := asYAML(t, c)
	again, err := load(t, shown)
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	if asYAML(t, again) != shown {
		t.Errorf("shown:\n%s\nloaded:\n%s", shown, asYAML(t, again))
	}
}

func TestNearestName(t *testing.T) {
	f := func(s, want string) {
		t.Helper()
		if got := Nearest(s, []string{"api", "admin", "cluster", "advertise"}); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
	f("appi", "api")
	f("API", "api")
	f("clsuter", "cluster")
	f("advertised", "advertise")
	f("completely", "")
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(0, 8, 8).Draw(t, "a"), rapid.StringN(0, 8, 8).Draw(t, "b")
		if distance(a, b) != distance(b, a) || (distance(a, b) == 0) != (a == b) {
			t.Errorf("distance of %q and %q", a, b)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		minimal, "node: &n\n  <<: *n\n", "a: &a [*a]\n", "pools: [{name: c, replicas: [{url: x}]}]\n", "? [a]\n: b\n", "---\n---\n",
		"api: {max_body: 1e400}\npools:\n- breaker: {max_ejected: NaN}\n", "cluster: {join: [a, [b], {c: d}]}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Defaults()
		v := &faults{}
		decode(b, &c, v)
		c.Finish()
		c.validate(v)
		_ = v.err()
	})
}

func asYAML(t *testing.T, c Config) string {
	t.Helper()
	b, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type colour string

func (c *colour) UnmarshalText(b []byte) error {
	if len(b) == 0 || b[0] != '#' {
		return fmt.Errorf("%q is not a colour such as #fff", b)
	}
	*c = colour(b)
	return nil
}

type either struct{ text, list bool }

func (e *either) UnmarshalYAML(n *yaml.Node) error {
	e.text, e.list = n.Kind == yaml.ScalarNode, n.Kind == yaml.SequenceNode
	if !e.text && !e.list {
		return fmt.Errorf("give a text or a list")
	}
	return nil
}

// Types that no key has yet are read as their kind asks for.
func TestValuesOfFurtherTypes(t *testing.T) {
	type section struct {
		Number *int                     `yaml:"number"`
		Times  map[string]time.Duration `yaml:"times"`
		Share  float64                  `yaml:"share"`
		Count  uint8                    `yaml:"count,omitempty"`
		Colour colour                   `yaml:"colour"`
		Either either                   `yaml:"either"`
		Hidden string                   `yaml:"-"`
	}
	read := func(text string) (section, *faults) {
		var s section
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		v := &faults{}
		(&decoder{faults: v}).value(doc.Content[0], reflect.ValueOf(&s).Elem(), "")
		return s, v
	}
	s, v := read("number: 0x10\ntimes: {a: 1s, b: 2m}\nshare: .5\ncount: 7\ncolour: '#fff'\neither: [x]\n")
	if v.err() != nil || *s.Number != 16 || s.Times["b"] != 2*time.Minute || s.Share != .5 || s.Count != 7 || s.Colour != "#fff" || !s.Either.list {
		t.Errorf("%+v, %v", s, v.err())
	}
	_, v = read("number: 1.5\ntimes: {a: x}\nshare: .nan\ncount: 300\ncolour: red\neither: {a: b}\n-: x\n")
	want := []string{
		`line 1: number: "1.5" is not a whole number`, `line 2: times.a: "x" is not a duration such as 30s or 5m`,
		`line 3: share: ".nan" is not a number`, `line 4: count: "300" is not a whole number of 0 or more`,
		`line 5: colour: "red" is not a colour such as #fff`, `line 6: either: give a text or a list`, `line 7: -: is no key: `,
	}
	got := strings.Split(v.err().Error(), "\n  ")[1:]
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s, want %s", got[i], want[i])
		}
	}
}
