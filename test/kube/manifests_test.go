package main

import (
	"path/filepath"
	"slices"
	"testing"
)

// The suite knows where every object of the project's manifests is, and reads what the
// Role gives.
func TestManifestsAreRead(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	var all []object
	for _, f := range files {
		list, err := manifests(f)
		if err != nil {
			t.Error(err)
		}
		all = append(all, list...)
	}
	role, err := find(all, "/roles/"+account)
	if err != nil {
		t.Fatal(err)
	}
	given, err := granted(role.manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range []string{"list pods", "watch pods", "patch pods", "update deployments/scale", "list horizontalpodautoscalers"} {
		if !slices.Contains(given, right) {
			t.Errorf("%q lacks %q", given, right)
		}
	}
	if slices.Contains(given, "update pods") {
		t.Errorf("%q has rights that no rule gives", given)
	}
	if _, err := find(all, "/roles/nobody"); err == nil {
		t.Error("found what is not there")
	}
}
