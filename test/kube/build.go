package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
)

// version of Kubernetes that the module in binaries/ asks for.
const version = "v1.37.2"

// binaries are what is built, by package.
var binaries = []struct{ name, pkg string }{
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
}

// build builds the binaries that are not there, or of other sources.
func build(ctx context.Context, module, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return err
	}
	if !strings.Contains(strings.ReplaceAll(string(mod), " // indirect", "")+"\n", "k8s.io/kubernetes "+version+"\n") {
		return fmt.Errorf("%s asks for another Kubernetes than %s", module, version)
	}
	of := fmt.Sprintf("%x\n", sha256.Sum256(mod))
	for _, b := range binaries {
		path := filepath.Join(dir, b.name)
		_, missing := os.Stat(path)
		if was, err := os.ReadFile(path + ".of"); err == nil && missing == nil && string(was) == of {
			continue
		}
		if _, err := exec.LookPath("go"); err != nil {
			return errors.New("go is missing: Kubernetes is built with it")
		}
		fmt.Fprintf(os.Stderr, "building %s %s; all of Kubernetes takes some 10 minutes of CPU the first time\n", b.name, version)
		if err := procs.Do(
			ctx, module, "go", "build", "-trimpath", "-ldflags", ldflags(), "-o", path+".part", b.pkg,
		); err != nil {
			return fmt.Errorf("build %s: %w", b.name, err)
		}
		if err := os.Rename(path+".part", path); err != nil {
			return err
		}
		if err := os.WriteFile(path+".of", []byte(of), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ldflags make the binaries say their version: without it they call themselves v0.0.0.
func ldflags() string {
	const at = "k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", at, version, at, parts[0], at, parts[1])
}
