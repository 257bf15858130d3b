#!/usr/bin/env bash
# `outrider install` and `uninstall` on a machine with a real systemd and a real coordinator: in an image before its first
# boot, on the running machine, twice, without network, with what stands in the way, killed at every step. After each way
# back the machine is compared, file by file, with what it was.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "skipped: a machine of its own needs root"; exit 77; }
for tool in mmdebstrap unshare nsenter jq strace strip systemd-sysusers userdel; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing (tests/run installs it as root on Debian)"; exit 77; }
done
grep -q cgroup2 /proc/mounts || { echo "skipped: no cgroup2 is mounted, which systemd needs"; exit 77; }
. tests/beds/container/bed.sh
bed_enter "$0" "$@"
bin=${OUTRIDER_BIN:-target/debug}
work=$(mktemp -d)

passed=0 rows=()
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
fail() {
    printf 'FAIL  %s\n' "$1"
    [ -z "${BED_INIT:-}" ] || bed journalctl --no-pager -o short-monotonic -n 20 2>/dev/null || true
    exit 1
}
is() { if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: expected \"$2\", found \"$3\""; fi; }
row() { rows+=("$1|$2|$3"); }                                       # fault, how made, what was said
until_true() {                                                      # seconds, words, command …
    local limit=$(($(date +%s) + $1)) words=$2; shift 2
    until "$@"; do
        [ "$(date +%s)" -lt "$limit" ] || fail "$words: not within the limit"
        sleep 0.1
    done
}
show() { bed systemctl show -P "$2" "$1"; }
active() { [ "$(show outrider-agent.service ActiveState)" = active ]; }
# Every path below ROOT that an installation could touch, with mode, owner and sum; not what systemd and the tools that make
# users keep for themselves.
snapshot() {                                                        # root
    (cd "$1" && find etc usr var -xdev \( -path var/log -o -path var/tmp -o -path var/cache -o -path var/lib/systemd \
        -o -path var/lib/cloud -o -path var/lib/coordinator -o -path var/lib/private -o -path var/lib/dbus \) -prune -o \( -name '*-' -path 'etc/*' -o -name .pwd.lock \
        -o -path etc/machine-id -o -path etc/resolv.conf \) -prune -o -printf '%p %y %m %U %G %l\n' | sort
    { find etc usr/lib/systemd usr/lib/sysusers.d usr/lib/tmpfiles.d -xdev -type f -not -name '*-' -not -path etc/machine-id -exec sha256sum {} + 2>/dev/null || true; } | sort -k 2)
}
same() {                                                            # words, before, root
    snapshot "$3" >"$work/after"
    diff "$2" "$work/after" >"$work/diff" || fail "$1: $(head -n 12 "$work/diff")"
}
# Runs the installer of the release in /opt, outside what it installs; its words are in $work/said, its exit code in $code.
told() { code=0; "$@" >"$work/said" 2>&1 || code=$?; }
installer() { told bed /opt/release/usr/bin/outrider "$@"; }
says() { grep -qF -- "$2" "$work/said" || fail "$1: \"$2\" is not said: $(cat "$work/said")"; ok "$1: $(grep -hoF -m1 -- "$2" "$work/said")"; }

# --- a release, an image, a coordinator ---------------------------------------------------------------------------------
mkdir "$work/bin"
for program in outrider outrider-agent outrider-coordinator outrider-helper outrider-guest-agent; do
    strip -o "$work/bin/$program" "$bin/$program" || { echo "the programs are not built: run tests/run, or cargo build"; exit 1; }
done
bed_create "$BED_TREE"
trap 'code=$?; rm -rf "$work"; (exit $code); bed_clean' EXIT
packaging/install.sh --bin "$work/bin" "$BED_ROOT/opt/release"
# What is not started here is made small: unoptimised, sums of a hundred megabytes take their time.
cp /bin/true "$BED_ROOT/opt/release/usr/bin/outrider-coordinator"
tar -czf "$BED_ROOT/opt/outrider.tar.gz" --owner=0 --group=0 -C "$BED_ROOT/opt/release" usr
# The same units with programs that end at once: quick to copy, for what is about steps and not about agents.
cp -r "$BED_ROOT/opt/release" "$BED_ROOT/opt/stub"
rm -rf "$BED_ROOT/opt/stub/usr/share"
for program in usr/bin/outrider usr/bin/outrider-agent usr/bin/outrider-coordinator usr/libexec/outrider/outrider-helper usr/libexec/outrider/outrider-guest-agent; do
    cp /bin/true "$BED_ROOT/opt/stub/$program"
done
cp "$work/bin/outrider-coordinator" "$BED_ROOT/opt/"
state=$BED_ROOT/var/lib/coordinator
mkdir -m 700 "$state"
"$work/bin/outrider-coordinator" serve --listen 127.0.0.1:0 --state-dir "$state" >"$work/first-start" 2>&1 &
first=$!
for _ in $(seq 100); do [ -s "$state/operator.token" ] && break; sleep 0.1; done
kill $first; wait $first || true
"$work/bin/outrider-coordinator" token create --state-dir "$state" --uses 9 >"$BED_ROOT/opt/token" 2>"$work/token.err" || fail "no token: $(cat "$work/token.err")"
sed 's/^OR1.\{64\}/OR1'"$(printf '00%.0s' {1..32})"'/' "$BED_ROOT/opt/token" >"$BED_ROOT/opt/wrong-token"
printf '[Service]\nExecStart=/opt/outrider-coordinator serve --listen 127.0.0.1:8440 --state-dir /var/lib/coordinator\n' \
    >"$BED_ROOT/etc/systemd/system/coordinator.service"
# cloud-init has nothing to do here and would take its time.
touch "$BED_ROOT/etc/cloud/cloud-init.disabled"
asked=(install --coordinator https://127.0.0.1:8440 --token-file /opt/token --cluster prod --profile k3s-server)
operator() {
    bed env OUTRIDER_URL=https://127.0.0.1:8440 OUTRIDER_TOKEN="$(cat "$state/operator.token")" /opt/release/usr/bin/outrider "$@" 2>/dev/null
}
node() { operator get nodes -o json | jq -re ".items[0] | $1"; }    # jq over the node, as the coordinator has it
reported() { node '.ready // .status // .conditions // .name' >/dev/null; }

. tests/suites/install/kills.sh
. tests/suites/install/machine.sh

{
    echo "fault|made by|what was said"
    printf '%s\n' "${rows[@]}"
} | awk -F'|' '{ printf "  %-44s %-44s %s\n", $1, $2, $3 }'
echo "test result: ok. $passed passed; 0 failed;"
