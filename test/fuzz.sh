#!/usr/bin/env bash
# Runs every fuzz target of the module one after another, each for the given time.
set -euo pipefail
time=${1:-10s}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
out=$tmp/out bin=$tmp/fuzz.test corpus=$(go env GOCACHE)/fuzz/$(go list -m)
# A package's program is built once for all of its targets: go test -fuzz links it anew
# for each. Minimising what is interesting is cut short: at the default of a minute each
# it takes nearly all of the time, and little is tried.
run() {
	(cd "$2" && "$bin" -test.run '^$' -test.fuzz "^$1\$" -test.fuzztime "$time" -test.fuzzminimizetime 2s \
		-test.parallel 2 -test.paniconexit0 -test.fuzzcachedir "$corpus/$2") >"$out" 2>&1
}
# The end of the time may be called a failure when a worker is busy just then: "context
# deadline exceeded", and no failing input. That says nothing of the target, so it is run
# again.
cut_off() { grep -q '^ *context deadline exceeded$' "$out" && ! grep -q 'Failing input' "$out"; }
grep -rlE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r pkg; do
	go test -c -fuzz . -o "$bin" "$pkg"
	grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$pkg"/*_test.go | awk '{print $2}' | while read -r target; do
		printf '%-28s %s\n' "$pkg" "$target"
		run "$target" "$pkg" || { cut_off && run "$target" "$pkg"; } || { cat "$out"; exit 1; }
	done
done
