package node

import (
	"net"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

// DiscoverConfig says where further replicas of a pool are found, and what is believed
// of that.
type DiscoverConfig struct {
	File       string           `yaml:"file"` // path of a list of replicas, YAML or JSON
	DNS        DNSConfig        `yaml:"dns"`
	Kubernetes KubernetesConfig `yaml:"kubernetes"`
	Allow      []string         `yaml:"allow"` // networks and host names where replicas may be; empty: most
	Grace      time.Duration    `yaml:"grace"` // a replica that is listed no more is kept so long, draining
	Keep       time.Duration    `yaml:"keep"`  // an empty list after one of several is not believed so long
}

// DNSConfig is a name that stands for replicas.
type DNSConfig struct {
	Name   string        `yaml:"name"`
	Type   string        `yaml:"type"`   // a (A and AAAA) | srv
	Port   int           `yaml:"port"`   // of replicas that are found by address
	Scheme string        `yaml:"scheme"` // http | https
	Role   string        `yaml:"role"`
	Every  time.Duration `yaml:"every"`  // between two looks
	Server string        `yaml:"server"` // host:port of a DNS server; empty: the system's
}

// KubernetesConfig names objects of a Kubernetes cluster: one of Selector, Service and
// InferencePool.
type KubernetesConfig struct {
	Namespace     string `yaml:"namespace"`      // empty: the account's own
	Selector      string `yaml:"selector"`       // of Pods' labels
	Service       string `yaml:"service"`        // whose EndpointSlices are followed
	InferencePool string `yaml:"inference_pool"` // whose selector and target ports are followed
	Port          string `yaml:"port"`           // number or name; empty: the only one there is
	Scheme        string `yaml:"scheme"`         // http | https
	Kubeconfig    string `yaml:"kubeconfig"`     // file; empty: the Pod's service account
	Context       string `yaml:"context"`        // of the kubeconfig; empty: its current one
}

var (
	dnsTypes = []string{"a", "srv"}
	schemes  = []string{"http", "https"}
)

// any reports whether something is to be discovered.
func (d *DiscoverConfig) any() bool {
	return d.File != "" || d.DNS.Name != "" || d.Kubernetes.any()
}

func (k *KubernetesConfig) any() bool {
	return k.Selector != "" || k.Service != "" || k.InferencePool != ""
}

// setDefaults fills in what a pool that discovers left out. The others are left as
// they are, so that validate sees what is lost.
func (d *DiscoverConfig) setDefaults() {
	def := func(v *string, s string) {
		if *v == "" {
			*v = s
		}
	}
	if d.any() && d.Grace == 0 {
		d.Grace = discovery.DefaultGrace
	}
	if d.any() && d.Keep == 0 {
		d.Keep = discovery.DefaultKeep
	}
	if d.DNS.Name != "" {
		def(&d.DNS.Type, dnsTypes[0])
		def(&d.DNS.Scheme, schemes[0])
		def(&d.DNS.Role, string(state.RoleBoth))
		if d.DNS.Every == 0 {
			d.DNS.Every = discovery.DefaultDNSEvery
		}
	}
	if d.Kubernetes.any() {
		def(&d.Kubernetes.Scheme, schemes[0])
	}
}

func (d *DiscoverConfig) validate(v *faults, at string) {
	if _, err := discovery.ParseAllow(d.Allow); err != nil {
		v.add(at+".allow", "%v", err)
	}
	d.DNS.validate(v, at+".dns")
	d.Kubernetes.validate(v, at+".kubernetes")
}

func (d *DNSConfig) validate(v *faults, at string) {
	if d.Name == "" {
		if *d != (DNSConfig{}) {
			v.add(at+".name", "is missing: the name whose addresses or SRV records are the replicas")
		}
		return
	}
	v.oneOf(at+".type", d.Type, dnsTypes)
	v.oneOf(at+".scheme", d.Scheme, schemes)
	v.oneOf(at+".role", d.Role, roles)
	switch {
	case d.Type == "srv" && d.Port != 0:
		v.add(at+".port", "is %d: SRV records have ports, leave it out", d.Port)
	case d.Type == "a" && (d.Port < 1 || d.Port > 65535):
		v.add(at+".port", "is %d: the replicas' port, 1 to 65535", d.Port)
	}
	if d.Every < time.Second {
		v.add(at+".every", "is %v: at least 1s", d.Every)
	}
	if _, _, err := net.SplitHostPort(d.Server); d.Server != "" && err != nil {
		v.add(at+".server", "%q is not host:port", d.Server)
	}
}

// validate judges a pool's part of Kubernetes.
func (k *KubernetesConfig) validate(v *faults, at string) {
	if !k.any() {
		if *k != (KubernetesConfig{}) {
			v.add(at, "lacks selector, service or inference_pool: one of them says which replicas there are")
		}
		return
	}
	n := 0
	for _, s := range []string{k.Selector, k.Service, k.InferencePool} {
		if s != "" {
			n++
		}
	}
	if n > 1 {
		v.add(at, "has %d of selector, service and inference_pool: give one", n)
	}
	v.oneOf(at+".scheme", k.Scheme, schemes)
	if p, err := strconv.Atoi(k.Port); err == nil && (p < 1 || p > 65535) {
		v.add(at+".port", "is %d: 1 to 65535, or a port's name", p)
	}
	if k.InferencePool != "" && k.Port != "" {
		v.add(at+".port", "is %q: an InferencePool has target ports, leave it out", k.Port)
	}
	if k.Context != "" && k.Kubeconfig == "" {
		v.add(at+".context", "is %q, of no kubeconfig: name the file", k.Context)
	}
}
