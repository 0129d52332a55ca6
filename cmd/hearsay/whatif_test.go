package main

import (
	"strings"
	"testing"

	"github.com/hearsay-llm/hearsay/test/whatif"
)

func TestReplayWhatIf(t *testing.T) {
	args := []string{"replay", "--trace", "agents", "--requests", "12", "--what-if", "policy=ttft,round_robin", "--routers", "2", "--replicas", "4", "--quiet"}
	x := call(t, args...)
	x.wants(t, 0, "policy=ttft ", "policy=round_robin ", "hit rate")
	if again := call(t, args...); again.out != x.out {
		t.Errorf("the same seed gave\n%s\nand then\n%s", x.out, again.out)
	}
	list := isJSON[[]whatif.Outcome](t, call(t, append(args, "--json", "-")...))
	if len(list) != 2 || list[0].Figures.HitRate <= list[1].Figures.HitRate {
		t.Errorf("outcomes %+v", list)
	}
}

func TestReplayWhatIfThatCannotBe(t *testing.T) {
	f := func(says string, args ...string) {
		t.Helper()
		x := call(t, append([]string{"replay", "--trace", "agents", "--requests", "2"}, args...)...)
		if x.code != 2 || x.out != "" || !strings.Contains(x.errOut, says) {
			t.Errorf("%q: exit code %d\n%s", args, x.code, x.errOut)
		}
	}
	f("unknown setting", "--what-if", "colour=red")
	f("use one of", "--what-if", "policy=best")
	f("--model has no meaning with --what-if", "--what-if", "policy=ttft", "--model", "m")
	f("one router's admin address, not 2", "--what-if", "policy=ttft", "--target", "http://127.0.0.1:1,http://127.0.0.1:2")
	f("--routers has a meaning with --what-if only", "--routers", "3")
	f("5 what? write 5s", "--what-if", "delay=5")
	f("is not a whole number", "--what-if", "replicas=2.5")
	f("speed: 1e-300 is not 0.001 to 1000000", "--what-if", "speed=1e-300")
	f("speed: 1e-300 is not 0.001 to 1000000", "--speed", "1e-300")
	f("--rate: 1e-300 is not", "--rate", "1e-300")
	f("--warmup", "--what-if", "policy=ttft", "--warmup", "10h")
}
