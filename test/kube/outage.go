package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/proxy/console"
)

// lists counts the lists that discovery has asked for, but for the pool that is scaled:
// the leader lists its Pods all the time.
func (t *trial) lists() (int, error) {
	all, err := audit(t.plane.secrets.path("audit.log"))
	n := 0
	for _, a := range all {
		followed := slices.Contains([]string{"pods", "endpointslices", "inferencepools"}, a.Object.Resource) && !strings.Contains(a.URI, scaled)
		if a.Verb == "list" && followed && a.Response.Code == http.StatusOK {
			n++
		}
	}
	return n, err
}

// annotate sets an annotation of a Pod, or takes it away.
func (t *trial) annotate(ctx context.Context, p *pod, key, value string) error {
	v := "null"
	if value != "" {
		v = fmt.Sprintf("%q", value)
	}
	return t.plane.admin.merge(ctx, p.path(), fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, v))
}

// cut cuts all watches, changes a Pod meanwhile, and changes it back when they go on.
func (t *trial) cut(ctx context.Context) (string, error) {
	pods, _, err := t.agree(ctx, slack, "chat", 3)
	if err != nil {
		return "", err
	}
	p := &pods[0]
	before, err := t.lists()
	if err != nil {
		return "", err
	}
	t.relay.cut()
	err = t.annotate(ctx, p, "hearsay/drain", "true")
	t.relay.mend()
	if err != nil {
		return "", err
	}
	late, err := t.is(ctx, cutWithin+slack, "it drains", "chat", p.Metadata.UID, drains("annotated"))
	if err != nil {
		return "", err
	}
	if err := t.annotate(ctx, p, "hearsay/drain", ""); err != nil {
		return "", err
	}
	_, soon, err := t.agree(ctx, seenWithin+slack, "chat", 3)
	if err != nil {
		return "", err
	}
	after, err := t.lists()
	if err == nil && after != before {
		err = fmt.Errorf("%d lists were asked for", after-before)
	}
	return fmt.Sprintf("the change seen %.2f s after the cut, the next one after %.2f s", late.Seconds(), soon.Seconds()), err
}

// gone lets routers miss changes for good: what their watches would go on from is
// compacted, and the API server that could still remember it is another process.
func (t *trial) gone(ctx context.Context) (string, error) {
	before, _, err := t.agree(ctx, slack, "chat", 3)
	if err != nil {
		return "", err
	}
	version, err := t.version(ctx)
	if err != nil {
		return "", err
	}
	t.relay.cut()
	defer t.relay.mend()
	if err := t.plane.admin.do(ctx, http.MethodDelete, before[0].path(), "", nil, nil); err != nil {
		return "", err
	}
	if _, err := until(ctx, time.Minute, "the Pod is gone", func() (bool, string) {
		err := t.plane.admin.get(ctx, before[0].path(), nil)
		return code(err) == http.StatusNotFound, fmt.Sprint(err)
	}); err != nil {
		return "", err
	}
	after, err := t.podsOf(ctx, "chat", 3)
	if err != nil {
		return "", err
	}
	if err := t.plane.compact(ctx); err != nil {
		return "", err
	}
	t.plane.api.Kill()
	if _, err := t.plane.startAPI(ctx); err != nil {
		return "", err
	}
	if err := t.isGone(ctx, version); err != nil {
		return "", err
	}
	lists, err := t.lists()
	if err != nil {
		return "", err
	}
	t.relay.mend()
	took, err := t.everywhere(ctx, retriedWithin+slack, "all routers use the Pods there are", "chat", func(list []console.Replica) bool { return sees(list, after) })
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(after, func(p pod) bool { return p.Metadata.UID == before[0].Metadata.UID }) {
		return "", errors.New("the deleted Pod is there")
	}
	now, err := t.lists()
	if err == nil && now-lists < len(t.cluster.Routers) {
		err = fmt.Errorf("%d lists were asked for by %d routers", now-lists, len(t.cluster.Routers))
	}
	return fmt.Sprintf("%d lists, all routers right after %.1f s", now-lists, took.Seconds()), err
}

// version is the newest of Pods.
func (t *trial) version(ctx context.Context) (string, error) {
	var list struct {
		Metadata struct {
			Version string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := t.plane.admin.get(ctx, core+"pods", &list)
	return list.Metadata.Version, err
}

// isGone checks that the API server can't watch from a version: that is what routers
// are told, too.
func (t *trial) isGone(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.plane.admin.server+core+"pods?watch=true&resourceVersion="+version, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+t.plane.admin.bearer)
	resp, err := t.plane.admin.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	line, err := bufio.NewReader(resp.Body).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("watch from %s: %w", version, err)
	}
	var event struct {
		Type   string   `json:"type"`
		Object apiError `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return err
	}
	if event.Type != "ERROR" || event.Object.Code != http.StatusGone {
		return fmt.Errorf("a watch from %s is not gone but gets %.200s", version, line)
	}
	return nil
}

// outage is how long the API server is away.
const outage = 10 * time.Second

// away kills the API server, loses an engine meanwhile, and starts it again.
func (t *trial) away(ctx context.Context) (string, error) {
	pods, _, err := t.agree(ctx, slack, "chat", 3)
	if err != nil {
		return "", err
	}
	t.plane.api.Kill()
	begin := time.Now()
	var failed error
	asked := 0
	for time.Since(begin) < outage {
		for _, r := range t.cluster.Routers {
			by, err := burst(ctx, r.API, "chat", 3)
			asked += 3
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %v %w", r.Name, by, err)
			}
		}
	}
	warning, err := t.warned(ctx, slack, false, "API server", "replicas kept: 3")
	if err == nil {
		err = failed
	}
	for _, r := range t.cluster.Routers {
		list, listErr := replicas(ctx, r, "chat")
		if err == nil && (listErr != nil || !sees(list, pods)) {
			err = fmt.Errorf("%s has lost replicas: %s %w", r.Name, said(list), listErr)
		}
	}
	up, startErr := t.plane.startAPI(ctx)
	if err = errors.Join(err, startErr); err != nil {
		return "", err
	}
	back := time.Now()
	if _, err := t.warned(ctx, retriedWithin+slack, true, "API server", ", kubernetes "+namespace); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d requests in %v answered, %d replicas kept (%s); back %.1f s after the API server, which took %.1f s",
		asked, outage, len(pods), warning, time.Since(back).Seconds(), up.Seconds()), nil
}
