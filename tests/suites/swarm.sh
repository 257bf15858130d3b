#!/usr/bin/env bash
# A small swarm over real mTLS: nothing fails, nothing is lost. Numbers are for docs/performance.md, not for tests.
set -euo pipefail
out=$("$OUTRIDER_BIN/swarm" --agents 50,200 --rate 300 --seconds 5)
echo "$out"
lines=$(grep -cE '^ +[0-9]+ ' <<<"$out")
[ "$lines" = 2 ] || { echo "FAIL  two sizes were asked for, $lines measured"; exit 1; }
echo "test result: ok. 2 passed; 0 failed;"
