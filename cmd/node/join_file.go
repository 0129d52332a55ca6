package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/hearsay-llm/hearsay/state"
)

// joins reports whether this router looks for others to be one cluster with.
func (c *ClusterConfig) joins() bool { return len(c.Join) > 0 || c.JoinFile != "" }

// maxJoinFile bounds the addresses of a file.
const maxJoinFile = 1024

// moreToJoin gives the addresses of cluster.join_file as they are when it is called,
// or as they last were; nil where there is no file.
func (n *Node) moreToJoin() func() []string {
	path := n.cfg.Cluster.JoinFile
	if path == "" {
		return nil
	}
	var last []string
	return func() []string {
		list, err := readJoinFile(path)
		switch said := n.joinFault.Load(); {
		case err == nil:
			n.joinFault.Store(nil)
			if !slices.Equal(list, last) {
				n.log.Info().Str("file", path).Strs("addrs", list).Msg("peers to join are named anew")
			}
			last = list
		case said == nil || *said != err.Error():
			text := err.Error()
			n.joinFault.Store(&text)
			n.log.Warn().Err(err).Str("file", path).Msg("peers to join stay as they were")
		}
		return last
	}
}

func readJoinFile(path string) (list []string, err error) {
	b, err := state.ReadFile(path, maxNamed)
	var at *fs.PathError
	if errors.As(err, &at) {
		return nil, at.Err
	}
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(line); err != nil {
			return nil, fmt.Errorf("line %d is not host:port", i+1)
		}
		list = append(list, line)
	}
	if len(list) > maxJoinFile {
		return nil, fmt.Errorf("%d addresses, %d at most", len(list), maxJoinFile)
	}
	return list, err
}
