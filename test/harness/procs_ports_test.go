package harness

import (
	"fmt"
	"net"
	"testing"
)

// A port is given once, also when nothing listens there at the moment.
func TestPortsAreGivenOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 10 {
		ports, err := Ports(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if seen[p] || seen[p-1] || seen[p+1] {
				t.Fatalf("port %d is given again, or is the mesh's of another", p)
			}
			seen[p] = true
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				t.Fatal(err)
			}
			_ = ln.Close()
		}
	}
}
