package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// What is here is the part of Kubernetes' objects that the manifests use, with the names
// of its API: a key that is not here is a fault.
type (
	meta struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	}
	selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	object struct {
		API  string `yaml:"apiVersion"`
		Kind string `yaml:"kind"`
		Meta meta   `yaml:"metadata"`
	}
	configMap struct {
		object `yaml:",inline"`
		Data   map[string]string `yaml:"data"`
	}
	role struct {
		object `yaml:",inline"`
		Rules  []struct {
			Groups    []string `yaml:"apiGroups"`
			Resources []string `yaml:"resources"`
			Names     []string `yaml:"resourceNames"`
			Verbs     []string `yaml:"verbs"`
		} `yaml:"rules"`
	}
	binding struct {
		object `yaml:",inline"`
		Role   struct {
			Group string `yaml:"apiGroup"`
			Kind  string `yaml:"kind"`
			Name  string `yaml:"name"`
		} `yaml:"roleRef"`
		Subjects []struct {
			Kind string `yaml:"kind"`
			Name string `yaml:"name"`
		} `yaml:"subjects"`
	}
	service struct {
		object `yaml:",inline"`
		Spec   struct {
			ClusterIP string            `yaml:"clusterIP"`
			NotReady  bool              `yaml:"publishNotReadyAddresses"`
			Selector  map[string]string `yaml:"selector"`
			Ports     []struct {
				Name     string `yaml:"name"`
				Port     int    `yaml:"port"`
				Target   string `yaml:"targetPort"`
				Protocol string `yaml:"protocol"`
			} `yaml:"ports"`
		} `yaml:"spec"`
	}
	budget struct {
		object `yaml:",inline"`
		Spec   struct {
			Max      int      `yaml:"maxUnavailable"`
			Selector selector `yaml:"selector"`
		} `yaml:"spec"`
	}
	workload struct { // a Deployment or a StatefulSet
		object `yaml:",inline"`
		Spec   struct {
			Service    string   `yaml:"serviceName"`
			Replicas   *int     `yaml:"replicas"`
			Management string   `yaml:"podManagementPolicy"`
			Selector   selector `yaml:"selector"`
			Template   struct {
				Meta meta    `yaml:"metadata"`
				Spec podSpec `yaml:"spec"`
			} `yaml:"template"`
			Claims []struct {
				Meta meta `yaml:"metadata"`
				Spec struct {
					Modes     []string  `yaml:"accessModes"`
					Resources resources `yaml:"resources"`
				} `yaml:"spec"`
			} `yaml:"volumeClaimTemplates"`
		} `yaml:"spec"`
	}
	podSpec struct {
		Account  string `yaml:"serviceAccountName"`
		Grace    int    `yaml:"terminationGracePeriodSeconds"`
		Security struct {
			NonRoot bool `yaml:"runAsNonRoot"`
			User    int  `yaml:"runAsUser"`
			Group   int  `yaml:"runAsGroup"`
			FSGroup int  `yaml:"fsGroup"`
			Seccomp struct {
				Type string `yaml:"type"`
			} `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		Spread []struct {
			Skew     int      `yaml:"maxSkew"`
			Key      string   `yaml:"topologyKey"`
			When     string   `yaml:"whenUnsatisfiable"`
			Selector selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container `yaml:"containers"`
		Volumes    []struct {
			Name      string `yaml:"name"`
			ConfigMap *struct {
				Name string `yaml:"name"`
			} `yaml:"configMap"`
			Secret *struct {
				Name string `yaml:"secretName"`
				Mode int    `yaml:"defaultMode"`
			} `yaml:"secret"`
		} `yaml:"volumes"`
	}
	container struct {
		Name    string   `yaml:"name"`
		Image   string   `yaml:"image"`
		Command []string `yaml:"command"`
		Args    []string `yaml:"args"`
		Env     []struct {
			Name string `yaml:"name"`
			From struct {
				Field struct {
					Path string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
				Secret struct {
					Name string `yaml:"name"`
					Key  string `yaml:"key"`
				} `yaml:"secretKeyRef"`
			} `yaml:"valueFrom"`
		} `yaml:"env"`
		Ports []struct {
			Name     string `yaml:"name"`
			Port     int    `yaml:"containerPort"`
			Protocol string `yaml:"protocol"`
		} `yaml:"ports"`
		Readiness probe `yaml:"readinessProbe"`
		Liveness  probe `yaml:"livenessProbe"`
		Startup   probe `yaml:"startupProbe"`
		Lifecycle struct {
			PreStop struct {
				Sleep struct {
					Seconds int `yaml:"seconds"`
				} `yaml:"sleep"`
			} `yaml:"preStop"`
		} `yaml:"lifecycle"`
		Resources resources `yaml:"resources"`
		Security  struct {
			Escalation   bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly     bool `yaml:"readOnlyRootFilesystem"`
			Capabilities struct {
				Drop []string `yaml:"drop"`
			} `yaml:"capabilities"`
		} `yaml:"securityContext"`
		Mounts []struct {
			Name     string `yaml:"name"`
			Path     string `yaml:"mountPath"`
			ReadOnly bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	probe struct {
		Get struct {
			Path string `yaml:"path"`
			Port string `yaml:"port"`
		} `yaml:"httpGet"`
		Period   int `yaml:"periodSeconds"`
		Failures int `yaml:"failureThreshold"`
	}
	resources struct {
		Requests map[string]string `yaml:"requests"`
		Limits   map[string]string `yaml:"limits"`
	}
)

// manifests are all objects of deploy/kubernetes.
type manifests struct {
	configs   []configMap
	accounts  []object
	roles     []role
	bindings  []binding
	services  []service
	budgets   []budget
	workloads []workload
}

// read reads the manifests. Unknown keys, kinds and versions are faults.
func read(t *testing.T) (m manifests) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for dec := yaml.NewDecoder(bytes.NewReader(b)); ; {
			var n yaml.Node
			if err := dec.Decode(&n); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if err := m.add(&n); err != nil {
				t.Errorf("%s, line %d: %v", f, n.Line, err)
			}
		}
	}
	return m
}

func (m *manifests) add(n *yaml.Node) error {
	var o object
	if err := n.Decode(&o); err != nil {
		return err
	}
	switch o.API + " " + o.Kind {
	case "v1 ConfigMap":
		return strict(n, &m.configs)
	case "v1 ServiceAccount":
		return strict(n, &m.accounts)
	case "rbac.authorization.k8s.io/v1 Role":
		return strict(n, &m.roles)
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return strict(n, &m.bindings)
	case "v1 Service":
		return strict(n, &m.services)
	case "policy/v1 PodDisruptionBudget":
		return strict(n, &m.budgets)
	case "apps/v1 StatefulSet", "apps/v1 Deployment":
		return strict(n, &m.workloads)
	}
	return errors.New(o.API + " " + o.Kind + " is not known")
}

// strict reads a document into a new element of a list.
func strict[T any](n *yaml.Node, list *[]T) error {
	b, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	var x T
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&x); err != nil {
		return err
	}
	*list = append(*list, x)
	return nil
}

func (m *manifests) workload(t *testing.T, name string) *workload {
	t.Helper()
	for i := range m.workloads {
		if m.workloads[i].Meta.Name == name {
			return &m.workloads[i]
		}
	}
	t.Fatalf("no workload %s", name)
	return nil
}
