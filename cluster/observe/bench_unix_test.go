//go:build unix

package observe

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/hearsay-llm/hearsay/state"
)

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// One look at who is due, of which there are 40 a second, when nobody is.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ replicas, routers int }{{25, 3}, {100, 10}, {400, 32}} {
		b.Run(fmt.Sprintf("%dx%d", size.replicas, size.routers), func(b *testing.B) {
			var ids []state.ReplicaID
			for i := range size.replicas {
				ids = append(ids, state.ReplicaID(fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)))
			}
			s := store("r0", 1, ids...)
			for i := 1; i < size.routers; i++ {
				s.ApplyRows(state.Rows{Router: state.RouterID(fmt.Sprint("r", i)), Boot: state.BootID(i + 1), Seq: 1})
			}
			l := New(Config{Self: "r0", Interval: time.Hour}, s, newEngines(), newCache(), func(state.Reading) {}, zerolog.Nop())
			now := time.Now()
			l.Step(b.Context(), now)
			l.wg.Wait()
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				l.Step(b.Context(), now)
			}
			b.ReportMetric(float64((cpu()-began).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
		})
	}
}
