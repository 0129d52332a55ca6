package discovery

import (
	"context"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// Found is one replica as a source lists it.
type Found struct {
	ID            state.ReplicaID // its UID where the source has one; empty: host:port of its URL
	Name          string          // for people, where ID does not tell
	URL           string          // as written; the Pool checks and normalises it
	Role          state.Role      // empty: both
	BootstrapPort int             // 0: the default
	Ranks         int             // data-parallel ranks of its process; 0: as its pool says
	Leaving       string          // why it is to get no new work; empty: it may
}

// Snapshot is all that a source lists at one time.
type Snapshot struct {
	Replicas []Found // not changed afterwards
	// Err says why the source could not look, or not at all of it. With Partial, Replicas
	// are what it is to list all the same, else they mean nothing and what it said before
	// stands.
	Err     error
	Partial bool
	// Refused are what the source itself can't make a replica of.
	Refused []Refused
}

// Source looks for the replicas of one pool.
type Source interface {
	// Kind is what configuration and metrics call it: file, dns, kubernetes.
	Kind() string
	// Where it looks, for people.
	Where() string
	// Doubtful reports whether an empty answer may be a mistake of whoever answers.
	Doubtful() bool
	// Run looks until ctx ends and reports after every look, also when nothing changed:
	// ages count from there. It calls report from one goroutine and leaves none behind.
	Run(ctx context.Context, report func(Snapshot)) error
}

// Kinds of sources.
const (
	KindFile       = "file"
	KindDNS        = "dns"
	KindKubernetes = "kubernetes"
)

// SourceStatus is how a source stands.
type SourceStatus struct {
	Kind, Where string
	Replicas    int       // it lists now, those kept included
	At          time.Time // of its last good answer; zero: none yet
	Since       time.Time // of the first failure since then; zero: it does not fail
	Problem     string    // for people; empty: none
	Refused     []Refused // in URL order
	Failures    uint64    // looks that failed, in all
}

// Refused is a replica that a source lists and that is not let in.
type Refused struct{ URL, Why string }

// maxFound bounds what a source may list, ranks counted one by one.
const maxFound = 4096
