package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
)

// Ports are taken below the range that the system gives to outgoing connections
// (from 32768 on Linux), so that nothing but another test takes one between its
// choice and its use.
const (
	firstPort = 10000
	lastPort  = 30000
)

// reserved are names that stand for the ports this process has got, as long as it
// lives: nobody who asks Ports gets one of them, also while what listens there is
// being restarted. Only references: what they refer to is never used.
var (
	reservedMu sync.Mutex
	reserved   []net.Listener // guarded by reservedMu
)

// reserve takes a port for this process, if it is nobody's. Abstract sockets (Linux)
// belong to the network's namespace, as ports do, and end with the process; elsewhere
// nothing is reserved.
func reserve(port int) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	ln, err := net.Listen("unix", fmt.Sprintf("@hearsay-test-port-%d", port))
	if err != nil {
		return false
	}
	reservedMu.Lock()
	defer reservedMu.Unlock()
	reserved = append(reserved, ln)
	return true
}

// Ports finds n ports that are free on loopback, for TCP and for UDP, each with a
// free successor that no other of them is: a router's mesh takes the port after its
// cluster address. They are this process's until it ends.
func Ports(n int) ([]int, error) {
	var out []int
	var open []interface{ Close() error }
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	hold := func(port int) bool {
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return false
		}
		open = append(open, ln)
		pc, err := net.ListenPacket("udp", addr)
		if err != nil {
			return false
		}
		open = append(open, pc)
		return true
	}
	for range 100 + 20*n {
		if len(out) == n {
			return out, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		if reserve(port) && reserve(port+1) && hold(port) && hold(port+1) {
			out = append(out, port)
		}
	}
	if len(out) == n {
		return out, nil
	}
	return nil, errors.New("find free ports: too many are taken")
}
