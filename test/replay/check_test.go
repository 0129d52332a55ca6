package replay

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// What can't succeed at a target is told before anything is sent to it.
func TestTargetsAreChecked(t *testing.T) {
	f := func(name, want string, handler http.HandlerFunc) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := serve(t, handler)
				err := Check(t.Context(), Config{Targets: []string{"a:1", "http://b/v1"}, Model: "m", APIKey: "k", DialContext: n.dial})
				if want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				for _, target := range []string{"a:1", "http://b/v1"} {
					if err == nil || !strings.Contains(err.Error(), "target "+target+" "+want) {
						t.Errorf("%v, want %s of %s", err, want, target)
					}
				}
			})
		})
	}
	models := func(list string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer k" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, list)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	f("it has the model", "", models(`{"data":[{"id":"x"},{"id":"m"}]}`))
	f("it has others", `does not serve "m": it has x, y`, models(`{"data":[{"id":"x"},{"id":"y"}]}`))
	f("it lists none", "", models(`{"data":[]}`))
	f("it lists in its own way", "", models("x, y"))
	f("it knows no models", "", status(http.StatusNotFound))
	f("it is busy", "", status(http.StatusServiceUnavailable))
	f("another key", "answers 401: it asks for another API key", status(http.StatusUnauthorized))
	f("it hangs", "does not answer within 5s", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	synctest.Test(t, func(t *testing.T) {
		n := serve(t, status(http.StatusOK))
		_ = n.Close()
		if err := Check(t.Context(), Config{Targets: []string{"a:1"}, Model: "m", DialContext: n.dial}); err == nil || !strings.Contains(err.Error(), "target a:1 can't be reached: ") {
			t.Errorf("nobody there: %v", err)
		}
	})
}
