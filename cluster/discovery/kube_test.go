package discovery_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/cluster/discovery"
	"github.com/hearsay-llm/hearsay/state"
)

const soon = 500 * time.Millisecond // events and the Pool's patience

var byLabel = discovery.KubeConfig{Selector: "app=vllm"}

func TestPodsLive(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		k.after(soon)
		s.put("pods", "a", pod("a", "ua", "", false)) // no address yet
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", false))
		k.after(soon)
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		k.after(soon, "ua")
		if r := k.applied()[0]; r.URL != "http://10.0.0.1:8000" || r.Name != "a" || r.Role != state.RoleBoth {
			t.Errorf("%+v", r)
		}
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
		k.after(soon, "ua", "ub")
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true, terminating))
		k.after(soon, "ua draining", "ub")
		s.remove("pods", "a")
		k.after(soon, "ua draining", "ub")
		k.after(time.Minute, "ub")
		s.put("pods", "c", pod("c", "uc", "10.0.0.3", false, terminating)) // was never ready
		s.put("pods", "d", pod("d", "ud", "10.0.0.4", true, func(o obj) { o["status"].(obj)["phase"] = "Failed" }))
		s.put("pods", "e", pod("e", "ue", "10.0.0.5", true, func(o obj) { o["metadata"].(obj)["labels"] = map[string]string{"app": "other"} }))
		k.after(soon, "ub")
		if n := s.count("watch=true"); n != 1 {
			t.Errorf("%d watches", n)
		}
	})
}

// A Pod that was made anew under its name, and one that has another's address, are
// other replicas.
func TestPodIsMadeAnew(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "u1", "10.0.0.1", true))
		k.after(soon, "u1")
		s.remove("pods", "a")
		s.put("pods", "a", pod("a", "u2", "10.0.0.1", true))
		k.after(soon, "u2")
		s.put("pods", "a", pod("a", "u2", "10.0.0.1", true, terminating))
		s.put("pods", "b", pod("b", "u3", "10.0.0.1", true)) // its address is free before it is gone
		k.after(soon, "u3")
	})
}

// Readiness that comes and goes drains, and is no end. Where nobody is ready any more
// probes are doubted, not replicas.
func TestPodsThatAreNotReady(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
		k.after(soon, "ua", "ub")
		for range 5 {
			s.put("pods", "a", pod("a", "ua", "10.0.0.1", false))
			k.after(3*time.Minute, "ua draining", "ub")
			s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
			k.after(soon, "ua", "ub")
		}
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", false))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", false))
		k.after(soon, "ua", "ub")
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", false, terminating))
		k.after(soon, "ua", "ub draining")
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
		k.after(soon, "ua draining", "ub")
	})
}

// A delete that no watch delivers is found by the next list; so is what happened while
// the server was away; what is told twice is told once.
func TestEventsThatAreLostAndTwice(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
		k.after(soon, "ua", "ub")
		s.set(func(s *apiServer) { s.mute = true })
		s.remove("pods", "b")
		k.after(time.Minute, "ua", "ub")
		k.after(15*time.Minute, "ua") // lists again now and then
		s.set(func(s *apiServer) { s.mute = false })
		s.put("pods", "c", pod("c", "uc", "10.0.0.3", true))
		k.after(10*time.Minute, "ua", "uc")
		s.again("pods", "") // also the delete of b, and what a was before
		k.after(soon, "ua", "uc")
		s.remove("pods", "c")
		s.put("pods", "c", pod("c", "uc2", "10.0.0.4", true))
		k.after(soon, "ua", "uc draining", "uc2")
		s.again("pods", "DELETED") // a late one is not of who has the name now
		k.after(soon, "ua", "uc draining", "uc2")
		k.after(3*time.Minute, "ua", "uc2")
	})
}

// A watch that is cut in the middle of an event goes on where it was, without a list.
func TestWatchIsCut(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		k.after(soon, "ua")
		for i := range 3 {
			s.cutWatches()
			s.remove("pods", "a")
			k.after(10*time.Second, "ua draining")
			s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
			k.after(soon, "ua")
			if lists := s.count("limit="); lists != 1 {
				t.Fatalf("%d lists after %d cuts", lists, i+1)
			}
		}
		k.problem(0, "")
	})
}

// A version that is too old, by status or by event, is followed by a list at once.
func TestVersionIsGone(t *testing.T) {
	for _, inline := range []bool{false, true} {
		inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
			s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
			s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
			k.after(soon, "ua", "ub")
			s.set(func(s *apiServer) {
				s.inline, s.mute = inline, true
				s.objects["pods"] = map[string]obj{"a": s.objects["pods"]["a"]} // and no event for ever
				s.version += 1000
				s.oldest = s.version
			})
			s.cutWatches()
			k.after(10*time.Second, "ua", "ub draining")
			k.problem(0, "")
			if n := s.count("limit="); n != 2 {
				t.Errorf("%d lists", n)
			}
		})
	}
}

// A server whose every version is gone is not asked without end.
func TestVersionIsAlwaysGone(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		k.after(soon, "ua")
		s.set(func(s *apiServer) { s.oldest = 1 << 40 })
		s.cutWatches()
		k.after(10*time.Minute, "ua")
		if n := s.count("pods"); n > 120 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		k.problem(0, "410")
	})
}

func TestServerIsAway(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
		k.after(soon, "ua", "ub")
		s.net.Isolate("api")
		k.after(30*time.Minute, "ua", "ub")
		k.problem(0, "API server")
		s.remove("pods", "b")
		s.net.HealAll()
		k.after(3*time.Minute, "ua")
		k.problem(0, "")
		for code, part := range map[int]string{403: "forbids", 401: "credentials", 500: "answers 500", 429: "answers 429"} {
			s.set(func(s *apiServer) { s.refuse = code })
			s.cutWatches()
			k.after(20*time.Minute, "ua")
			k.problem(0, part)
			if n := s.count("pods"); n > 400 {
				t.Errorf("%d: %d requests", code, n)
			}
			s.set(func(s *apiServer) { s.refuse, s.asked = 0, nil })
			k.after(time.Minute, "ua")
			k.problem(0, "")
		}
	})
}

// A server that is back is known to be so when it takes the watch, though nothing
// happens that it could tell of.
func TestServerIsBackAndSilent(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		k.after(soon, "ua")
		s.set(func(s *apiServer) { s.refuse = http.StatusInternalServerError })
		s.cutWatches()
		k.after(10*time.Second, "ua")
		k.problem(0, "answers 500")
		s.set(func(s *apiServer) { s.refuse = 0 })
		k.after(31*time.Second, "ua")
		k.problem(0, "")
		if n := s.count("limit="); n != 1 {
			t.Errorf("%d lists", n)
		}
	})
}

func TestPagesOfAList(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.set(func(s *apiServer) { s.page = 2 })
		for _, n := range []string{"1", "2", "3", "4", "5"} {
			s.put("pods", "p"+n, pod("p"+n, "u"+n, "10.0.0."+n, true))
		}
		k.after(soon, "u1", "u2", "u3", "u4", "u5")
		s.set(func(s *apiServer) { s.oldest = s.version + 1; s.version++ })
		s.cutWatches()
		k.after(10*time.Second, "u1", "u2", "u3", "u4", "u5")
		if n := s.count("continue="); n < 2 {
			t.Errorf("%d further pages", n)
		}
	})
}

func TestWhatPodsSayOfThemselves(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true, annotated("hearsay/port", "9000", "hearsay/role", "prefill", "hearsay/bootstrap-port", "9100")))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true, annotated("hearsay/role", "decode", "hearsay/scheme", "https"), func(o obj) {
			o["metadata"].(obj)["labels"] = map[string]string{"app": "vllm", "llm-d.ai/role": "prefill"}
		}))
		s.put("pods", "c", pod("c", "uc", "fd00::3", true, func(o obj) {
			o["metadata"].(obj)["labels"] = map[string]string{"app": "vllm", "llm-d.ai/role": "decode"}
		}))
		s.put("pods", "d", pod("d", "ud", "10.0.0.4", true, annotated("hearsay/drain", "true", "hearsay/port", "http", "hearsay/dp-ranks", "4")))
		s.put("pods", "e", pod("e", "ue", "10.0.0.5", true, annotated("hearsay/role", "captain")))
		s.put("pods", "f", pod("f", "uf", "10.0.0.6", true, annotated("hearsay/port", "grpc")))
		k.after(soon, "ua", "ub", "uc", "ud draining")
		for i, want := range []struct {
			url  string
			role state.Role
			port int
		}{
			{"http://10.0.0.1:9000", state.RolePrefill, 9100},
			{"https://10.0.0.2:8000", state.RoleDecode, 0},
			{"http://[fd00::3]:8000", state.RoleDecode, 0},
			{"http://10.0.0.4:8000", state.RoleBoth, 0},
		} {
			if r := k.applied()[i]; r.URL != want.url || r.Role != want.role || r.BootstrapPort != want.port {
				t.Errorf("%+v, want %+v", r, want)
			}
		}
		if k.applied()[3].Ranks != 4 {
			t.Errorf("%+v", k.applied()[3])
		}
		refused := k.Status()[0].Refused
		if len(refused) != 2 || !strings.Contains(refused[0].Why, "captain") || !strings.Contains(refused[1].Why, "grpc") {
			t.Errorf("%+v", refused)
		}
	})
}

func slice(name, family string, port any, endpoints ...any) obj {
	return obj{
		"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": family, "endpoints": endpoints,
		"metadata": obj{"name": name, "uid": name, "labels": map[string]string{"kubernetes.io/service-name": "vllm"}},
		"ports":    []any{obj{"name": "http", "port": port, "protocol": "TCP"}, obj{"name": "metrics", "port": 9090, "protocol": "TCP"}},
	}
}

func endpoint(uid, ip string, conditions obj) obj {
	e := obj{"addresses": []string{ip}, "conditions": conditions, "nodeName": "n"}
	if uid != "" {
		e["targetRef"] = obj{"kind": "Pod", "name": "pod-" + uid, "uid": uid}
	}
	return e
}

func TestEndpointSlices(t *testing.T) {
	up := obj{"ready": true, "serving": true, "terminating": false}
	inKube(t, discovery.KubeConfig{Service: "vllm", Port: "http"}, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("endpointslices", "s1", slice("s1", "IPv4", 8000, endpoint("ua", "10.0.0.1", up), endpoint("", "10.0.0.9", obj{}), endpoint("un", "10.0.0.7", obj{"ready": false, "serving": false})))
		s.put("endpointslices", "s2", slice("s2", "IPv6", 8000, endpoint("ua", "fd00::1", up), endpoint("ub", "fd00::2", up)))
		s.put("endpointslices", "s3", slice("s3", "IPv4", 8000, endpoint("ua", "10.0.0.1", obj{"ready": false, "serving": false}))) // a stale copy
		k.after(soon, "10.0.0.9:8000", "ua", "ub")
		if r := k.applied()[1]; r.URL != "http://10.0.0.1:8000" || r.Name != "pod-ua" {
			t.Errorf("%+v", r)
		}
		s.remove("endpointslices", "s3")
		s.put("endpointslices", "s1", slice("s1", "IPv4", 8000,
			endpoint("ua", "10.0.0.1", obj{"ready": false, "serving": true, "terminating": true}), endpoint("", "", up), obj{"addresses": []string{}}))
		s.remove("endpointslices", "s2")
		k.after(soon, "10.0.0.9:8000 draining", "ua draining", "ub draining")
		s.put("endpointslices", "s1", slice("s1", "IPv4", 8000, endpoint("ub", "10.0.0.2", up)))
		k.after(soon, "10.0.0.9:8000 draining", "ua draining", "ub")
		if r := k.applied()[2]; r.URL != "http://10.0.0.2:8000" {
			t.Errorf("%+v", r)
		}
		k.after(2*time.Minute, "ub")
	})
}

func TestInferencePool(t *testing.T) {
	pool := func(labels map[string]string, ports ...int) obj {
		var list []any
		for _, p := range ports {
			list = append(list, obj{"number": p})
		}
		return obj{
			"kind": "InferencePool", "apiVersion": "inference.networking.k8s.io/v1", "metadata": obj{"name": "chat", "uid": "p"},
			"spec": obj{"selector": obj{"matchLabels": labels}, "targetPorts": list, "endpointPickerRef": obj{"name": "x"}},
		}
	}
	inKube(t, discovery.KubeConfig{InferencePool: "chat"}, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true, func(o obj) { o["metadata"].(obj)["labels"] = map[string]string{"app": "other"} }))
		k.after(soon)
		k.problem(0, "no such InferencePool")
		s.put("inferencepools", "chat", pool(map[string]string{"app": "vllm"}, 8000))
		k.after(soon, "ua")
		k.problem(0, "")
		s.put("inferencepools", "chat", pool(map[string]string{"app": "vllm"}, 8000, 8001)) // two ranks, each with a port
		k.after(soon, "ua:8000", "ua:8001")
		s.put("inferencepools", "chat", pool(map[string]string{"app": "other"}, 8000))
		k.after(soon, "ua:8000 draining", "ua:8001 draining", "ub")
		k.after(2*time.Minute, "ub")
		s.remove("inferencepools", "chat")
		k.after(10*time.Minute, "ub")
		k.problem(0, "no such InferencePool")
		s.put("inferencepools", "chat", pool(map[string]string{"app": "other"}, 8000))
		k.after(soon, "ub")
		k.problem(0, "")
		s.set(func(s *apiServer) { s.refuse, s.only = http.StatusForbidden, "inferencepools" })
		s.cutWatches()
		k.after(10*time.Minute, "ub")
		k.problem(0, "forbids")
		s.put("pods", "c", pod("c", "uc", "10.0.0.3", true, func(o obj) { o["metadata"].(obj)["labels"] = map[string]string{"app": "other"} }))
		k.after(soon, "ub", "uc") // Pods are followed all the same
		k.problem(0, "forbids")
		s.set(func(s *apiServer) { s.refuse = 0 })
		k.after(31*time.Second, "ub", "uc")
		k.problem(0, "")
	})
}
