// Package kubesim is a Kubernetes API server in memory, as far as routers can tell:
// objects with resource versions and optimistic conflicts, scale subresources, lists
// with selectors, watches, and controllers that make and remove Pods when told to
// (Settle). Tests order its faults and look at the calls.
package kubesim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Obj is an object as JSON has it.
type Obj = map[string]any

// Call is one request, as rules of a Role see it.
type Call struct {
	Verb      string // get, list, watch, patch, update
	Group     string // empty: the core
	Resource  string // plural, with the subresource: deployments/scale
	Namespace string
	Name      string
	Body      string
}

// String is what a Role's rule has to allow.
func (c Call) String() string {
	s := c.Verb + " " + c.Resource
	if c.Group != "" {
		s += "." + c.Group
	}
	return s
}

// Fault is what befalls a call.
type Fault struct {
	Code       int    // status of the answer; 0: as usual
	RetryAfter string // header
	Text       string
	Body       string // the whole answer, instead of a failure with Text
	Hang       bool   // no answer, until who asked gives up
	Do         bool   // with Hang: it is done all the same
}

// Server is the API server. Safe for concurrent use.
type Server struct {
	mu      sync.Mutex
	version int                       // guarded by mu
	objects map[place]Obj             // guarded by mu
	made    int                       // guarded by mu; for UIDs
	calls   []Call                    // guarded by mu
	history []event                   // guarded by mu
	wake    chan struct{}             // guarded by mu; closed: something happened
	fault   func(Call) *Fault         // guarded by mu
	gate    func(Call, *http.Request) // guarded by mu
	scales  map[string]bool           // guarded by mu; further resources that have a scale
}

type place struct{ group, resource, namespace, name string }

type event struct {
	version  int
	at       place
	kind     string
	selector map[string]string
	object   json.RawMessage
}

// New makes a server without objects.
func New() *Server {
	return &Server{version: 100, objects: map[place]Obj{}, wake: make(chan struct{}), scales: map[string]bool{}}
}

// SetFault orders what befalls calls from now on; nil: nothing.
func (s *Server) SetFault(f func(Call) *Fault) { s.set(func() { s.fault = f }) }

// SetGate sets what is called before each call is served, and may block it.
func (s *Server) SetGate(f func(Call, *http.Request)) { s.set(func() { s.gate = f }) }

// Scalable gives a further resource (plural.group) a scale.
func (s *Server) Scalable(resource string) { s.set(func() { s.scales[resource] = true }) }

func (s *Server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Calls are those since the last Forget.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Forget drops the record of calls.
func (s *Server) Forget() { s.set(func() { s.calls = nil }) }

// Count is how many calls of a kind (Call.String) there were.
func (s *Server) Count(kind string) (n int) {
	for _, c := range s.Calls() {
		if c.String() == kind {
			n++
		}
	}
	return n
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c, ok := parse(r.Method, r.URL.Path, r.URL.Query())
	if err != nil || !ok {
		refuse(w, http.StatusNotFound, "the server could not find the requested resource", "")
		return
	}
	c.Body = string(body)
	s.mu.Lock()
	gate, order := s.gate, s.fault
	s.mu.Unlock()
	if gate != nil {
		gate(c, r)
	}
	s.set(func() { s.calls = append(s.calls, c) })
	if order != nil {
		if f := order(c); f != nil {
			s.befall(w, r, c, f)
			return
		}
	}
	if c.Verb == "watch" {
		s.watch(w, r, c)
		return
	}
	s.mu.Lock()
	code, answer := s.serve(c, r.URL.Query(), body)
	s.mu.Unlock()
	reply(w, code, answer)
}

// befall lets a fault happen.
func (s *Server) befall(w http.ResponseWriter, r *http.Request, c Call, f *Fault) {
	if f.Do {
		s.mu.Lock()
		s.serve(c, r.URL.Query(), []byte(c.Body))
		s.mu.Unlock()
	}
	if f.Hang {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	if f.Body != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Code)
		_, _ = io.WriteString(w, f.Body)
		return
	}
	refuse(w, f.Code, f.Text, f.RetryAfter)
}

func refuse(w http.ResponseWriter, code int, text, after string) {
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	reply(w, code, failure(code, "%s", text))
}

func reply(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func failure(code int, format string, a ...any) Obj {
	return Obj{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": fmt.Sprintf(format, a...), "code": code}
}

// parse reads a call from its path.
func parse(method, path string, q url.Values) (c Call, ok bool) {
	p := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(p) >= 5 && p[0] == "api" && p[2] == "namespaces":
		p = p[3:]
	case len(p) >= 6 && p[0] == "apis" && p[3] == "namespaces":
		c.Group, p = p[1], p[4:]
	default:
		return c, false
	}
	c.Namespace, c.Resource = p[0], p[1]
	if len(p) > 2 {
		c.Name = p[2]
	}
	if len(p) > 3 {
		c.Resource += "/" + p[3]
	}
	c.Verb = map[string]string{http.MethodGet: "get", http.MethodPatch: "patch", http.MethodPut: "update"}[method]
	if c.Name == "" {
		c.Verb = "list"
		if q.Get("watch") == "true" {
			c.Verb = "watch"
		}
	}
	return c, c.Verb != ""
}

// serve does what a call asks for. The caller holds mu.
func (s *Server) serve(c Call, q url.Values, body []byte) (int, Obj) {
	resource, sub, _ := strings.Cut(c.Resource, "/")
	at := place{c.Group, resource, c.Namespace, c.Name}
	if c.Verb == "list" {
		return s.list(at, q)
	}
	o := s.objects[at]
	if o == nil || sub != "" && (sub != "scale" || !s.scalable(at)) {
		return http.StatusNotFound, failure(http.StatusNotFound, "%s %q not found", at.plural(), c.Name)
	}
	switch {
	case c.Verb == "get" && sub == "scale":
		return http.StatusOK, scaleOf(o)
	case c.Verb == "get":
		return http.StatusOK, o
	case c.Verb == "update" && sub == "scale":
		return s.putScale(at, o, body)
	case c.Verb == "patch" && sub == "":
		return s.patch(at, o, body)
	}
	return http.StatusMethodNotAllowed, failure(http.StatusMethodNotAllowed, "the server does not allow this method")
}

func (p place) plural() string {
	if p.group == "" {
		return p.resource
	}
	return p.resource + "." + p.group
}

func (s *Server) scalable(at place) bool {
	return at.plural() == "deployments.apps" || at.plural() == "statefulsets.apps" || s.scales[at.plural()]
}

func (s *Server) list(at place, q url.Values) (int, Obj) {
	items := []Obj{}
	for _, p := range s.places(at.group, at.resource, at.namespace) {
		if o := s.objects[p]; selects(q.Get("labelSelector"), labels(o)) && named(q.Get("fieldSelector"), p.name) {
			items = append(items, o)
		}
	}
	return http.StatusOK, Obj{"kind": "List", "apiVersion": "v1", "items": items, "metadata": Obj{"resourceVersion": strconv.Itoa(s.version)}}
}

// places are where objects of a kind are, in name order. The caller holds mu.
func (s *Server) places(group, resource, namespace string) (list []place) {
	for p := range maps.Keys(s.objects) {
		if p.group == group && p.resource == resource && p.namespace == namespace {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b place) int { return strings.Compare(a.name, b.name) })
	return list
}

// clash says why a write's preconditions do not hold, if so.
func clash(at place, now, told Obj) (int, Obj) {
	m, _ := told["metadata"].(Obj)
	is, _ := now["metadata"].(Obj)
	for _, key := range []string{"resourceVersion", "uid"} {
		if v, ok := m[key]; ok && v != "" && v != is[key] {
			return http.StatusConflict, failure(http.StatusConflict, "Operation cannot be fulfilled on %s %q: the object has been modified", at.plural(), at.name)
		}
	}
	return 0, nil
}

func (s *Server) putScale(at place, o Obj, body []byte) (int, Obj) {
	var told Obj
	if json.Unmarshal(body, &told) != nil || told["kind"] != "Scale" {
		return http.StatusBadRequest, failure(http.StatusBadRequest, "no Scale")
	}
	if code, f := clash(at, o, told); code != 0 {
		return code, f
	}
	next := clone(o)
	spec := part(next, "spec")
	if n := number(sub(told, "spec")["replicas"]); n != number(spec["replicas"]) {
		spec["replicas"] = float64(n)
		s.store(at, next, "MODIFIED")
	}
	return http.StatusOK, scaleOf(s.objects[at])
}

func (s *Server) patch(at place, o Obj, body []byte) (int, Obj) {
	var told Obj
	if json.Unmarshal(body, &told) != nil {
		return http.StatusBadRequest, failure(http.StatusBadRequest, "no JSON")
	}
	if code, f := clash(at, o, told); code != 0 {
		return code, f
	}
	n := merge(clone(o), told)
	if text(n) != text(o) { // a patch that changes nothing makes no version
		s.store(at, n, "MODIFIED")
	}
	return http.StatusOK, s.objects[at]
}

// merge is a JSON merge patch (RFC 7386).
func merge(o, told Obj) Obj {
	for k, v := range told {
		x, isObj := v.(Obj)
		switch {
		case v == nil:
			delete(o, k)
		case isObj:
			was, _ := o[k].(Obj)
			if was == nil {
				was = Obj{}
			}
			o[k] = merge(was, x)
		default:
			o[k] = v
		}
	}
	return o
}

// store puts an object in its place under a new version. The caller holds mu.
func (s *Server) store(at place, o Obj, kind string) {
	s.version++
	part(o, "metadata")["resourceVersion"] = strconv.Itoa(s.version)
	if kind == "DELETED" {
		delete(s.objects, at)
	} else {
		s.objects[at] = o
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	s.history = append(s.history, event{s.version, place{at.group, at.resource, at.namespace, ""}, kind, labels(o), b})
	close(s.wake)
	s.wake = make(chan struct{})
}

// watch tells of what happens until who asked goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c Call) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	for flush(); ; flush() {
		s.mu.Lock()
		wake := s.wake
		var news []event
		for _, e := range s.history {
			if e.version > from && e.at == (place{c.Group, c.Resource, c.Namespace, ""}) && selects(r.URL.Query().Get("labelSelector"), e.selector) {
				news = append(news, e)
			}
		}
		from = s.version
		s.mu.Unlock()
		for _, e := range news {
			_ = json.NewEncoder(w).Encode(Obj{"type": e.kind, "object": e.object})
		}
		flush()
		if !waits(r.Context(), wake) {
			return
		}
	}
}

func waits(ctx context.Context, wake chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-wake:
		return true
	}
}
