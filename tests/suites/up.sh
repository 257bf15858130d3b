#!/usr/bin/env bash
# The README's first command, twice: the second run picks up the state of the first. Then with simulated nodes.
set -euo pipefail
outrider=$OUTRIDER_BIN/outrider
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HOME=$home XDG_STATE_HOME=$home/state XDG_CONFIG_HOME=$home/config
unset OUTRIDER_URL OUTRIDER_TOKEN 2>/dev/null || true
passed=0
check() { # check NAME FILE JQ-FILTER [ARGS…]
    local name=$1 file=$2 filter=$3; shift 3
    if jq -e "$@" "$filter" "$file" >/dev/null; then passed=$((passed + 1)); echo "ok    $name"
    else echo "FAIL  $name: $filter"; jq -c . "$file" | cut -c1-2000; exit 1; fi
}

"$outrider" up --listen 127.0.0.1:0 --for 6s -o json >"$home/first.json" 2>"$home/first.err" </dev/null \
    || { echo "up ended with $?"; cat "$home/first.err"; exit 1; }
check "one JSON document with apiVersion and kind" "$home/first.json" '.apiVersion and .kind == "Fleet"'
check "who answers: url and CA checksum" "$home/first.json" '.coordinator | (.url | startswith("https://")) and (.caChecksum | test("^[0-9a-f]{64}$"))'
check "this machine is a node, ready, not simulated" "$home/first.json" '.nodes | length == 1 and .[0].ready == "True" and .[0].name != "" and .[0].simulated == false'
check "every condition has its seven fields" "$home/first.json" \
    '.nodes[0].conditions | length > 3 and all(has("type") and has("status") and has("severity") and has("reason") and has("message") and has("subject") and has("lastTransitionTime"))'
check "conditions of host and clock are there" "$home/first.json" '[.nodes[0].conditions[].type] | index("HostHealthy") and index("ClockSynchronized") and index("Ready")'
check "severity and status are of the words" "$home/first.json" \
    '.nodes[0].conditions | all((.status | IN("True", "False", "Unknown")) and (.severity | IN("ok", "info", "warn", "error")))'
check "no secret is printed" "$home/first.json" '[.. | strings | select(test("OR1[0-9a-f]{64}|PRIVATE KEY"))] | length == 0'

"$outrider" up --listen 127.0.0.1:0 --for 4s -o json >"$home/second.json" 2>"$home/second.err" </dev/null \
    || { echo "second up ended with $?"; cat "$home/second.err"; exit 1; }
check "the second run has the first's CA" "$home/second.json" '.coordinator.caChecksum == $first[0].coordinator.caChecksum' --slurpfile first "$home/first.json"
check "and the first's node, by uid and time of enrolment" "$home/second.json" \
    '.nodes[0] | .uid == $first[0].nodes[0].uid and .enrolledAt == $first[0].nodes[0].enrolledAt and .lastSeen > $first[0].nodes[0].lastSeen' --slurpfile first "$home/first.json"

"$outrider" up --listen 127.0.0.1:0 --simulate 6 --state-dir "$home/fleet" --for 8s -o json >"$home/fleet.json" 2>"$home/fleet.err" </dev/null \
    || { echo "up --simulate ended with $?"; cat "$home/fleet.err"; exit 1; }
check "six simulated nodes beside this machine" "$home/fleet.json" '([.nodes[] | select(.simulated)] | length == 6) and ([.nodes[] | select(.simulated | not)] | length == 1)'
check "in three zones" "$home/fleet.json" '[.nodes[] | select(.simulated) | .zone] | unique | length == 3'

if find "$home" -type f \( -name '*.key' -o -name '*token*' -o -name '*.pem' -o -name '*.db*' \) -perm /077 | grep -i -E 'key|token' ; then
    echo "FAIL  keys and tokens are readable by others"; exit 1
fi
passed=$((passed + 1)); echo "ok    keys and tokens are readable by their owner alone"
echo "test result: ok. $passed passed; 0 failed;"
