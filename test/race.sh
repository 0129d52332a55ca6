#!/usr/bin/env bash
# Runs all tests under the race detector.
#
# The detector of Go 1.26 dies now and then by itself in tests that use synctest: on
# goroutine 0 of a bubble it is given a stack of length -1, and reads on until it meets
# memory that is not there (SIGSEGV in its own StackDepot; probably where a timer starts
# a goroutine). That says nothing of what is tested, so a package
# that ended so, without a failed test or a data race, is run again, and it is said.
#
# The longest packages begin first, so that none of them runs alone at the end.
#
# A package has half an hour: on a busy machine test/scenario may need more than the ten
# minutes that go test gives it.
set -uo pipefail
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"${GO:-go}" test -race -timeout 30m "$@" ./test/e2e ./test/scenario ./test/cases ./proxy ./cluster/consensus ./... 2>&1 | tee "$out" && exit 0
# A package's output stands before its own line.
again=$(awk -F'\t' '
	/^(ok  |FAIL|\?   )\t/ {
		if ($1 == "FAIL") {
			if (crash && bubble && !real) print $2; else bad = 1
		}
		crash = bubble = real = 0; next
	}
	/^SIGSEGV: segmentation violation/ { crash = 1 }
	/^goroutine 0 .*synctest bubble/ { bubble = 1 }
	/^ *--- FAIL|^WARNING: DATA RACE|^panic: / { real = 1 }
	END { if (bad) exit 1 }
' "$out") || exit 1
[ -n "$again" ] || exit 1
echo "the race detector itself died in: $again; once more:"
# shellcheck disable=SC2086
"${GO:-go}" test -race -timeout 30m -count=1 $again
