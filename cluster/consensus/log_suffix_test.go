package consensus

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A leader that was cut off has entries that nobody else has. When it is back it is told to drop them, and starts
// again on that disk: also once more, and also with the log of a router that dropped all it had.
func TestLogStartsAgainWithoutItsSuffix(t *testing.T) {
	f := func(name string, drop uint64) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			open := func() *disk {
				d, err := openDir(dir, 64<<10, hclog.NewNullLogger())
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			store := func(d *disk, term, from, to uint64) {
				var list []*raft.Log
				for i := from; i <= to; i++ {
					list = append(list, &raft.Log{Index: i, Term: term, Data: []byte("entry")})
				}
				if err := d.logs.StoreLogs(list); err != nil {
					t.Fatal(err)
				}
			}
			check := func(d *disk, term func(i uint64) uint64) {
				last, err := d.logs.LastIndex()
				if err != nil || last != 12 {
					t.Errorf("it ends at %d: %v", last, err)
				}
				for i := uint64(1); i <= 12; i++ {
					var l raft.Log
					if err := d.logs.GetLog(i, &l); err != nil || l.Term != term(i) || string(l.Data) != "entry" {
						t.Fatalf("entry %d: term %d, %q, %v", i, l.Term, l.Data, err)
					}
				}
			}
			term := func(i uint64) uint64 {
				if i >= drop {
					return 2
				}
				return 1
			}
			d := open()
			store(d, 1, 1, 10)
			if err := d.logs.DeleteRange(drop, 10); err != nil {
				t.Fatal(err)
			}
			store(d, 2, drop, 12)
			check(d, term)
			for range 2 {
				if err := d.close(); err != nil {
					t.Fatal(err)
				}
				d = open()
				check(d, term)
			}
			if err := d.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	f("its last entry", 10)
	f("some", 7)
	f("all but one", 2)
	f("all", 1)
}
