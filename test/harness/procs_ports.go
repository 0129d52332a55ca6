package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken below the range that the system gives to outgoing connections
// (from 32768 on Linux), so that nothing but another test takes one between its
// choice and its use.
const (
	firstPort = 10000
	lastPort  = 30000
)

// Ports finds n ports that are free on loopback, for TCP and for UDP, each with a
// free successor that no other of them is: a router's mesh takes the port after its
// cluster address.
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
		if hold(port) && hold(port+1) {
			out = append(out, port)
		}
	}
	if len(out) == n {
		return out, nil
	}
	return nil, errors.New("find free ports: too many are taken")
}
