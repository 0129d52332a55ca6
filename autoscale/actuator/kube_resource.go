package actuator

import (
	"fmt"
	"net/url"
	"strings"
)

// Resource is a kind of Kubernetes objects, as paths of the API have it.
type Resource struct {
	Group   string // empty: the core
	Version string
	Plural  string
}

// known are the resources that are named without a version.
var known = map[string]Resource{
	"deployments.apps":       {"apps", "v1", "deployments"},
	"statefulsets.apps":      {"apps", "v1", "statefulsets"},
	"replicasets.apps":       {"apps", "v1", "replicasets"},
	"replicationcontrollers": {"", "v1", "replicationcontrollers"},
}

// ParseResource reads deployments.apps, statefulsets.apps, replicasets.apps,
// replicationcontrollers, or group/version/plural.
func ParseResource(s string) (Resource, error) {
	if r, ok := known[s]; ok {
		return r, nil
	}
	p := strings.Split(s, "/")
	if len(p) != 3 || p[0] == "" || p[1] == "" || p[2] == "" || strings.ContainsAny(s, " ?#%") {
		return Resource{}, fmt.Errorf("%q is no resource: use deployments.apps, statefulsets.apps, or group/version/plural such as leaderworkerset.x-k8s.io/v1/leaderworkersets", s)
	}
	return Resource{Group: p[0], Version: p[1], Plural: p[2]}, nil
}

func (r Resource) String() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

// path is where an object is.
func (r Resource) path(namespace, name string) string {
	api := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		api = "/api/" + r.Version
	}
	return api + "/namespaces/" + url.PathEscape(namespace) + "/" + r.Plural + "/" + url.PathEscape(name)
}
