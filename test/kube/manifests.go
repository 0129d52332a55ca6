package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// served says where objects of a kind are.
var served = map[string]string{
	"ServiceAccount":      core + "serviceaccounts/",
	"ConfigMap":           core + "configmaps/",
	"Service":             core + "services/",
	"Deployment":          deployments,
	"StatefulSet":         "/apis/apps/v1/namespaces/" + namespace + "/statefulsets/",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets/",
	"Role":                rbac + "roles/",
	"RoleBinding":         rbac + "rolebindings/",
}

// manifests reads a file of them.
func manifests(file string) (list []object, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for dec := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var node yaml.Node
		if err := dec.Decode(&node); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var head struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		if err := node.Decode(&head); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		at, ok := served[head.Kind]
		if !ok {
			return nil, fmt.Errorf("%s: where objects of kind %q are is not known", file, head.Kind)
		}
		text, err := yaml.Marshal(&node)
		if err != nil {
			return nil, err
		}
		list = append(list, object{at + head.Metadata.Name, string(text)})
	}
}

// rehearse lets the API server judge a manifest as if it were applied.
func (c *client) rehearse(ctx context.Context, o object) error {
	err := c.do(ctx, http.MethodPatch, o.path+"?fieldManager=rehearsal&force=true&fieldValidation=Strict&dryRun=All", applyPatch, []byte(o.manifest), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", o.path, err)
	}
	return nil
}

// granted are what a Role gives, as asked.what has it.
func granted(role string) (list []string, err error) {
	var r struct {
		Rules []struct {
			Resources []string `yaml:"resources"`
			Verbs     []string `yaml:"verbs"`
		} `yaml:"rules"`
	}
	if err := yaml.Unmarshal([]byte(role), &r); err != nil {
		return nil, err
	}
	for _, rule := range r.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				list = append(list, verb+" "+resource)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// find is the object at a path.
func find(list []object, path string) (object, error) {
	i := slices.IndexFunc(list, func(o object) bool { return strings.HasSuffix(o.path, path) })
	if i < 0 {
		return object{}, fmt.Errorf("there is no manifest of %s", path)
	}
	return list[i], nil
}
