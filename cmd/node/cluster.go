package node

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/hearsay-llm/hearsay/cluster/consensus"
	"github.com/hearsay-llm/hearsay/cluster/mesh"
	"github.com/hearsay-llm/hearsay/state"
)

// raftProto is the mesh's byte for Raft's streams.
const raftProto = 'r'

// Methods of calls between routers.
const (
	callForward = "forward" // a command for the leader
	callFacts   = "facts"   // committed facts newer than an index
	callNews    = "news"    // the same, or the commands since that index where that is shorter
	callPush    = "push"    // such news, unasked for
	callCluster = "cluster" // the committed cluster id
	callKeyring = "keyring" // a change of the shared secrets
	callConfig  = "config"  // digests of the pools that a router runs
	callVoters  = "voters"  // who has a vote, of the leader
)

// newCluster makes mesh, gossip, consensus and the reader of engines.
func (n *Node) newCluster() error {
	keys, err := readSecrets(n.cfg.Cluster.SecretFile, maxSecrets)
	if err != nil {
		return fmt.Errorf("cluster.secret_file: %w", err)
	}
	n.keep(keys)
	n.warnReadable("cluster.secret_file", n.cfg.Cluster.SecretFile)
	members, err := n.listen("listen.cluster", n.cfg.Listen.Cluster)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(members.Addr().String())
	if err != nil {
		return err
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	streams, err := n.listen("listen.cluster (the mesh, on the next port)", net.JoinHostPort(host, strconv.Itoa(p+1)))
	if err != nil {
		return err
	}
	advertise := n.cfg.Listen.Advertise
	if advertise == "" {
		advertise = host
	}
	n.clusterAddr = net.JoinHostPort(advertise, port)
	n.routerTLS, err = newRouterTLS(n.cfg.Cluster.TLS)
	if err != nil {
		return err
	}
	n.warnReadable("cluster.tls.key", n.cfg.Cluster.TLS.Key)
	meshAddr := net.JoinHostPort(advertise, strconv.Itoa(p+1))

	n.mesh, err = mesh.New(mesh.Config{
		Self: n.id, Boot: n.clock.Boot(), Name: n.cfg.Node.Name, Cluster: n.cfg.Cluster.Name,
		Scheme: scheme,
		ID: func() string {
			if n.raft == nil {
				return ""
			}
			return n.raft.Facts().ClusterID
		},
		Secret: keys, TLS: n.routerTLS.config(), Listener: streams,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return n.deps.Dial(ctx, "tcp", addr) },
		Log:  n.log, Registerer: n.reg,
	})
	if err != nil {
		return err
	}
	if err := n.newGossip(members, keys, meshAddr); err != nil {
		return err
	}
	if err := n.newConsensus(meshAddr); err != nil {
		return err
	}
	n.newObserve()
	return nil
}

// newConsensus makes Raft over the mesh's streams.
func (n *Node) newConsensus(meshAddr string) (err error) {
	ln, dial := n.mesh.Layer(raftProto)
	cfg := consensus.Config{
		Self: n.id, Addr: meshAddr, DataDir: raftDir(n.cfg.Node.DataDir), Memory: n.deps.Memory,
		Layer:  consensus.NewLayer(ln, dial),
		Voters: n.cfg.Cluster.Voters, BootstrapExpect: n.cfg.Cluster.BootstrapExpect, Join: n.cfg.Cluster.joins(),
		HeartbeatTimeout: n.cfg.Cluster.Raft.HeartbeatTimeout,
		Peers:            n.peers, Name: n.gossip.Name,
		Publish: func(f *state.Facts) {
			if f.Config.Revision != n.store.View().Facts.Config.Revision {
				n.askAgain()
			}
			n.store.SetFacts(f)
			n.gossip.FactsChanged()
		},
		Forward: func(ctx context.Context, leader state.RouterID, payload []byte) ([]byte, error) {
			return n.mesh.Call(ctx, leader, callForward, payload)
		},
		Fetch: func(ctx context.Context, peer state.RouterID, have uint64) ([]byte, error) {
			return fetchNews(have, func(method string, payload []byte) ([]byte, error) { return n.mesh.Call(ctx, peer, method, payload) })
		},
		AskVoters: func(ctx context.Context, peer state.RouterID) ([]byte, error) {
			return n.mesh.Call(ctx, peer, callVoters, nil)
		},
		Push: func(ctx context.Context, peer state.RouterID, news []byte) error {
			_, err := n.mesh.Call(ctx, peer, callPush, news)
			return err
		},
		OnLead: n.lead,
		Log:    n.log, Registerer: n.reg,
	}
	if n.raft, err = consensus.New(cfg); err != nil {
		return err
	}
	n.mesh.HandleCall(func(ctx context.Context, from state.RouterID, method string, payload []byte) ([]byte, error) {
		switch method {
		case callForward:
			return n.raft.HandleForward(ctx, payload)
		case callFacts:
			have, err := strconv.ParseUint(string(payload), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("facts: bad index")
			}
			b, _, _ := n.raft.FactsAfter(have)
			return b, nil
		case callNews:
			have, err := strconv.ParseUint(string(payload), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("news: bad index")
			}
			return n.raft.NewsAfter(have), nil
		case callPush:
			return nil, n.raft.HandlePush(from, payload)
		case callCluster:
			return []byte(n.raft.Facts().ClusterID), nil
		case callConfig:
			return n.sayConfig()
		case callVoters:
			return n.raft.SayVoters(ctx)
		case callKeyring:
			return n.changeOwnKeys(ctx, payload)
		case callPick:
			return n.opinion.answer(payload)
		default:
			return nil, fmt.Errorf("unknown method %q", method)
		}
	})
	return nil
}

// fetchNews asks a router for what is newer than the facts of an index. One of an earlier
// release knows only whole facts.
func fetchNews(have uint64, call func(method string, payload []byte) ([]byte, error)) ([]byte, error) {
	payload := strconv.AppendUint(nil, have, 10)
	b, err := call(callNews, payload)
	if err != nil && strings.Contains(err.Error(), "unknown method") {
		return call(callFacts, payload)
	}
	return b, err
}

// lead is what this router does while it leads.
func (n *Node) lead(ctx context.Context, epoch uint64) {
	n.log.Info().Uint64("epoch", epoch).Msg("this router leads")
	defer n.log.Info().Uint64("epoch", epoch).Msg("this router no longer leads")
	var forgets sync.WaitGroup
	defer forgets.Wait()
	forgets.Go(func() { n.forgetDrains(ctx, epoch, committer{n}.Commit) })
	if err := n.scale.Run(ctx, epoch); err != nil {
		n.log.Warn().Err(err).Msg("scaling stopped")
		<-ctx.Done()
	}
}
