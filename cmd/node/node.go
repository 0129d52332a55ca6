package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/autoscale"
	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cluster/gossip"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/cluster/observe"
	"github.com/hearsay-llm/hearsay/proxy"
	"github.com/hearsay-llm/hearsay/proxy/console"
	"github.com/hearsay-llm/hearsay/proxy/engine"
	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/routing/balance"
	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix"
	"github.com/hearsay-llm/hearsay/state/sketch"
)

// Node is one router, all parts joined.
type Node struct {
	cfg     Config
	deps    Deps
	log     zerolog.Logger
	id      state.RouterID
	clock   *state.Clock
	started time.Time
	reg     *prometheus.Registry

	store     *state.Store
	index     *sketch.Index
	cal       *routing.Calibration
	ratios    *prefix.Ratios
	lessons   *lessons
	mesh      *mesh.Mesh
	gossip    *gossip.Gossip
	raft      *consensus.Node
	observe   *observe.Loop
	balance   *balance.Loop
	scale     *autoscale.Loop
	discover  *discoveries
	gate      *gateway.Gate
	proxy     *proxy.Server
	console   *console.Server
	events    *console.Events
	meter     *meter
	opinion   *opinions
	prints    atomic.Pointer[[]string] // fingerprints of keys, for everybody
	cert      *certificate             // of the client API; nil: plain TCP
	joinFault atomic.Pointer[string]   // why cluster.join_file cannot be used, if so
	keysFault atomic.Pointer[string]   // why cluster.secret_file cannot be used, if so
	replaced  atomic.Pointer[replaced] // all shared keys at once, if so
	keys      [][]byte                 // shared, the one to use first; only newCluster and watchKeys touch it

	apiListener, adminListener net.Listener
	routerTLS                  *routerTLS // nil: streams are not in TLS
	clusterAddr                string     // where others reach memberlist; the mesh is on the next port

	closers  []func() // of what New opened; run when Run ends or New fails
	stopping atomic.Bool
	stop     context.CancelFunc // ends Run as its context does

	live        atomic.Pointer[Config] // what runs; cfg is what it was started with
	digested    atomic.Pointer[digested]
	reloading   sync.Mutex             // one Reload at a time
	reloadFault atomic.Pointer[string] // why the last reload was refused, if so
	reloads     *prometheus.CounterVec
	orphansTold atomic.Pointer[orphanTold]
	reasked     chan struct{} // capacity 1: the others are to be asked what they run
	agreed      agreement
	rekey       chan struct{} // capacity 1: cluster.secret_file has changed
	keyring     sync.Mutex    // one change of all routers' secrets at a time
	keysFile    sync.Mutex    // one change of cluster.secret_file at a time
	parts       parts
}

// New builds a node from a valid configuration: it opens its listeners and its
// data directory and starts nothing. Run must follow, or Close.
func New(cfg Config, deps Deps) (n *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	deps.fill()
	n = &Node{
		cfg: cfg, deps: deps, started: time.Now(),
		log: deps.Log.With().Str("router", cfg.Node.Name).Logger(),
		reg: prometheus.NewRegistry(), reasked: make(chan struct{}, 1), rekey: make(chan struct{}, 1),
	}
	n.live.Store(&n.cfg)
	n.meter = &meter{metrics: n.reg}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	n.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := os.MkdirAll(cfg.Node.DataDir, 0o700); err != nil {
		return n, fmt.Errorf("node.data_dir: %w", err)
	}
	unlock, err := lockDir(cfg.Node.DataDir)
	if err != nil {
		return n, err
	}
	n.closers = append(n.closers, unlock)
	if n.id, err = loadID(cfg.Node.DataDir); err != nil {
		return n, err
	}
	n.clock = state.NewClock(newBoot(), n.started)
	n.newState()
	if n.apiListener, err = n.listen("listen.api", cfg.Listen.API); err != nil {
		return n, err
	}
	if n.adminListener, err = n.listen("listen.admin", cfg.Listen.Admin); err != nil {
		return n, err
	}
	if n.cert, err = newCertificate(cfg.API.TLS); err != nil {
		return n, err
	}
	n.warnReadable("api.tls.key", cfg.API.TLS.Key)
	if err := n.newDiscovery(); err != nil {
		return n, err
	}
	if err := n.newCluster(); err != nil {
		return n, err
	}
	if err := n.newScale(); err != nil {
		return n, err
	}
	if err := n.newProxy(); err != nil {
		return n, err
	}
	return n, n.newConsole()
}

// newState makes what the node knows: store, sketch, calibration.
func (n *Node) newState() {
	n.store = state.NewStore(state.Config{Self: n.id, Clock: n.clock, Pools: n.cfg.specs()})
	n.index = sketch.New(sketch.Config{Clock: n.clock, Slots: n.store.SlotOf})
	n.cal, n.ratios = routing.NewCalibration(), prefix.NewRatios(1024)
	n.lessons = newLessons(n.store, n.cal, n.ratios, n.cfg.Cluster.Sharing)
	n.store.OnGone(func(slot state.Slot, id state.ReplicaID) {
		n.index.Forget(slot, id)
		n.cal.Forget(slot, id)
		n.observe.Forget(id) // last: it tells the index again of what comes back
	})
	for i := range n.cfg.Pools {
		n.store.SetReplicas(state.SourceStatic, n.cfg.Pools[i].Name, n.cfg.Pools[i].static())
	}
	newStateMetrics(n.reg, n)
	newConfigMetrics(n.reg, n)
}

// newProxy makes the client side.
func (n *Node) newProxy() (err error) {
	n.events = console.NewEvents()
	n.gate = gateway.New(n.cfg.Gateway.keys())
	n.balance = balance.New(balance.Config{Sketch: n.index}, n.store, n.cal, n.log, n.reg)
	picker := routing.NewPicker(routing.Config{}, n.index, n.cal)
	n.opinion = newOpinions(n.reg)
	n.meter.sources = append(n.meter.sources, n.opinion)
	n.proxy, err = proxy.New(proxy.Config{
		Core: proxy.CoreConfig{
			Store: n.store, Picker: picker, Ratios: n.ratios, Index: n.index,
			Calibration: n.lessons, Counted: n.lessons.Counted, Reporter: reporter{n.balance}, Sample: n.opinion.sample,
			Loads: n.store.RefreshReading, Picked: n.picked, Told: n.tellPick, Ended: n.tellRequest, Prompts: n.cfg.Diagnose.Sample,
			Prewarm: n.index, Prewarmed: n.tellPrewarm,
		},
		Listeners: []net.Listener{n.cert.secure(n.apiListener)},
		Dial:      func(ctx context.Context, addr string) (net.Conn, error) { return n.deps.Dial(ctx, "tcp", addr) },
		Ready: func() proxy.Readiness {
			ok, reasons := n.Ready()
			r := proxy.Readiness{Ready: ok}
			for _, why := range reasons {
				if r.Reasons == nil {
					r.Reasons = map[string]string{}
				}
				r.Reasons[why] = "waiting"
			}
			return r
		},
		Getenv: n.deps.Getenv,
		Gate:   n.gate,
		Limits: proxy.Limits{
			HeaderBytes: int(n.cfg.API.MaxHeader), BodyBytes: int(n.cfg.API.MaxBody), BodyBudget: int(n.cfg.API.BodyBudget),
			Drain: drainAtMost, Conns: n.cfg.API.MaxConnections, ConnAge: n.cfg.API.ConnectionMaxAge, WriteStall: n.cfg.API.WriteStall,
		},
		Logger: n.log, Registry: n.reg, NoDate: n.deps.NoDate, Debug: n.cfg.API.Debug,
	})
	if err != nil {
		return err
	}
	n.opinion.judge, n.opinion.call, n.opinion.peers = n.proxy.Core().Judge, n.mesh.Call, n.streams
	return nil
}

// newConsole makes the operators' side.
func (n *Node) newConsole() error {
	token := ""
	if f := n.cfg.Admin.TokenFile; f != "" {
		list, err := readSecrets(f, 1)
		if err != nil {
			return fmt.Errorf("admin.token_file: %w", err)
		}
		token = string(list[0])
		n.warnReadable("admin.token_file", f)
	}
	n.console = console.New(console.Config{
		Listener: n.adminListener, Token: token, Log: n.log,
		Metrics: promhttp.HandlerFor(n.reg, promhttp.HandlerOpts{Registry: n.reg}), Events: n.events, Care: n,
	}, n, n, n, n)
	return nil
}

// listen opens a TCP listener and sees to its end.
func (n *Node) listen(key, addr string) (net.Listener, error) {
	ln, err := n.deps.Listen("tcp", addr)
	if err != nil {
		mend := "free the address or choose another"
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			mend = "this machine has no such address: choose one that it has"
		}
		return nil, fmt.Errorf("%s: %w: %s (in the file, by HEARSAY_%s, or by %s of serve)", key, err, mend, envName(key), flagOf(key))
	}
	n.closers = append(n.closers, func() { _ = ln.Close() })
	return ln, nil
}

// flagOf is the flag of serve that sets an address.
func flagOf(key string) string {
	key, _, _ = strings.Cut(key, " ")
	return map[string]string{"listen.api": "--listen", "listen.admin": "--admin", "listen.cluster": "--cluster"}[key]
}

// envName is the environment's name of a key, without its prefix.
func envName(key string) string {
	key, _, _ = strings.Cut(key, " ")
	return strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// Close frees what New opened, for a node that is not run.
func (n *Node) Close() {
	for i := len(n.closers) - 1; i >= 0; i-- {
		n.closers[i]()
	}
	n.closers = nil
}

// Run runs the node until ctx ends, then stops it in order: no longer ready,
// leadership handed over, no longer accepting, streams drained, left, saved. Call
// it once.
func (n *Node) Run(ctx context.Context) error {
	defer n.Close()
	ctx, n.stop = context.WithCancel(ctx)
	defer n.stop()
	n.loadKnown()
	p := &n.parts
	p.log = n.log
	p.add("console", 5*time.Second, n.console.Run)
	p.add("mesh", 5*time.Second, n.mesh.Run)
	p.add("gossip", 5*time.Second, n.gossip.Run)
	p.add("shared keys", time.Second, n.watchKeys)
	p.add("certificate", time.Second, n.watchCertificate)
	p.add("consensus", 15*time.Second, n.raft.Run)
	p.add("other clusters", 2*time.Second, n.tellApart)
	p.add("configurations", 2*time.Second, n.watchConfigs)
	p.add("reload", 5*time.Second, n.reloadOnHangup)
	p.add("discovery", 10*time.Second, n.discover.Run)
	p.add("observe", 5*time.Second, n.observe.Run)
	p.add("balance", time.Second, n.balance.Run)
	p.add("scale", time.Second, n.scale.Watch)
	p.add("figures", time.Second, n.meter.Run)
	p.add("opinions", 5*time.Second, n.opinion.Run)
	p.add("saved knowledge", 30*time.Second, n.keepKnown)
	p.add("proxy", 40*time.Second, n.serveClients)
	p.add("prewarm", 5*time.Second, n.proxy.Prewarm().Run)
	n.log.Info().Str("id", string(n.id)).Str("api", n.apiListener.Addr().String()).Str("admin", n.adminListener.Addr().String()).
		Str("cluster", n.clusterAddr).Str("version", Version()).Msg("router started")
	for _, pool := range n.store.View().Pools {
		n.log.Info().Str("pool", pool.Spec.Name).Str("model", pool.Spec.Model).Str("policy", pool.Spec.Policy).
			Int("replicas", len(pool.Replicas)).Msg("pool configured")
	}
	later, settled := n.stepDown(ctx)
	err := p.run(later)
	settled()
	n.log.Info().Err(err).Msg("router stopped")
	return err
}

// drainAtMost is how long running requests are waited for when this router stops.
const drainAtMost = 30 * time.Second

// tellDrainEvery is how often it is said what a stop waits for.
const tellDrainEvery = 5 * time.Second

// serveClients runs the proxy, and says what it waits for when it is told to stop.
func (n *Node) serveClients(ctx context.Context) error {
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-ended:
		case <-ctx.Done():
			n.tellDrain(ended)
		}
	}()
	err := n.proxy.Run(ctx)
	close(ended)
	<-told
	return err
}

// tellDrain logs how many requests are waited for, and for how long yet at most.
func (n *Node) tellDrain(ended <-chan struct{}) {
	end := time.Now().Add(drainAtMost)
	tick := time.NewTicker(tellDrainEvery)
	defer tick.Stop()
	for {
		if running := n.inFlight(); running > 0 {
			n.log.Info().Int64("requests", running).Dur("at_most_ms", max(0, time.Until(end).Round(time.Millisecond))).Msg("waiting for running requests")
		}
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}

// inFlight counts the requests that run through this router.
func (n *Node) inFlight() (sum int64) {
	for _, p := range n.store.View().Pools {
		for _, r := range p.Replicas {
			sum += r.Cell.Load().InFlight
		}
	}
	return sum
}

// stepDown gives a context that ends later than ctx does. In between this router
// says that it is not ready and still serves, so that balancers stop sending before
// it stops accepting; and it hands leadership over, so that there is a leader while
// its streams run out. settled, called after the parts have stopped, waits for the
// end of that.
func (n *Node) stepDown(ctx context.Context) (later context.Context, settled func()) {
	later, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		n.stopping.Store(true)
		n.log.Info().Dur("delay_ms", n.cfg.API.DrainDelay).Int64("requests", n.inFlight()).Msg("stopping: no longer ready")
		delay := time.AfterFunc(n.cfg.API.DrainDelay, stop)
		defer delay.Stop()
		if err := n.raft.Resign(context.WithoutCancel(ctx)); err != nil {
			n.log.Warn().Err(err).Msg("leadership not handed over")
		}
		<-later.Done()
	})
	return later, func() {
		if cancel() { // the parts ended by themselves
			stop()
			return
		}
		stop()
		<-done
	}
}

// newObserve makes loop 0.
func (n *Node) newObserve() {
	client := engineClient(n.deps.Dial)
	n.closers = append(n.closers, client.CloseIdleConnections)
	key := func(pool string) string {
		if p := n.store.View().PoolNamed(pool); p != nil && p.Spec.APIKeyEnv != "" {
			return n.deps.Getenv(p.Spec.APIKeyEnv)
		}
		return ""
	}
	reader := engine.NewReader(client, key)
	n.observe = observe.New(observe.Config{Self: n.id, Interval: n.deps.ReadEvery, Registerer: n.reg}, n.store, reader, caches{n.index, n.clock}, n.publish, n.log)
}
