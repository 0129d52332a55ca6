package discovery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// apiServer is a Kubernetes API server that knows lists and watches of Pods,
// EndpointSlices and InferencePools, as far as a client of those can tell.
type apiServer struct {
	t   *testing.T
	net *simnet.Net

	mu      sync.Mutex
	version int                       // guarded by mu
	objects map[string]map[string]obj // guarded by mu; kind -> name -> object
	history []happened                // guarded by mu
	oldest  int                       // guarded by mu; watches from before are 410
	mute    bool                      // guarded by mu; what happens is told to no watch
	refuse  int                       // guarded by mu; status of every answer, 0: as usual
	only    string                    // guarded by mu; the kind that refuse is for; empty: all
	inline  bool                      // guarded by mu; 410 comes as an event of a watch
	endless func() string             // guarded by mu; what each page says that comes next
	page    int                       // guarded by mu; objects of a page at most
	cut     chan struct{}             // guarded by mu; closed: watches end in the middle of a line
	wake    chan struct{}             // guarded by mu; closed: something happened
	asked   []string                  // guarded by mu
	token   string                    // guarded by mu; that is asked for
}

type obj map[string]any

type happened struct {
	version int
	kind    string
	event   string
	object  obj
}

const kubeServer = "api:8001"

// inKube runs f in a bubble with an API server, and a Pool that follows it.
func inKube(t *testing.T, cfg discovery.KubeConfig, f func(t *testing.T, s *apiServer, k *kubeRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{t: t, net: simnet.New(1), objects: map[string]map[string]obj{}, cut: make(chan struct{}), wake: make(chan struct{}), version: 100}
		s.net.SetDefault(simnet.Link{Delay: time.Millisecond})
		ln, err := s.net.Host("api").Listen("tcp", ":8001")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: s}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.Serve(ln)
		}()
		k := newKubeRig(t, s, cfg)
		defer func() {
			k.stop()
			_ = srv.Close()
			<-done
		}()
		f(t, s, k)
	})
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.RequestURI())
	refuse, token := s.refuse, s.token
	if !strings.Contains(r.URL.Path, s.only) {
		refuse = 0
	}
	s.mu.Unlock()
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		refuse = http.StatusUnauthorized
	}
	if refuse != 0 {
		s.status(w, refuse, "told to refuse")
		return
	}
	q := r.URL.Query()
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	known := map[string]string{
		"pods": "/api/v1/namespaces/llm/pods", "endpointslices": "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices",
		"inferencepools": "/apis/inference.networking.k8s.io/v1/namespaces/llm/inferencepools",
	}
	if known[kind] != r.URL.Path {
		s.status(w, http.StatusNotFound, "the server could not find the requested resource")
		return
	}
	if q.Get("watch") == "true" {
		s.watch(w, r, kind)
		return
	}
	s.list(w, kind, q.Get("labelSelector"), q.Get("continue"))
}

func (s *apiServer) status(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, text))
}

func failure(code int, text string) obj {
	return obj{"kind": "Status", "apiVersion": "v1", "metadata": obj{}, "status": "Failure", "message": text, "reason": "x", "code": code}
}

func (s *apiServer) list(w http.ResponseWriter, kind, selector, after string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items, next := []obj{}, ""
	for _, name := range sortedNames(s.objects[kind]) {
		o := s.objects[kind][name]
		if name <= after || !selects(selector, o) {
			continue
		}
		if s.page > 0 && len(items) == s.page {
			next = fmt.Sprint(items[len(items)-1]["metadata"].(obj)["name"])
			break
		}
		items = append(items, o)
	}
	if s.endless != nil {
		next = s.endless()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj{
		"kind": "List", "apiVersion": "v1", "items": items,
		"metadata": obj{"resourceVersion": strconv.Itoa(s.version), "continue": next},
	})
}

func sortedNames(m map[string]obj) (names []string) {
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func selects(selector string, o obj) bool {
	labels, _ := o["metadata"].(obj)["labels"].(map[string]string)
	for p := range strings.SplitSeq(selector, ",") {
		if k, v, ok := strings.Cut(p, "="); ok && labels[k] != v {
			return false
		}
	}
	return true
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, kind string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	end := time.After(time.Duration(seconds) * time.Second)
	bookmark := time.NewTicker(time.Minute)
	defer bookmark.Stop()
	s.mu.Lock()
	old, inline, cut, future := from < s.oldest, s.inline, s.cut, from > s.version
	s.mu.Unlock()
	if future {
		s.status(w, http.StatusGatewayTimeout, "Too large resource version")
		return
	}
	if old && !inline {
		s.status(w, http.StatusGone, "too old resource version")
		return
	}
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	send := func(event string, o obj) {
		_ = json.NewEncoder(w).Encode(obj{"type": event, "object": o})
		flush()
	}
	flush()
	if old {
		send("ERROR", failure(http.StatusGone, "too old resource version"))
		return
	}
	for {
		s.mu.Lock()
		wake, mute := s.wake, s.mute
		var news []happened
		for _, h := range s.history {
			if h.version > from && h.kind == kind && selects(r.URL.Query().Get("labelSelector"), h.object) {
				news = append(news, h)
			}
		}
		from = s.version
		s.mu.Unlock()
		if !mute {
			for _, h := range news {
				send(h.event, h.object)
			}
		}
		select {
		case <-end:
			return
		case <-r.Context().Done():
			return
		case <-cut:
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{"met`))
			flush()
			panic(http.ErrAbortHandler)
		case <-bookmark.C:
			send("BOOKMARK", obj{"kind": "Pod", "metadata": obj{"resourceVersion": strconv.Itoa(from)}})
		case <-wake:
		}
	}
}

// put adds or changes an object, and tells of it several times if that is asked for.
func (s *apiServer) put(kind, name string, o obj) {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := "ADDED"
	if s.objects[kind] == nil {
		s.objects[kind] = map[string]obj{}
	} else if s.objects[kind][name] != nil {
		event = "MODIFIED"
	}
	s.objects[kind][name] = o
	s.happens(kind, event, o)
}

func (s *apiServer) remove(kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[kind][name]
	delete(s.objects[kind], name)
	s.happens(kind, "DELETED", o)
}

// happens notes an event. The caller holds mu.
func (s *apiServer) happens(kind, event string, o obj) {
	s.version++
	o["metadata"].(obj)["resourceVersion"] = strconv.Itoa(s.version)
	s.history = append(s.history, happened{s.version, kind, event, o})
	close(s.wake)
	s.wake = make(chan struct{})
}

// again tells of all that happened to a kind once more, or of one sort of it, as
// proxies do.
func (s *apiServer) again(kind, event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range slices.Clone(s.history) {
		if h.kind == kind && (event == "" || h.event == event) {
			s.version++
			h.version = s.version
			s.history = append(s.history, h)
		}
	}
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *apiServer) set(f func(s *apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *apiServer) cutWatches() {
	s.set(func(s *apiServer) {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

// count is how many requests came that hold a part.
func (s *apiServer) count(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if strings.Contains(a, part) {
			n++
		}
	}
	return n
}

// kubeRig is a Pool with a source of Kubernetes.
type kubeRig struct {
	*rig
	cancel context.CancelFunc
	done   chan error
}

func newKubeRig(t *testing.T, s *apiServer, cfg discovery.KubeConfig) *kubeRig {
	t.Helper()
	if cfg.Getenv == nil && cfg.Kubeconfig == "" {
		cfg.Kubeconfig = filepath.Join(t.TempDir(), "config")
		text := "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: llm}}]\n" +
			"clusters: [{name: k, cluster: {server: \"http://" + kubeServer + "\"}}]\nusers: [{name: u, user: {}}]\n"
		if err := os.WriteFile(cfg.Kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return s.net.Host("router").DialContext(ctx, network, addr)
	}
	src, err := discovery.NewKube(cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubeRig{rig: newRig(t, discovery.Config{Grace: time.Minute, Sources: []discovery.Source{src}}), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	k.cancel = cancel
	go func() { k.done <- k.Run(ctx) }()
	return k
}

func (k *kubeRig) stop() {
	k.cancel()
	if err := <-k.done; err != nil {
		k.t.Error(err)
	}
}

// after lets time pass, then compares the list.
func (k *kubeRig) after(d time.Duration, ids ...string) {
	k.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	k.want(ids...)
}

// pod is a Pod as the API server has it. mod changes it.
func pod(name, uid, ip string, ready bool, mods ...func(o obj)) obj {
	is := "False"
	if ready {
		is = "True"
	}
	o := obj{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": obj{"name": name, "namespace": "llm", "uid": uid, "labels": map[string]string{"app": "vllm"}, "managedFields": []any{}},
		"spec":     obj{"containers": []any{obj{"name": "vllm", "ports": []any{obj{"name": "http", "containerPort": 8000, "protocol": "TCP"}}}}},
		"status": obj{
			"phase": "Running", "podIP": ip,
			"conditions": []any{obj{"type": "Initialized", "status": "True"}, obj{"type": "Ready", "status": is, "lastProbeTime": nil}},
		},
	}
	for _, m := range mods {
		m(o)
	}
	return o
}

func terminating(o obj) { o["metadata"].(obj)["deletionTimestamp"] = "2026-01-01T00:00:00Z" }

func annotated(kv ...string) func(o obj) {
	return func(o obj) {
		a := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			a[kv[i]] = kv[i+1]
		}
		o["metadata"].(obj)["annotations"] = a
	}
}
