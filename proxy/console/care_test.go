package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

// fakeCare notes what it is asked.
type fakeCare struct {
	asked []string
	err   error
}

func (f *fakeCare) note(s string) error {
	f.asked = append(f.asked, s)
	return f.err
}

func (f *fakeCare) Leave(context.Context) (string, error) { return "gone", f.note("leave") }

func (f *fakeCare) Save(_ context.Context, stale bool) ([]byte, error) {
	if stale {
		return []byte("{}"), f.note("save stale")
	}
	return []byte("{}"), f.note("save")
}

func (f *fakeCare) Restore(_ context.Context, b []byte, force bool) (uint64, bool, error) {
	if force {
		return 7, false, f.note("force " + string(b))
	}
	return 7, false, f.note("restore " + string(b))
}

func (f *fakeCare) Reload(context.Context) (Reloaded, error) {
	return Reloaded{Changed: []string{"log.level"}}, f.note("reload")
}

func (f *fakeCare) Keyring(_ context.Context, op, key string, force bool) ([]Keys, error) {
	if force {
		op += " by force"
	}
	return []Keys{{Name: "one"}}, f.note("keys " + op + " " + key)
}

func TestCareIsAskedAndItsRefusalsAreTold(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	care, n := &fakeCare{}, newFake()
	s := New(Config{Listener: ln, Token: "secret", Care: care, Metrics: http.NotFoundHandler(), Log: zerolog.Nop()}, n, n, n, n)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	url := "http://" + ln.Addr().String() + "/admin/v1/"
	f := func(method, path, body, asked, answer string) {
		t.Helper()
		care.asked, care.err = nil, nil
		if code, _ := do(t, method, url+path, body); code != http.StatusUnauthorized || len(care.asked) > 0 {
			t.Errorf("%s without a token: status %d, %q", path, code, care.asked)
		}
		auth := []string{"Authorization", "Bearer secret"}
		code, got := do(t, method, url+path, body, auth...)
		if code != http.StatusOK || !strings.Contains(got, answer) || strings.Join(care.asked, "; ") != asked {
			t.Errorf("%s %s: status %d, %q, asked %q", method, path, code, got, care.asked)
		}
		for status, err := range map[int]error{
			http.StatusServiceUnavailable:  ErrNoLeader,
			http.StatusGatewayTimeout:      ErrUnknownOutcome,
			http.StatusConflict:            &state.Refusal{Code: state.RefusedQuorum, Reason: "needed"},
			http.StatusBadRequest:          &state.Refusal{Code: state.RefusedInvalid, Reason: "nonsense"},
			http.StatusInternalServerError: errors.New("disk full"),
		} {
			care.err = err
			if code, got := do(t, method, url+path, body, auth...); code != status {
				t.Errorf("%s %s with %v: status %d, %s", method, path, err, code, got)
			}
		}
	}
	f("POST", "leave", "", "leave", "gone")
	f("GET", "snapshot", "", "save", "{}")
	f("GET", "snapshot?stale", "", "save stale", "{}")
	f("PUT", "snapshot", "facts", "restore facts", `"index": 7`)
	f("PUT", "snapshot?force", "facts", "force facts", `"index": 7`)
	f("POST", "config/reload", "", "reload", "log.level")
	f("GET", "keyring", "", "keys list ", "one")
	f("POST", "keyring", `{"op":"use","key":"ab"}`, "keys use ab", "one")
	f("POST", "keyring", `{"op":"add","force":true}`, "keys add by force ", "one")
	care.err = ErrNoLeader
	if _, got := do(t, "GET", url+"snapshot", "", "Authorization", "Bearer secret"); !strings.Contains(got, "--stale") {
		t.Errorf("a snapshot without a leader: %s", got)
	}
}

func TestRouterWithoutCareSaysSo(t *testing.T) {
	url := start(t, newFake(), "")
	for _, path := range []string{"leave", "config/reload"} {
		if code, _ := do(t, "POST", url+"/admin/v1/"+path, ""); code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, code)
		}
	}
}
