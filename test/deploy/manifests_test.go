package deploy

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hearsay-llm/hearsay/cmd/node"
)

// config is the configuration that the routers are given.
func (m *manifests) config(t *testing.T) node.Config {
	t.Helper()
	if len(m.configs) != 1 {
		t.Fatalf("%d ConfigMaps", len(m.configs))
	}
	dir := t.TempDir()
	text := m.configs[0].Data["hearsay.yaml"]
	for _, f := range []string{"cluster", "admin"} { // the Secret's
		path := filepath.Join(dir, f)
		if err := os.WriteFile(path, []byte(strings.Repeat("s", 32)), 0o600); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "/etc/hearsay-secret/"+f, path)
	}
	path := filepath.Join(dir, "hearsay.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := node.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRoutersFitTheirConfiguration(t *testing.T) {
	m := read(t)
	c := m.config(t)
	r := m.workload(t, "hearsay")
	x := r.Spec.Template.Spec.Containers[0]
	ports := map[string]int{}
	for _, p := range x.Ports {
		ports[p.Name] = p.Port
	}
	port := func(addr string) int {
		_, s, err := net.SplitHostPort(addr)
		n, nerr := strconv.Atoi(s)
		if err != nil || nerr != nil {
			t.Fatal(addr)
		}
		return n
	}
	want := map[string]int{
		"api": port(c.Listen.API), "admin": port(c.Listen.Admin), "cluster": port(c.Listen.Cluster),
		"cluster-udp": port(c.Listen.Cluster), "mesh": port(c.Listen.Cluster) + 1,
	}
	if !maps.Equal(ports, want) {
		t.Errorf("ports %v, want %v", ports, want)
	}
	if *r.Spec.Replicas != c.Cluster.BootstrapExpect || r.Spec.Management != "Parallel" {
		t.Errorf("%d replicas, %s; %d found the cluster", *r.Spec.Replicas, r.Spec.Management, c.Cluster.BootstrapExpect)
	}
	left := time.Duration(r.Spec.Template.Spec.Grace-x.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if left < c.API.DrainDelay+30*time.Second+15*time.Second { // streams drain, then consensus stops
		t.Errorf("%v for an orderly stop", left)
	}
	if x.Readiness.Get.Path != "/readyz" || x.Liveness.Get.Path != "/livez" || x.Startup.Get.Path != "/livez" || x.Readiness.Get.Port != "api" {
		t.Errorf("probes %+v, %+v, %+v", x.Readiness, x.Liveness, x.Startup)
	}
	mounts, volumes := map[string]string{}, map[string]bool{}
	for _, v := range x.Mounts {
		mounts[v.Path] = v.Name
	}
	for _, v := range r.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil && v.ConfigMap.Name != m.configs[0].Meta.Name {
			t.Errorf("no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	for _, v := range r.Spec.Claims {
		volumes[v.Meta.Name] = true
	}
	for path, name := range mounts {
		if !volumes[name] {
			t.Errorf("%s has no volume %s", path, name)
		}
	}
	if mounts[c.Node.DataDir] != "data" || mounts["/etc/hearsay-secret"] == "" || !slices.Contains(x.Command, "/etc/hearsay/hearsay.yaml") || mounts["/etc/hearsay"] == "" {
		t.Errorf("mounts %v, command %v", mounts, x.Command)
	}
	token := false // the tool has the one that the router reads from the same Secret
	for _, e := range x.Env {
		switch e.Name {
		case "HEARSAY_NODE_NAME", "HEARSAY_LISTEN_ADVERTISE":
			if e.From.Field.Path == "" {
				t.Errorf("%+v", e)
			}
		case "HEARSAY_TOKEN":
			for _, v := range r.Spec.Template.Spec.Volumes {
				token = token || v.Secret != nil && v.Secret.Name == e.From.Secret.Name && e.From.Secret.Key == "admin"
			}
		default:
			t.Errorf("%+v", e)
		}
	}
	if !token {
		t.Error("hearsay status in a Pod has no token")
	}
}

func TestObjectsFitEachOther(t *testing.T) {
	m := read(t)
	r := m.workload(t, "hearsay")
	labels := r.Spec.Template.Meta.Labels
	for _, s := range m.services {
		if !maps.Equal(s.Spec.Selector, labels) {
			t.Errorf("service %s selects %v", s.Meta.Name, s.Spec.Selector)
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(r.Spec.Template.Spec.Containers[0].Ports, func(q struct {
				Name     string `yaml:"name"`
				Port     int    `yaml:"containerPort"`
				Protocol string `yaml:"protocol"`
			},
			) bool {
				return q.Name == p.Target && q.Protocol == p.Protocol
			}) {
				t.Errorf("service %s, port %s: the routers have no such port", s.Meta.Name, p.Name)
			}
		}
	}
	peers := slices.IndexFunc(m.services, func(s service) bool { return s.Meta.Name == r.Spec.Service })
	if peers < 0 || m.services[peers].Spec.ClusterIP != "None" || !m.services[peers].Spec.NotReady {
		t.Errorf("service %s is not for peers", r.Spec.Service)
	}
	c := m.config(t)
	if c.Cluster.Join[0] != r.Spec.Service+":7946" {
		t.Errorf("join %v", c.Cluster.Join)
	}
	if !maps.Equal(r.Spec.Selector.MatchLabels, labels) || !maps.Equal(m.budgets[0].Spec.Selector.MatchLabels, labels) || m.budgets[0].Spec.Max != 1 {
		t.Errorf("selectors %v, %v", r.Spec.Selector, m.budgets[0].Spec)
	}
	b := m.bindings[0]
	if b.Role.Kind != "Role" || b.Role.Name != m.roles[0].Meta.Name || b.Subjects[0].Name != m.accounts[0].Meta.Name || r.Spec.Template.Spec.Account != m.accounts[0].Meta.Name {
		t.Errorf("%+v does not bind %s to %s", b, m.roles[0].Meta.Name, m.accounts[0].Meta.Name)
	}
	// The engines are those that the pool finds and sizes.
	p := c.Pools[0]
	e := m.workload(t, p.Scale.Kubernetes.Name)
	k, v, _ := strings.Cut(p.Discover.Kubernetes.Selector, "=")
	if e.Kind != "Deployment" || p.Scale.Kubernetes.Resource != "deployments.apps" || e.Spec.Template.Meta.Labels[k] != v || e.Spec.Template.Spec.Containers[0].Ports[0].Name != p.Discover.Kubernetes.Port {
		t.Errorf("pool %+v, engines %+v", p, e.Meta)
	}
	if e.Spec.Replicas != nil {
		t.Error("the engines' manifest sets replicas, which routers do")
	}
}

// A key that is misspelt is found.
func TestUnknownKeysAreFaults(t *testing.T) {
	for _, s := range []string{
		"{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {publishNotReady: true}}",
		"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {template: {spec: {containers: [{readyProbe: {}}]}}}}",
		"{apiVersion: v1beta1, kind: Service}",
	} {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(s), &n); err != nil {
			t.Fatal(err)
		}
		var m manifests
		if err := m.add(&n); err == nil {
			t.Errorf("%s is taken", s)
		}
	}
}
