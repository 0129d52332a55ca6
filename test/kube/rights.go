package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// rightsFile is what docs/operate.md names for routers that scale.
const rightsFile = "deploy/kubernetes/rbac.yaml"

// scaleWithoutRights looks at what is said while there are only the rights that
// discovery needs, and then gives those of the file.
func (t *trial) scaleWithoutRights(ctx context.Context) (string, error) {
	const lacks = "needs get on deployments/scale"
	if _, err := until(ctx, retriedWithin, "the leader names the right", func() (bool, string) {
		return strings.Contains(t.logs(), lacks), tail(t.logs())
	}); err != nil {
		return "", err
	}
	list, err := manifests(rightsFile)
	if err != nil {
		return "", err
	}
	return lacks, t.plane.admin.applyAll(ctx, list...)
}

// manifestsTaken lets the API server judge all manifests that the project has.
func (t *trial) manifestsTaken(ctx context.Context) (string, error) {
	n := 0
	for _, file := range []string{rightsFile, "deploy/kubernetes/engines.yaml", "deploy/kubernetes/routers.yaml"} {
		list, err := manifests(file)
		if err != nil {
			return "", err
		}
		for _, o := range list {
			if err := t.plane.admin.rehearse(ctx, o); err != nil {
				return "", err
			}
			n++
		}
	}
	return fmt.Sprintf("%d objects", n), nil
}

// rightsUsed compares what was asked for with what the file gives.
func (t *trial) rightsUsed(context.Context) (string, error) {
	list, err := manifests(rightsFile)
	if err != nil {
		return "", err
	}
	role, err := find(list, "/roles/"+account)
	if err != nil {
		return "", err
	}
	given, err := granted(role.manifest)
	if err != nil {
		return "", err
	}
	all, err := audit(t.plane.secrets.path("audit.log"))
	if err != nil {
		return "", err
	}
	used := kinds(all)
	if len(used) == 0 {
		return "", errors.New("the API server has written down nothing")
	}
	for _, what := range used {
		if !slices.Contains(given, what) {
			return "", fmt.Errorf("it did %s, which %s does not give", what, rightsFile)
		}
	}
	return strings.Join(used, ", "), nil
}
