package discovery

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hearsay-llm/hearsay/deploy/kube"
)

// Bounds of what is read from an API server.
const (
	listPage    = "250"            // objects per page
	maxListPage = 64 << 20         // bytes of a page
	maxEvent    = 8 << 20          // bytes of one event
	listWait    = 30 * time.Second // for a page
	watchLeast  = 4 * time.Minute  // a watch lasts so long, and up to a quarter longer
	listAgain   = 10 * time.Minute // a watch goes on where the last one ended until the list is so old
	retryFirst  = time.Second
	retryMost   = 30 * time.Second
	retryEnded  = 5 * time.Second // after a watch that just ended
)

// kubeObject has what is read of Pods, EndpointSlices and InferencePools.
type kubeObject struct {
	Metadata struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Version     string            `json:"resourceVersion"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Deletion    *string           `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct { // of Pods, and of InferencePools
		Containers []struct {
			Ports []kubePort `json:"ports"`
		} `json:"containers"`
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int `json:"number"`
		} `json:"targetPorts"`
	} `json:"spec"`
	Status struct { // of Pods
		Phase      string `json:"phase"`
		IP         string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
	Family    string         `json:"addressType"` // of EndpointSlices, as is what follows
	Ports     []kubePort     `json:"ports"`
	Endpoints []kubeEndpoint `json:"endpoints"`
}

type kubePort struct {
	Name      string `json:"name"`
	Container int    `json:"containerPort"` // of a Pod
	Port      int    `json:"port"`          // of an EndpointSlice
	Protocol  string `json:"protocol"`
}

type kubeEndpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Serving     *bool `json:"serving"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	Target struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"targetRef"`
}

// follower keeps what an API server has at a path: it lists, then watches from there,
// and lists again when a watch can't go on, and now and then: an event that nobody
// delivered is made up for.
type follower struct {
	access  *kube.Access
	path    string
	query   url.Values
	changed func(objects map[string]kubeObject) // after each list, event and bookmark, and a watch that begins after a failure; not kept
	failed  func(error)

	objects map[string]kubeObject // by name
	version string                // to watch from; empty: list first
	listed  time.Time
	failing bool // failed was called since changed was
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	delay := retryFirst
	for ctx.Err() == nil {
		fresh := f.version == ""
		good, err := f.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		if good {
			delay = retryFirst
		}
		pause := delay
		switch {
		case kube.Is(err, http.StatusGone):
			f.version = ""
			if !fresh {
				continue // usual after a while
			}
			f.fail(err)
		case err != nil:
			f.fail(err)
		default: // some proxies end watches at once
			pause = min(delay, retryEnded)
		}
		wait(ctx, time.Duration((.5+rand.Float64()/2)*float64(pause)))
		delay = min(2*delay, retryMost)
	}
}

func (f *follower) fail(err error) {
	f.failing = true
	f.failed(err)
}

func (f *follower) tell() {
	f.failing = false
	f.changed(f.objects)
}

// turn lists if it must, and watches once. It is good when the watch has lasted.
func (f *follower) turn(ctx context.Context) (good bool, err error) {
	if f.version == "" || time.Since(f.listed) > listAgain {
		if err := f.list(ctx); err != nil {
			f.version = ""
			return false, err
		}
		f.tell()
	}
	begun := time.Now()
	events, err := f.watch(ctx)
	return events > 0 || err == nil && time.Since(begun) > retryMost, err
}

// list replaces what is known by all that the server has.
func (f *follower) list(ctx context.Context) error {
	objects, next := map[string]kubeObject{}, ""
	query := cloned(f.query)
	query.Set("limit", listPage)
	for pages := 1; ; pages++ {
		page, err := f.page(ctx, query)
		if err != nil {
			return err
		}
		for _, o := range page.Items {
			objects[o.Metadata.Name] = o
		}
		if len(objects) > maxFound {
			return fmt.Errorf("the API server lists more than %d objects", maxFound)
		}
		last := next
		if next = page.Metadata.Continue; next != "" && (next == last || pages == maxFound) {
			return errors.New("the API server lists one page after another without an end")
		}
		if next == "" {
			f.objects, f.version, f.listed = objects, page.Metadata.Version, time.Now()
			if f.version == "" {
				return errors.New("the API server's list has no resourceVersion")
			}
			return nil
		}
		query.Set("continue", next)
	}
}

type kubeList struct {
	Metadata struct {
		Version  string `json:"resourceVersion"`
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []kubeObject `json:"items"`
}

func (f *follower) page(ctx context.Context, query url.Values) (page kubeList, err error) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	body, err := f.access.Get(ctx, f.path, query)
	if err != nil {
		return page, err
	}
	return page, kube.Decode(ctx, body, maxListPage, &page)
}

// kubeEvent is one line of a watch.
type kubeEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch applies what happens from f.version on, until the server ends the watch, which
// is no error, or it breaks.
func (f *follower) watch(ctx context.Context) (events int, err error) {
	seconds := watchLeast + rand.N(watchLeast/4)
	ctx, cancel := context.WithTimeout(ctx, seconds+30*time.Second) // a server that hangs ends nothing
	defer cancel()
	query := cloned(f.query)
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", f.version)
	query.Set("timeoutSeconds", strconv.Itoa(int(seconds.Seconds())))
	body, err := f.access.Get(ctx, f.path, query)
	if err != nil {
		if kube.Is(err, http.StatusBadRequest) || kube.Is(err, http.StatusGatewayTimeout) {
			f.version = "" // it may be one that this server does not know: of before a restored backup
		}
		return 0, err
	}
	defer func() { _ = body.Close() }()
	if f.failing { // the server is back, and nothing need happen for minutes
		f.tell()
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	lines.Split(wholeLines)
	for lines.Scan() {
		if err := f.event(lines.Bytes()); err != nil {
			return events, err
		}
		events++
		f.tell()
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		f.version = "" // it would come again
		return events, fmt.Errorf("the API server sends an event of more than %d bytes", maxEvent)
	}
	return events, nil // cut off or not: the next watch goes on from here
}

// wholeLines splits at newlines and drops a line that was cut off.
func wholeLines(data []byte, _ bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// event applies one event. What can't be applied makes the next turn list.
func (f *follower) event(line []byte) error {
	var e kubeEvent
	var o kubeObject
	if json.Unmarshal(line, &e) != nil || e.Type != "ERROR" && json.Unmarshal(e.Object, &o) != nil {
		f.version = ""
		return errors.New("the API server sends an event that is not understood")
	}
	name := o.Metadata.Name
	switch e.Type {
	case "ADDED", "MODIFIED":
		if _, have := f.objects[name]; !have && len(f.objects) >= maxFound {
			f.version = ""
			return fmt.Errorf("the API server lists more than %d objects", maxFound)
		}
		f.objects[name] = o
	case "DELETED": // a late one is not for who has the name now
		if f.objects[name].Metadata.UID == o.Metadata.UID {
			delete(f.objects, name)
		}
	case "BOOKMARK":
	case "ERROR":
		f.version = ""
		var status struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		_ = json.Unmarshal(e.Object, &status)
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return &kube.Error{Code: status.Code, Text: clip(status.Message)}
	}
	if o.Metadata.Version != "" {
		f.version = o.Metadata.Version
	}
	return nil
}

func cloned(q url.Values) url.Values {
	out := url.Values{}
	for k, v := range q {
		out[k] = v
	}
	return out
}
