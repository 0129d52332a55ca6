package discovery_test

import (
	"strconv"
	"testing"
	"time"
)

// Versions go back where the server's store is replaced by a backup: what is asked for is
// of the future there. What the server has now is listed soon.
func TestVersionsGoBack(t *testing.T) {
	inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
		s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
		s.put("pods", "b", pod("b", "ub", "10.0.0.2", true))
		k.after(soon, "ua", "ub")
		s.set(func(s *apiServer) {
			s.objects["pods"] = map[string]obj{"a": s.objects["pods"]["a"]}
			s.history, s.version = nil, 7
		})
		s.cutWatches()
		k.after(30*time.Second, "ua", "ub draining")
		k.problem(0, "")
		s.put("pods", "c", pod("c", "uc", "10.0.0.3", true)) // it is followed from there
		k.after(soon, "ua", "ub draining", "uc")
	})
}

// A list whose pages have no end is given up, and what was known stays.
func TestListWithoutAnEnd(t *testing.T) {
	n := 0
	for name, next := range map[string]func() string{
		"the same page again": func() string { return "a" },
		"ever another one":    func() string { n++; return "a" + strconv.Itoa(n) },
	} {
		t.Run(name, func(t *testing.T) {
			inKube(t, byLabel, func(t *testing.T, s *apiServer, k *kubeRig) {
				s.put("pods", "a", pod("a", "ua", "10.0.0.1", true))
				k.after(soon, "ua")
				s.set(func(s *apiServer) { s.endless, s.oldest = next, s.version+1 })
				s.cutWatches()
				k.after(20*time.Second, "ua")
				k.problem(0, "without an end")
			})
		})
	}
}
