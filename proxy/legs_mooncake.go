package proxy

import (
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/hearsay-llm/hearsay/state"
	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// vLLM's Mooncake connector hands nothing back with a prefill: both legs name the
// hand-over, and the one that decodes is told which engine has the KV, and where that
// listens. Its name is asked for there.

// askMooncake are the parameters of a prefill.
func askMooncake(transfer string) string {
	return `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":` + strconv.Quote(transfer) + `}`
}

// fetchMooncake are the parameters of the leg that decodes.
func fetchMooncake(p *state.ReplicaView, engine, transfer string) []byte {
	b := append([]byte(`{"do_remote_decode":false,"do_remote_prefill":true,"remote_engine_id":`), scan.AppendQuoted(nil, engine)...)
	b = append(b, `,"remote_bootstrap_addr":`...)
	b = strconv.AppendQuote(b, bootstrapURL(p))
	b = append(b, `,"transfer_id":`...)
	b = strconv.AppendQuote(b, transfer)
	return append(b, '}')
}

func bootstrapURL(p *state.ReplicaView) string {
	host, port := bootstrapOf(p)
	return "http://" + host + ":" + strconv.Itoa(port)
}

// meetings remembers the names of engines that hand over KV. Safe for concurrent use.
type meetings struct {
	mu sync.Mutex
	m  map[state.ReplicaID]meeting // guarded by mu
}

// meeting is an engine's name, and of which process of it.
type meeting struct {
	engine  string
	started float64
}

func (m *meetings) of(p *state.ReplicaView) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.m[p.ID]; k.started == p.Reading.Started {
		return k.engine
	}
	return ""
}

func (m *meetings) note(p *state.ReplicaView, engine string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil || len(m.m) >= maxURLs {
		m.m = make(map[state.ReplicaID]meeting)
	}
	m.m[p.ID] = meeting{engine, p.Reading.Started}
}

// forget makes an engine be asked again.
func (m *meetings) forget(id state.ReplicaID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.m, id)
}

var errNoEngine = errors.New("the engine does not tell its name")

// engineID is the name of a replica's engine, as it says itself, once per process.
func (r *request) engineID(p *state.ReplicaView) (string, error) {
	if id := r.s.meets.of(p); id != "" {
		return id, nil
	}
	pool, err := r.s.up.of(bootstrapURL(p))
	if err != nil {
		return "", err
	}
	spec := &r.job.Pool().Spec
	wait := orDefault(spec.ConnectTimeout, defaultConnect)
	r.x = exchange{call: r.call, pool: pool, resp: r.x.resp, waits: waits{connect: wait, firstByte: wait, idle: wait}}
	out := outgoing{head: []byte("GET /query HTTP/1.1\r\nHost: " + pool.addr + "\r\n\r\n")}
	if err := r.x.send(&out); err != nil {
		return "", err
	}
	if r.x.resp.StatusCode() != http.StatusOK {
		return "", errNoEngine
	}
	b, err := readBounded(&r.x, 1<<20)
	if err != nil {
		return "", err
	}
	r.x.close()
	id := engineIn(b, strconv.Itoa(p.Rank))
	if id == "" {
		return "", errNoEngine
	}
	r.s.meets.note(p, id)
	return id, nil
}

// engineIn finds the engine's name of a rank in what a bootstrap server says:
// {"0": {"engine_id": "...", ...}, ...}.
func engineIn(doc []byte, rank string) (id string) {
	c := scan.New(doc)
	if !c.EnterObject() {
		return ""
	}
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if string(key.Text(doc, nil)) != rank || !c.EnterObject() {
			c.Skip()
			continue
		}
		for name, ok := c.NextField(); ok; name, ok = c.NextField() {
			v := c.Skip()
			if string(name.Text(doc, nil)) == "engine_id" && v.Kind == scan.String {
				id = string(v.Text(doc, nil))
			}
		}
	}
	if c.End() != nil {
		return ""
	}
	return id
}
