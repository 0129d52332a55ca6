#!/usr/bin/env bash
# Runs every fuzz target of the module one after another, each for the given time.
set -euo pipefail
time=${1:-10s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# Minimising what is interesting is cut short: at the default of a minute each it takes
# nearly all of the time, and little is tried.
run() { go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" -fuzzminimizetime 2s -parallel 2 "$2" >"$out" 2>&1; }
# The go command may call the end of the time a failure when a worker is busy just
# then: "context deadline exceeded", and no failing input. That says nothing of the
# target, so it is run again.
cut_off() { grep -q '^ *context deadline exceeded$' "$out" && ! grep -q 'Failing input' "$out"; }
grep -rlE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . | sort | while read -r file; do
	pkg=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
		printf '%-28s %s\n' "$pkg" "$target"
		run "$target" "$pkg" || { cut_off && run "$target" "$pkg"; } || { cat "$out"; exit 1; }
	done
done
