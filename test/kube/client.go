package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client talks to the API server as one of its users.
type client struct {
	server, bearer string
	http           *http.Client
}

func newClient(server, token string, ca []byte) *client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &client{server, token, &http.Client{
		Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 8},
	}}
}

// apiError is an answer that is none that was asked for.
type apiError struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

// code is the status that an API server refused something with, 0 for any other error.
func code(err error) int {
	var e *apiError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// Kinds of bodies.
const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json" // lists are merged by their keys
	applyPatch     = "application/apply-patch+yaml"
	plainJSON      = "application/json"
)

// do sends a request, and decodes the answer into out unless that is nil.
func (c *client) do(ctx context.Context, method, path, kind string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if c.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		e := &apiError{}
		if json.Unmarshal(b, e) != nil || e.Code == 0 {
			e.Code, e.Message = resp.StatusCode, string(b)
		}
		return e
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

func (c *client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, "", nil, out)
}

// apply makes an object as a manifest has it, or changes it to that. Keys that the API
// does not know are errors.
func (c *client) apply(ctx context.Context, path, manifest string) error {
	err := c.do(ctx, http.MethodPatch, path+"?fieldManager=e2e&force=true&fieldValidation=Strict", applyPatch, []byte(manifest), nil)
	if err != nil {
		return fmt.Errorf("apply %s: %w", path, err)
	}
	return nil
}

// merge changes some of an object's keys.
func (c *client) merge(ctx context.Context, path, patch string) error {
	if err := c.do(ctx, http.MethodPatch, path, mergePatch, []byte(patch), nil); err != nil {
		return fmt.Errorf("patch %s: %w", path, err)
	}
	return nil
}

// pod is what is read of a Pod.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Deletion    *time.Time        `json:"deletionTimestamp"`
		Grace       *int              `json:"deletionGracePeriodSeconds"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Args      []string `json:"args"`
			Lifecycle struct {
				PreStop struct {
					Sleep struct {
						Seconds int `json:"seconds"`
					} `json:"sleep"`
				} `json:"preStop"`
			} `json:"lifecycle"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		IP         string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// ready reports whether the Pod is, and is to stay.
func (p *pod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && p.Metadata.Deletion == nil
		}
	}
	return false
}

func (p *pod) path() string {
	return "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name
}

// pods lists Pods; query is a selector.
func (c *client) pods(ctx context.Context, query string) ([]pod, error) {
	var list struct {
		Items []pod `json:"items"`
	}
	err := c.get(ctx, "/api/v1/namespaces/"+namespace+"/pods?"+query, &list)
	return list.Items, err
}
