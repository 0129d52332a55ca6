package node

import (
	"fmt"
	"os"
	"strings"
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
