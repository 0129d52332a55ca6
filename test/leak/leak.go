// Package leak checks that tests leave no goroutine behind.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs a package's tests, whose routers are on real networks, and then checks that
// no goroutine is left. Membership's probes are not waited for when a router stops: one
// that was on its way ends with its interval, within seconds.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find(opts...)
		for end := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
			err = goleak.Find(opts...)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "left behind: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
