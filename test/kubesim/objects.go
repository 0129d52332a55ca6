package kubesim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Namespace is where all that tests make is.
const Namespace = "llm"

// part is a member of an object that is an object, made if it is not there.
func part(o Obj, key string) Obj {
	x, _ := o[key].(Obj)
	if x == nil {
		x = Obj{}
		o[key] = x
	}
	return x
}

// sub is the same to be read: objects that are served are not changed any more.
func sub(o Obj, key string) Obj {
	x, _ := o[key].(Obj)
	return x
}

func clone(o Obj) (c Obj) {
	if err := json.Unmarshal([]byte(text(o)), &c); err != nil {
		panic(err)
	}
	return c
}

func text(o Obj) string {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func labels(o Obj) map[string]string {
	out := map[string]string{}
	for k, v := range sub(sub(o, "metadata"), "labels") {
		out[k] = fmt.Sprint(v)
	}
	return out
}

func selects(selector string, labels map[string]string) bool {
	for p := range strings.SplitSeq(selector, ",") {
		if k, v, ok := strings.Cut(p, "="); ok && labels[k] != v {
			return false
		}
	}
	return true
}

func named(selector, name string) bool {
	want, ok := strings.CutPrefix(selector, "metadata.name=")
	return !ok || want == name
}

func number(v any) int {
	switch n := v.(type) {
	case float64:
		return int(n)
	case int:
		return n
	}
	return 0
}

// scaleOf is an object's scale subresource.
func scaleOf(o Obj) Obj {
	m := sub(o, "metadata")
	spec := Obj{}
	if n := number(sub(o, "spec")["replicas"]); n > 0 { // 0 is left out, as servers do
		spec["replicas"] = n
	}
	return Obj{
		"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": spec,
		"metadata": Obj{"name": m["name"], "namespace": m["namespace"], "uid": m["uid"], "resourceVersion": m["resourceVersion"]},
		"status":   Obj{"replicas": number(sub(o, "status")["replicas"]), "selector": "app=" + fmt.Sprint(m["name"])},
	}
}

// Put adds an object or replaces it: metadata.name says which.
func (s *Server) Put(group, resource string, o Obj) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(group, resource, o)
}

func (s *Server) put(group, resource string, o Obj) Obj {
	n := clone(o)
	m := part(n, "metadata")
	m["namespace"] = Namespace
	at := place{group, resource, Namespace, fmt.Sprint(m["name"])}
	kind := "MODIFIED"
	if s.objects[at] == nil {
		kind = "ADDED"
	}
	if m["uid"] == nil {
		s.made++
		m["uid"] = "uid-" + strconv.Itoa(s.made)
	}
	s.store(at, n, kind)
	return n
}

// Deployment makes one of so many replicas, whose Pods are there and ready.
func (s *Server) Deployment(name string, replicas int) {
	s.workload("deployments", "Deployment", name, replicas)
}

// StatefulSet does, too.
func (s *Server) StatefulSet(name string, replicas int) {
	s.workload("statefulsets", "StatefulSet", name, replicas)
}

func (s *Server) workload(resource, kind, name string, replicas int) {
	s.Put("apps", resource, Obj{
		"kind": kind, "apiVersion": "apps/v1", "metadata": Obj{"name": name},
		"spec": Obj{"replicas": replicas, "template": Obj{"spec": Obj{}}}, "status": Obj{"replicas": 0},
	})
	s.Settle()
	for _, p := range s.Pods() {
		s.Ready(p.Name, true)
	}
}

// Autoscaler makes a HorizontalPodAutoscaler of an object.
func (s *Server) Autoscaler(name, kind, target string) {
	s.Put("autoscaling", "horizontalpodautoscalers", Obj{
		"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": Obj{"name": name},
		"spec": Obj{"scaleTargetRef": Obj{"apiVersion": "apps/v1", "kind": kind, "name": target}},
	})
}

// Delete removes an object.
func (s *Server) Delete(group, resource, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{group, resource, Namespace, name}
	if o := s.objects[at]; o != nil {
		s.store(at, clone(o), "DELETED")
	}
}

// Edit changes an object, as somebody else would.
func (s *Server) Edit(group, resource, name string, f func(o Obj)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{group, resource, Namespace, name}
	n := clone(s.objects[at])
	f(n)
	s.store(at, clone(n), "MODIFIED")
}

// Replicas are those that a Deployment or StatefulSet asks for.
func (s *Server) Replicas(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return number(sub(s.workloadNamed(name), "spec")["replicas"])
}

// SetReplicas changes them, as a person with kubectl does.
func (s *Server) SetReplicas(name string, n int) {
	s.Edit("apps", s.kindOf(name), name, func(o Obj) { part(o, "spec")["replicas"] = n })
}

// Annotation is one of a Deployment's or StatefulSet's.
func (s *Server) Annotation(name, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, _ := sub(sub(s.workloadNamed(name), "metadata"), "annotations")[key].(string)
	return v
}

func (s *Server) workloadNamed(name string) Obj {
	for _, r := range []string{"deployments", "statefulsets"} {
		if o := s.objects[place{"apps", r, Namespace, name}]; o != nil {
			return o
		}
	}
	return Obj{}
}

func (s *Server) kindOf(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[place{"apps", "statefulsets", Namespace, name}] != nil {
		return "statefulsets"
	}
	return "deployments"
}
