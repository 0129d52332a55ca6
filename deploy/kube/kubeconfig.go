package kube

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hearsay-llm/hearsay/state"
)

// kubeconfigFile is the part of a kubeconfig that is understood. Keys beyond it are
// others' business.
type kubeconfigFile struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster   string `yaml:"cluster"`
			User      string `yaml:"user"`
			Namespace string `yaml:"namespace"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server   string `yaml:"server"`
			CA       string `yaml:"certificate-authority"`
			CAData   string `yaml:"certificate-authority-data"`
			Insecure bool   `yaml:"insecure-skip-tls-verify"`
			Name     string `yaml:"tls-server-name"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string   `yaml:"name"`
		User userFile `yaml:"user"`
	} `yaml:"users"`
}

type userFile struct {
	Token     string    `yaml:"token"`
	TokenFile string    `yaml:"tokenFile"`
	Cert      string    `yaml:"client-certificate"`
	CertData  string    `yaml:"client-certificate-data"`
	Key       string    `yaml:"client-key"`
	KeyData   string    `yaml:"client-key-data"`
	Exec      yaml.Node `yaml:"exec"`
	Provider  yaml.Node `yaml:"auth-provider"`
	Username  string    `yaml:"username"`
}

// fromKubeconfig is the access that a kubeconfig describes, by one of its contexts, or
// its current one if that is empty.
func fromKubeconfig(path, context string) (*Access, error) {
	b, err := state.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	var f kubeconfigFile
	if err := yaml.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s is no kubeconfig: %s", path, InYAML(err))
	}
	if context == "" {
		context = f.Current
	}
	for _, c := range f.Contexts {
		if c.Name == context {
			a := &Access{namespace: c.Context.Namespace}
			dir := filepath.Dir(path) // paths in it are relative to it
			if err := errors.Join(f.cluster(a, c.Context.Cluster, dir), f.user(a, c.Context.User, dir)); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return a, nil
		}
	}
	return nil, fmt.Errorf("%s has no context %q", path, context)
}

func (f *kubeconfigFile) cluster(a *Access, name, dir string) (err error) {
	for _, c := range f.Clusters {
		if c.Name != name {
			continue
		}
		a.server, a.insecure, a.name = c.Cluster.Server, c.Cluster.Insecure, c.Cluster.Name
		if u, err := url.Parse(a.server); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return fmt.Errorf("cluster %s: server %q is not a URL", name, a.server)
		}
		a.ca, err = inPEM(c.Cluster.CAData, c.Cluster.CA, dir)
		return err
	}
	return fmt.Errorf("no cluster %q", name)
}

func (f *kubeconfigFile) user(a *Access, name, dir string) error {
	for _, u := range f.Users {
		if u.Name != name {
			continue
		}
		x := &u.User
		if !x.Exec.IsZero() || !x.Provider.IsZero() || x.Username != "" {
			return fmt.Errorf("user %s: only token, tokenFile and client certificates are understood, not exec, auth-provider or passwords", name)
		}
		a.token = secret{text: []byte(x.Token)}
		if x.TokenFile != "" {
			a.token = secret{file: at(dir, x.TokenFile)}
		}
		var cerr, kerr error
		a.cert, cerr = inPEM(x.CertData, x.Cert, dir)
		a.key, kerr = inPEM(x.KeyData, x.Key, dir)
		return errors.Join(cerr, kerr)
	}
	return fmt.Errorf("no user %q", name)
}

// inPEM is a text in base64, or a file.
func inPEM(data, file, dir string) (secret, error) {
	switch {
	case data != "":
		b, err := base64.StdEncoding.DecodeString(data)
		return secret{text: b}, err
	case file != "":
		return secret{file: at(dir, file)}, nil
	}
	return secret{}, nil
}

// InYAML says in a user's words why a document can't be read.
func InYAML(err error) string {
	var kinds *yaml.TypeError
	if errors.As(err, &kinds) && len(kinds.Errors) > 0 {
		line, _, _ := strings.Cut(kinds.Errors[0], ":")
		return line + " has a value of another kind than is wanted there"
	}
	return "neither YAML nor JSON, or not whole: " + strings.TrimPrefix(err.Error(), "yaml: ")
}

// maxFile bounds a kubeconfig, and the files that one names.
const maxFile = 1 << 20

func at(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}
