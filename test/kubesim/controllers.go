package kubesim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Pod is a Pod as tests look at it.
type Pod struct {
	Name, UID string
	Ready     bool
	Ending    bool
	Cost      string // its pod-deletion-cost; empty: none
}

// Pods are all Pods, in name order.
func (s *Server) Pods() (list []Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.places("", "pods", Namespace) {
		o := s.objects[at]
		m := sub(o, "metadata")
		cost, _ := sub(m, "annotations")["controller.kubernetes.io/pod-deletion-cost"].(string)
		list = append(list, Pod{at.name, fmt.Sprint(m["uid"]), ready(o), ending(o), cost})
	}
	return list
}

// Ready makes a Pod ready, or not ready any more.
func (s *Server) Ready(name string, is bool) {
	s.Edit("", "pods", name, func(o Obj) {
		part(o, "spec")["nodeName"] = "node"
		status := part(o, "status")
		status["phase"], status["podIP"] = "Running", "10.0.0."+strings.TrimLeft(strings.TrimPrefix(fmt.Sprint(part(o, "metadata")["uid"]), "uid-"), "0")
		status["conditions"] = []any{Obj{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[is]}}
	})
}

// Unschedulable makes a Pod one that finds no node.
func (s *Server) Unschedulable(name, why string) {
	s.Edit("", "pods", name, func(o Obj) {
		part(o, "status")["conditions"] = []any{Obj{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}}
	})
}

// Reap ends the Pods that were told to.
func (s *Server) Reap() {
	for _, p := range s.Pods() {
		if p.Ending {
			s.Delete("", "pods", p.Name)
		}
	}
}

func ready(o Obj) bool {
	list, _ := sub(o, "status")["conditions"].([]any)
	for _, c := range list {
		if c, ok := c.(Obj); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

func ending(o Obj) bool { return sub(o, "metadata")["deletionTimestamp"] != nil }

// Settle lets the controllers of Deployments and StatefulSets make the Pods that lack,
// and tell those to end that are too many.
func (s *Server) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range []string{"deployments", "statefulsets"} {
		for _, at := range s.places("apps", resource, Namespace) {
			s.settle(at)
		}
	}
}

// settle does so for one. The caller holds mu.
func (s *Server) settle(at place) {
	o := s.objects[at]
	want, sts := number(sub(o, "spec")["replicas"]), at.resource == "statefulsets"
	var active []Obj
	for _, p := range s.places("", "pods", Namespace) {
		if x := s.objects[p]; labels(x)["app"] == at.name && !ending(x) {
			active = append(active, x)
		}
	}
	switch {
	case sts:
		s.settleOrdinals(at, active, want)
	default:
		for n := len(active); n < want; n++ {
			s.made++
			s.newPod(at, at.name+"-"+strconv.Itoa(s.made), "ReplicaSet")
		}
		slices.SortStableFunc(active, goesFirst)
		for i := 0; i < len(active)-want; i++ {
			s.end(active[i])
		}
	}
	n := clone(o)
	if status := part(n, "status"); number(status["replicas"]) != want {
		status["replicas"] = want
		s.store(at, n, "MODIFIED")
	}
}

func (s *Server) settleOrdinals(at place, active []Obj, want int) {
	have := map[int]bool{}
	for _, p := range active {
		name := fmt.Sprint(sub(p, "metadata")["name"])
		n, _ := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
		if have[n] = true; n >= want {
			s.end(p)
		}
	}
	for n := range want {
		name := at.name + "-" + strconv.Itoa(n)
		if !have[n] && s.objects[place{"", "pods", Namespace, name}] == nil {
			s.newPod(at, name, "StatefulSet")
		}
	}
}

func (s *Server) newPod(at place, name, owner string) {
	s.put("", "pods", Obj{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": Obj{
			"name": name, "labels": Obj{"app": at.name},
			"ownerReferences": []any{Obj{"kind": owner, "uid": "owner-" + at.name, "controller": true}},
		},
		"spec":   Obj{"containers": []any{Obj{"ports": []any{Obj{"containerPort": 8000}}}}},
		"status": Obj{"phase": "Pending"},
	})
}

func (s *Server) end(o Obj) {
	n := clone(o)
	part(n, "metadata")["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	s.store(place{"", "pods", Namespace, fmt.Sprint(part(n, "metadata")["name"])}, n, "MODIFIED")
}

// goesFirst is the order of Kubernetes' ReplicaSet controller (ActivePodsWithRanks in
// pkg/controller/controller_utils.go), as far as it is told by what Pods have here:
// without a node, pending, not ready, of a lower cost, younger.
func goesFirst(a, b Obj) int {
	return cmp.Or(
		bools(sub(a, "spec")["nodeName"] != nil, sub(b, "spec")["nodeName"] != nil),
		bools(sub(a, "status")["phase"] == "Running", sub(b, "status")["phase"] == "Running"),
		bools(ready(a), ready(b)), cmp.Compare(cost(a), cost(b)), cmp.Compare(age(b), age(a)),
	)
}

func bools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func cost(o Obj) int {
	c, _ := sub(sub(o, "metadata"), "annotations")["controller.kubernetes.io/pod-deletion-cost"].(string)
	n, _ := strconv.Atoi(c)
	return n
}

func age(o Obj) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(fmt.Sprint(sub(o, "metadata")["uid"]), "uid-"))
	return n
}
