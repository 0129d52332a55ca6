package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// Follow reads the router's events of these kinds, parted by commas, as an operator
// does. It returns once the router tells them; stop ends it and returns what was told.
// It is to be called before the router stops.
func (r *Router) Follow(kinds string) (stop func() []console.Event) {
	r.b.T.Helper()
	tr := &http.Transport{DialContext: r.host.DialContext, DisableKeepAlives: true}
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+adminAddr+"/admin/v1/events?kinds="+kinds, nil)
	if err != nil {
		r.b.T.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, cancel)
	resp, err := tr.RoundTrip(req)
	late.Stop()
	if err != nil {
		cancel()
		r.b.T.Fatalf("%s: events: %v", r.Name, err)
	}
	told := make(chan []console.Event, 1)
	go func() {
		var list []console.Event
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var e console.Event
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &e) == nil {
				list = append(list, e)
			}
		}
		_ = resp.Body.Close()
		tr.CloseIdleConnections()
		told <- list
	}()
	r.b.T.Cleanup(cancel)
	return func() []console.Event { cancel(); return <-told }
}
