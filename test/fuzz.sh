#!/usr/bin/env bash
# Runs every fuzz target of the module one after another, each for the given time.
set -euo pipefail
time=${1:-10s}
grep -rlE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . | sort | while read -r file; do
	pkg=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
		printf '%-28s %s\n' "$pkg" "$target"
		go test -run '^$' -fuzz "^${target}\$" -fuzztime "$time" -parallel 2 "$pkg" >/tmp/fuzz.$$ 2>&1 ||
			{ cat /tmp/fuzz.$$; rm -f /tmp/fuzz.$$; exit 1; }
	done
done
rm -f /tmp/fuzz.$$
