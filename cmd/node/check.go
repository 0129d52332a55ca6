package node

import (
	"fmt"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
)

// Check is Load for a look ahead: it also reports files that a router looks for only
// once it runs, and may do without for a while: the routers' certificates, lists of
// replicas, kubeconfigs and what those name. Nobody is called.
func Check(path string, environ []string) (Config, error) {
	v := &faults{file: path}
	cfg, err := read(path, environ, nil, v)
	if err != nil {
		return cfg, err
	}
	cfg.here(v, environ)
	cfg.ahead(v)
	return cfg, v.err()
}

// ahead reports files that Check looks for and Load does not.
func (c *Config) ahead(v *faults) {
	if t := c.Cluster.TLS; t.Cert != "" && t.Key != "" && t.CA != "" {
		r, err := newRouterTLS(t)
		if err == nil {
			err = r.refusable()
		}
		if err != nil {
			v.add("cluster.tls", "can't be used: %v", err)
		}
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		at := fmt.Sprintf("pools[%d]", i)
		if f := p.Discover.File; f != "" {
			if err := discovery.CheckFile(f); err != nil {
				v.add(at+".discover.file", "%s %v", f, err)
			}
		}
		d, s := &p.Discover.Kubernetes, &p.Scale.Kubernetes
		if d.any() {
			v.kubeconfig(at+".discover.kubernetes", d.Kubeconfig, d.Context)
		}
		if p.Scale.Actuator == "kubernetes" && (s.Kubeconfig != d.Kubeconfig || s.Context != d.Context) {
			v.kubeconfig(at+".scale.kubernetes", s.Kubeconfig, s.Context)
		}
	}
}

// kubeconfig reports what is wrong with a kubeconfig, by the section that names it. A
// Pod's service account (no kubeconfig) is the Pod's: it is not looked for.
func (f *faults) kubeconfig(at, path, context string) {
	if path == "" {
		return
	}
	if err := discovery.CheckKubeconfig(path, context); err != nil {
		f.add(at+".kubeconfig", "can't be used: %v", missing(err))
	}
}
