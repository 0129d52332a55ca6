package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/wire"
)

// MemberState is what membership says of a router.
type MemberState string

// States of members.
const (
	Alive MemberState = "alive"
	Dead  MemberState = "dead" // not reachable; its place is kept for a while
	Left  MemberState = "left" // on its own wish
)

// Reasons for a member being degraded.
const (
	NoStream   = "no_stream"   // alive, but no mesh stream: rows come by datagrams, sketch ops not at all
	UDPBlocked = "udp_blocked" // a stream exists, datagrams do not pass in at least one direction
	NotMember  = "not_member"  // a stream exists, but membership has it dead
	Silent     = "silent"      // alive, but nothing of it came for a while: its rows are dropped
)

var degradedReasons = []string{NoStream, UDPBlocked, NotMember, Silent}

// member is one other router as membership knows it.
type member struct {
	id    state.RouterID
	meta  wire.Meta
	node  memberlist.Node // copy; to send datagrams to
	state MemberState
	since time.Time // of the state
	told  time.Time // of meta: last news of it as alive
	heard time.Time // last datagram of ours, not memberlist's
	quiet bool      // it gets no datagrams of ours
	bye   bool      // it said that it leaves
}

// Bounds of what is remembered of the departed.
const (
	keepLeft   = 10 * time.Minute // and shown
	keepDial   = time.Minute      // a dead member's mesh address is dialled for so long
	maxMembers = 4096
)

// roster is membership: memberlist's delegates and what they told. memberlist
// calls them with its locks held, so they only take notes.
type roster struct {
	cfg     *Config
	log     zerolog.Logger
	metrics *metrics
	meta    []byte // own, encoded
	ip      net.IP // own address
	port    int
	changed func() // must not block
	packet  func(from []byte)

	changes atomic.Uint64 // of members

	mu      sync.Mutex
	list    *memberlist.Memberlist     // guarded by mu; nil unless running
	secrets [][]byte                   // guarded by mu; those that are to be used
	ring    *memberlist.Keyring        // guarded by mu; nil without secrets, and before start
	members map[state.RouterID]*member // guarded by mu
	gone    []goneBoot                 // guarded by mu; deaths not yet acted on
	warned  map[string]time.Time       // guarded by mu
	hints   map[state.RouterID]string  // guarded by mu; where peers with a stream say they are
	source  map[string]string          // guarded by mu; configured peers by the addresses they have now
	failed  map[string]failure         // guarded by mu; addresses whose last join failed
	joined  map[string]bool            // guarded by mu; addresses whose last join succeeded
	refused map[state.RouterID]Refused // guarded by mu; routers that are not let in
}

type goneBoot struct {
	id   state.RouterID
	boot state.BootID
}

// start joins nothing yet: rejoin does, at once and for ever.
func (r *roster) start() error {
	t := newTransport(r.cfg, r.ip, r.port)
	var err error
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label = string(r.cfg.Self), r.cfg.Cluster
	c.Transport = t
	c.AdvertiseAddr, c.AdvertisePort, c.BindPort = t.ip.String(), t.port, t.port
	c.Delegate, c.Events, c.Conflict, c.Alive = delegate{r}, delegate{r}, delegate{r}, delegate{r}
	c.Logger = log.New(logWriter{r}, "", 0)
	c.CIDRsAllowed = r.cfg.Allow
	tune(c)
	if c.Keyring, err = r.keyring(); err != nil {
		return errors.Join(err, t.Shutdown())
	}
	list, err := memberlist.Create(c)
	if err != nil {
		return errors.Join(fmt.Errorf("start membership: %w", err), t.Shutdown())
	}
	r.mu.Lock()
	r.list = list
	r.mu.Unlock()
	return nil
}

// tune makes memberlist see a dead router in about 2.5 s with a few nodes.
// Compression costs ten times the encoding (141 against 13 us a message).
func tune(c *memberlist.Config) {
	c.EnableCompression = false
	c.ProbeInterval = 500 * time.Millisecond
	c.ProbeTimeout = 250 * time.Millisecond
	c.SuspicionMult = 3
	c.SuspicionMaxTimeoutMult = 2
	c.AwarenessMaxMultiplier = 3
	c.GossipInterval = 100 * time.Millisecond
	c.GossipToTheDeadTime = 15 * time.Second
	c.PushPullInterval = 15 * time.Second
	c.TCPTimeout = 2 * time.Second
	c.DeadNodeReclaimTime = time.Second
}

func (r *roster) self() string { return net.JoinHostPort(r.ip.String(), strconv.Itoa(r.port)) }

// stop leaves, so that the others need not find out, and ends membership.
func (r *roster) stop() {
	r.mu.Lock()
	list := r.list
	r.list = nil
	r.mu.Unlock()
	if list == nil {
		return
	}
	if err := list.Leave(500 * time.Millisecond); err != nil {
		r.log.Debug().Err(err).Msg("others were not told of the leave")
	}
	if err := list.Shutdown(); err != nil {
		r.log.Warn().Err(err).Msg("membership port did not close")
	}
}

// rejoin keeps trying the configured peers and the members that died, as far as
// they are not alive members now. It returns when ctx ends and no attempt is left.
func (r *roster) rejoin(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, 8)
	busy := map[string]bool{}
	var mu sync.Mutex // guards busy
	for {
		for _, target := range r.targets(ctx) {
			mu.Lock()
			skip := busy[target]
			mu.Unlock()
			if skip {
				continue
			}
			select {
			case slots <- struct{}{}:
			default:
				continue // the next round
			}
			mu.Lock()
			busy[target] = true
			mu.Unlock()
			wg.Go(func() {
				r.join(target)
				mu.Lock()
				delete(busy, target)
				mu.Unlock()
				<-slots
			})
		}
		if !pause(ctx, jitter(r.cfg.RejoinEvery)) {
			return
		}
	}
}

func (r *roster) join(target string) {
	r.mu.Lock()
	list := r.list
	r.mu.Unlock()
	if list == nil {
		return
	}
	_, err := list.Join([]string{target})
	r.joinResult(target, err)
}

// targets are the addresses, as ip:port, worth a join attempt now.
func (r *roster) targets(ctx context.Context) []string {
	rctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var list []string
	source, unresolved := map[string]string{}, map[string]string{}
	join := r.cfg.Join
	if r.cfg.More != nil {
		join = append(slices.Clip(join), r.cfg.More()...)
	}
	for _, addr := range join {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		if net.ParseIP(host) != nil {
			list = append(list, addr)
			source[addr] = addr
			continue
		}
		ips, err := r.cfg.Resolve(rctx, host)
		if err != nil {
			unresolved[addr] = fmt.Sprintf("the name %s does not resolve", host)
			r.warn("resolve "+host, func(e *zerolog.Event) { e.Err(err).Str("addr", addr).Msg("peer's name does not resolve") })
			continue
		}
		for _, ip := range ips {
			a := net.JoinHostPort(ip, port)
			list = append(list, a)
			source[a] = addr
		}
	}
	r.ask(join, source, unresolved)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		return nil
	}
	alive := map[string]bool{r.self(): true}
	for _, m := range r.members {
		switch m.state {
		case Alive:
			alive[m.node.Address()] = true
		case Dead:
			list = append(list, m.node.Address())
		}
	}
	for id, addr := range r.hints {
		if m := r.members[id]; m == nil || m.state != Alive {
			list = append(list, addr)
		}
	}
	list = slices.DeleteFunc(list, func(a string) bool { return alive[a] })
	slices.Sort(list)
	return slices.Compact(list)
}

// warn logs at most once a minute per key.
func (r *roster) warn(key string, f func(*zerolog.Event)) {
	now := time.Now()
	r.mu.Lock()
	last, ok := r.warned[key]
	due := !ok || now.Sub(last) >= time.Minute
	if due {
		if len(r.warned) > 1024 {
			clear(r.warned)
		}
		r.warned[key] = now
	}
	r.mu.Unlock()
	if due {
		f(r.log.Warn())
	}
}

// send gives a member a datagram; false when it is unknown or the send failed.
func (r *roster) send(id state.RouterID, k wire.Kind, payload []byte) bool {
	r.mu.Lock()
	m, list := r.members[id], r.list
	var node memberlist.Node
	if m != nil {
		node = m.node
	}
	r.mu.Unlock()
	if m == nil || list == nil {
		return false
	}
	return list.SendBestEffort(&node, append([]byte{byte(k)}, payload...)) == nil
}

// snapshot copies the members.
func (r *roster) snapshot() []member {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]member, 0, len(r.members))
	for _, m := range r.members {
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(string(a.id), string(b.id)) })
	return list
}

// takeGone returns the boots that died since it was last asked.
func (r *roster) takeGone() []goneBoot {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gone
	r.gone = nil
	return g
}

// prune forgets the departed in time.
func (r *roster) prune(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, x := range r.refused {
		if now.Sub(x.At) > keepRefused {
			delete(r.refused, id)
		}
	}
	for id, m := range r.members {
		if m.state == Dead && now.Sub(m.since) > r.cfg.Remember || m.state == Left && now.Sub(m.since) > keepLeft {
			delete(r.members, id)
		}
	}
}

// boot is a member's present boot, and when membership last told of it; 0 when it
// is not known.
func (r *roster) boot(id state.RouterID) (boot state.BootID, told time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[id]; m != nil {
		return m.meta.Boot, m.told
	}
	return 0, time.Time{}
}

// name is what a member calls itself; empty when it is not known.
func (r *roster) name(id state.RouterID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[id]; m != nil {
		return m.meta.Name
	}
	return ""
}

// warnDegraded logs what does not pass, once a minute and reason.
func (r *roster) warnDegraded(reason string, peers []*member) {
	r.warn("degraded "+reason, func(e *zerolog.Event) {
		var ids, names []string
		for _, m := range peers {
			ids, names = append(ids, string(m.id)), append(names, m.meta.Name)
		}
		e.Str("reason", reason).Strs("peers", ids).Strs("names", names).Msg("peers degraded")
	})
}

// heardUDP notes a datagram of a member's.
func (r *roster) heardUDP(id state.RouterID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[id]; m != nil {
		m.heard = now
	}
}

// leaves notes that a member says goodbye. memberlist does not tell the living
// whether somebody left or died.
func (r *roster) leaves(id state.RouterID, boot state.BootID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[id]; m != nil && m.meta.Boot == boot {
		m.bye = true
		if m.state == Dead {
			m.state = Left
		}
	}
}

// hint notes where a peer with a stream says its membership port is; empty: the
// stream is gone. A peer that came back at another address while its former self
// was not yet found dead sees us as members, but we would not see it for long.
func (r *roster) hint(id state.RouterID, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, _, err := net.SplitHostPort(addr); err != nil {
		delete(r.hints, id)
		return
	}
	r.hints[id] = addr
}

func (r *roster) setQuiet(id state.RouterID, quiet bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[id]; m != nil {
		m.quiet = quiet
	}
}
