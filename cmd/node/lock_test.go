package node

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
)

// localConfig is a valid configuration of a router on ports of its own.
func localConfig(t *testing.T, dir string) Config {
	t.Helper()
	c := Defaults()
	c.Node.Name, c.Node.DataDir = "r1", dir
	c.Listen.API, c.Listen.Admin = "127.0.0.1:0", "127.0.0.1:0"
	c.Listen.Cluster = "127.0.0.1:0"
	c.Pools = []PoolConfig{{Name: "chat", Model: "m", Replicas: []ReplicaConfig{{URL: "http://127.0.0.1:1"}}}}
	c.Finish()
	return c
}

// Two routers on one data directory would be one router id with two voices.
func TestDataDirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(localConfig(t, dir), Deps{Log: zerolog.Nop()})
	want := fmt.Sprintf("node.data_dir: %s is in use by another router (pid %d): give each router its own (--data-dir)", dir, os.Getpid())
	if err == nil || err.Error() != want {
		t.Fatalf("a second router: %v, want %s", err, want)
	}
	first()
	second, err := lockDir(dir) // the file is left, its lock is not
	if err != nil {
		t.Fatalf("after the first ended: %v", err)
	}
	second()
}

func TestNodeHoldsItsDataDirectory(t *testing.T) {
	dir := t.TempDir()
	n, err := New(localConfig(t, dir), Deps{Log: zerolog.Nop()})
	for range 20 { // a port whose next one is free, too
		if err == nil || !strings.Contains(err.Error(), "in use: free the address") {
			break
		}
		n, err = New(localConfig(t, dir), Deps{Log: zerolog.Nop()})
	}
	if err != nil {
		t.Fatal(err)
	}
	if release, err := lockDir(dir); err == nil || !strings.Contains(err.Error(), "in use") {
		if err == nil {
			release()
		}
		t.Errorf("while a node has it: %v", err)
	}
	n.Close()
	release, err := lockDir(dir)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	release()
}

// An address that is another machine's is not to be freed here.
func TestAddressOfAnotherMachine(t *testing.T) {
	cfg := localConfig(t, t.TempDir())
	deps := Deps{Log: zerolog.Nop(), Listen: func(_, addr string) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}
	}}
	_, err := New(cfg, deps)
	if err == nil || !strings.Contains(err.Error(), "this machine has no such address: choose one that it has (in the file, ") || strings.Contains(err.Error(), "free") {
		t.Errorf("%v", err)
	}
}
