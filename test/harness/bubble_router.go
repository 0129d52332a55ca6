package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cmd/node"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/test/simnet"
)

// Router is one router of a Bubble over all its starts.
type Router struct {
	Name string // also its host

	b     *Bubble
	i     int
	host  *simnet.Host
	dir   string
	disk  *consensus.Memory
	log   Log
	boots []*boot
	now   *boot // nil while it does not run
}

// boot is one start of a router.
type boot struct {
	node   *node.Node
	cancel context.CancelFunc
	done   chan struct{}
	err    error       // read after done is closed
	dead   atomic.Bool // killed: nothing of it reaches the network any more
}

func routerName(i int) string { return fmt.Sprintf("r%d", i) }

const (
	apiPort     = ":8080"
	adminAddr   = "127.0.0.1:8081"
	clusterPort = ":7946"
)

// AddRouter starts one more router, with an empty disk, and returns it at once.
func (b *Bubble) AddRouter() *Router {
	b.T.Helper()
	i := len(b.routers)
	r := &Router{Name: routerName(i), b: b, i: i, host: b.Net.Host(routerName(i)), dir: b.newDir(), disk: consensus.NewMemory(), log: Log{Keep: 256 << 10}}
	b.routers = append(b.routers, r)
	r.start()
	return r
}

// file is the router's configuration.
func (r *Router) file() node.Config {
	cfg := &r.b.cfg
	c := node.Defaults()
	c.Node.Name, c.Node.DataDir = r.Name, r.dir
	c.Listen.API, c.Listen.Admin, c.Listen.Cluster = apiPort, adminAddr, clusterPort
	c.Cluster.Insecure, c.Cluster.Sharing = true, !cfg.NoSharing
	c.Cluster.BootstrapExpect = min(3, cfg.Routers)
	if cfg.Routers > 1 || r.i > 0 {
		for j := range cfg.Routers {
			c.Cluster.Join = append(c.Cluster.Join, r.b.Net.Host(routerName(j)).IP().String()+clusterPort)
		}
	}
	c.API.Debug = true
	c.Log.Level = "debug"
	p := node.PoolConfig{Name: Pool, Model: Model, Policy: cfg.Policy}
	for _, e := range r.b.engines {
		p.Replicas = append(p.Replicas, node.ReplicaConfig{URL: e.URL()})
	}
	if cfg.PoolFile != nil {
		cfg.PoolFile(&p)
	}
	c.Pools = []node.PoolConfig{p}
	if cfg.RouterFile != nil {
		cfg.RouterFile(r.i, &c)
	}
	c.Finish()
	return c
}

// start starts the router on its disk as it is.
func (r *Router) start() {
	t := r.b.T
	t.Helper()
	x := &boot{done: make(chan struct{})}
	n, err := node.New(r.file(), node.Deps{
		Log:    zerolog.New(&r.log).With().Timestamp().Logger(),
		Getenv: func(string) string { return "" },
		Load: func() (node.Config, error) {
			c := r.file()
			return c, c.Validate()
		},
		Memory: r.disk, NoDate: true, Resolve: r.host.LookupHost,
		Listen: func(network, addr string) (net.Listener, error) {
			if x.dead.Load() {
				return nil, net.ErrClosed
			}
			return r.host.Listen(network, addr)
		},
		ListenPacket: func(network, addr string) (net.PacketConn, error) {
			if x.dead.Load() {
				return nil, net.ErrClosed
			}
			return r.host.ListenPacket(network, addr)
		},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if x.dead.Load() {
				return nil, net.ErrClosed
			}
			return r.host.DialContext(ctx, network, addr)
		},
	})
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.node, x.cancel = n, cancel
	go func() {
		defer close(x.done)
		x.err = n.Run(ctx)
	}()
	r.boots, r.now = append(r.boots, x), x
}

func (x *boot) wait(bound time.Duration) error {
	select {
	case <-x.done:
		return x.err
	case <-time.After(bound):
		return fmt.Errorf("did not stop within %v", bound)
	}
}

// Kill ends the router as kill -9 does: its connections are reset, its sockets are
// gone, and its disk stays as it is at this instant. Its goroutines are told to
// end, but nothing of what they still do leaves them.
func (r *Router) Kill() {
	x := r.now
	if x == nil {
		return
	}
	x.dead.Store(true)
	r.host.Crash()
	dir := r.b.newDir()
	if err := copyDisk(dir, r.dir); err != nil {
		r.b.T.Fatalf("%s: %v", r.Name, err)
	}
	r.dir, r.now = dir, nil
	x.cancel()
}

// copyDisk copies what a kill leaves of a data directory: files as they were last
// renamed into place. One that is being written beside them has no name yet.
func copyDisk(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(filepath.Base(path), ".tmp-"):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
}

// Stop ends the router in order, as SIGTERM does, and waits for its end.
func (r *Router) Stop() error {
	x := r.now
	if x == nil {
		return nil
	}
	r.now = nil
	x.cancel()
	err := x.wait(2 * time.Minute)
	r.host.Crash()
	return err
}

// Ended waits for the end of a router that was told by other means to stop.
func (r *Router) Ended(bound time.Duration) error {
	x := r.now
	if x == nil {
		return nil
	}
	if err := x.wait(bound); err != nil {
		return err
	}
	r.now = nil
	r.host.Crash()
	return nil
}

// Restart starts a router again that was killed or stopped, on the disk it left.
func (r *Router) Restart() {
	r.b.T.Helper()
	if r.now != nil {
		r.b.T.Fatalf("%s runs", r.Name)
	}
	r.host.Restart()
	r.start()
}

// Wipe empties the disk of a router that does not run: started again, it is a new
// node at the same address.
func (r *Router) Wipe() {
	r.dir, r.disk = r.b.newDir(), consensus.NewMemory()
}

// ForgetRaft empties what a router that does not run keeps of its cluster, which a
// real one has in the raft directory of its data directory.
func (r *Router) ForgetRaft() { r.disk = consensus.NewMemory() }

// Running reports whether it runs.
func (r *Router) Running() bool { return r.now != nil }

// Node is the running node. It ends the test when there is none.
func (r *Router) Node() *node.Node {
	r.b.T.Helper()
	if r.now == nil {
		r.b.T.Fatalf("%s does not run", r.Name)
	}
	select {
	case <-r.now.done:
		r.b.T.Fatalf("%s has ended: %v", r.Name, r.now.err)
	default:
	}
	return r.now.node
}

// ID is the running node's id.
func (r *Router) ID() state.RouterID { return state.RouterID(r.Node().Info().ID) }

// Replica is a replica as this router sees it now.
func (r *Router) Replica(id state.ReplicaID) *state.ReplicaView {
	r.b.T.Helper()
	v := r.Node().View().Replica(id)
	if v == nil {
		r.b.T.Fatalf("%s does not list %s", r.Name, id)
	}
	return v
}

// Explain is where this router would send a chat request now.
func (r *Router) Explain(body []byte) proxy.Explanation {
	r.b.T.Helper()
	x, err := r.Node().Explain(context.Background(), "", ChatPath, body)
	if err != nil {
		r.b.T.Fatalf("%s: explain: %v", r.Name, err)
	}
	return x.(proxy.Explanation)
}

// Past is where a request that this router served went, one pick per attempt.
func (r *Router) Past(requestID string) []proxy.Pick {
	x, ok := r.Node().Past(requestID)
	if !ok {
		return nil
	}
	return x.([]proxy.Pick)
}

// Admin asks the router's admin listener from its own host, and decodes the answer
// into out unless that is nil. A body is sent as JSON.
func (r *Router) Admin(method, path string, in, out any) (status int, err error) {
	tr := &http.Transport{DialContext: r.host.DialContext, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+adminAddr+path, body)
	if err != nil {
		return 0, err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || out == nil {
		return resp.StatusCode, err
	}
	if s, ok := out.(*string); ok {
		*s = string(b)
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w: %s", method, path, err, b)
	}
	return resp.StatusCode, nil
}

// Log is the end of what the router has logged over all its starts.
func (r *Router) Log() string { return r.log.String() }

// Data is the router's data directory.
func (r *Router) Data(file string) string { return filepath.Join(r.dir, file) }

func (r *Router) members(st string) (n int) {
	for _, m := range r.Node().Members() {
		if m.State == st {
			n++
		}
	}
	return n
}

// unready says what a router lacks that is to be one of n.
func (r *Router) unready(n int) error {
	if ok, why := r.Node().Ready(); !ok {
		return fmt.Errorf("%s: %s", r.Name, strings.Join(why, ", "))
	}
	if r.Node().View().Facts.Index == 0 {
		return fmt.Errorf("%s: no committed facts", r.Name)
	}
	if seen := r.members("alive"); seen != n {
		return fmt.Errorf("%s: sees %d routers of %d", r.Name, seen, n)
	}
	return r.unread()
}

// unread says which engines it has no fresh reading of.
func (r *Router) unread() error {
	var errs []error
	now := time.Now()
	for _, e := range r.b.engines {
		switch v := r.Node().View().Replica(e.ID); {
		case !e.Running():
		case v == nil:
			errs = append(errs, fmt.Errorf("%s: does not list %s", r.Name, e.ID))
		case !v.Fresh(now):
			errs = append(errs, fmt.Errorf("%s: no fresh reading of %s: %s", r.Name, e.ID, v.Reading.Err))
		}
	}
	return errors.Join(errs...)
}
