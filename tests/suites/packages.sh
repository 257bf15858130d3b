#!/usr/bin/env bash
# The packages under a real systemd, dpkg and rpm, in machines of their own: installed, upgraded in every state a service can
# be in, downgraded, removed, purged, cut off by a power failure. Needs root, mmdebstrap, Go and util-linux.
#
#   tests/suites/packages.sh [deb|install|rpm|repository|sources|dist …]        (all without a word)
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "skipped: a machine of its own needs root"; exit 77; }
for tool in mmdebstrap unshare nsenter jq go; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing (tests/run installs what Debian has)"; exit 77; }
done
grep -q cgroup2 /proc/mounts || { echo "skipped: no cgroup2 is mounted, which systemd needs"; exit 77; }
. tests/beds/container/bed.sh
bed_enter "$0" "$@"
bin=$(realpath "${OUTRIDER_BIN:-target/debug}")
parts=("$@")
[ $# -gt 0 ] || parts=(deb install rpm repository sources dist)

# --- what is counted and shown ------------------------------------------------------------------------------------------
passed=0 rows=()
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
fail() {
    printf 'FAIL  %s\n' "$1"
    bed journalctl --no-pager -o short-monotonic -n 25 2>/dev/null || true
    exit 1
}
is() { if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: expected \"$2\", found \"$3\""; fi; }
row() { rows+=("$1|$2|$3"); }                                       # fault, how made, what was said or seen
until_true() {                                                      # seconds, words, command …
    local limit=$(($(date +%s) + $1)) words=$2; shift 2
    until "$@"; do
        [ "$(date +%s)" -lt "$limit" ] || fail "$words: not within the limit"
        sleep 0.1
    done
}
show() { bed systemctl show -P "$2" "$1" 2>/dev/null; }
enabled() { bed systemctl is-enabled "$1" 2>/dev/null || true; }
state() { echo "$(enabled outrider-agent.service) $(show outrider-agent.service ActiveState)"; }
active() { [ "$(show outrider-agent.service ActiveState)" = active ]; }
main_pid() { show outrider-agent.service MainPID; }
restarted() { active && [ "$(main_pid)" != "$1" ]; }
settled() { case $(bed systemctl is-system-running 2>/dev/null) in running|degraded) ;; *) false ;; esac; }
machine() {                                                         # tree: a machine that was never booted
    [ -z "${BED_DIR:-}" ] || end_machine
    bed_create "$1"
    trap 'code=$?; rm -rf --one-file-system "$work"; (exit $code); bed_clean' EXIT
    touch "$BED_ROOT/etc/cloud/cloud-init.disabled"
}
end_machine() {
    trap 'rm -rf --one-file-system "$work"' EXIT
    bed_off; umount -l "$BED_DIR/root"; umount -l "$BED_DIR"; rmdir "$BED_DIR"; BED_DIR=
}
boot() { bed_boot || exit 1; until_true 60 "the boot ends" settled; }
# As when the power fails: nothing inside hears of it.
cut_power() { kill -9 "$BED_INIT"; wait "$BED_JOB" 2>/dev/null || true; BED_INIT=; }
# Every file and folder outside of what a running system writes by itself.
listing() {
    bed find / -xdev \( -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \
        -o -path /var/lib/rpm -o -path /var/lib/systemd -o -path /opt -o -path /root \) -prune -o -print |
        grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^/etc/\.(pwd|updated)|^/var/\.updated' | sort
}
identity() { bed sh -c 'cat /var/lib/outrider/identity.key /var/lib/outrider/identity.json | sha256sum'; }

# The commands of a section of docs/install.md.
recipe() {
    awk -v section="## $1" '/^## / { inside = $0 == section } /^```/ { code = inside && $0 == "```sh"; next } code' docs/install.md >"$BED_ROOT/opt/recipe"
    [ -s "$BED_ROOT/opt/recipe" ] || fail "docs/install.md has no commands in its section $1"
}

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
echo "packing the programs that are built, twice: 0.0.9 and 0.1.0"
packaging/build deb rpm --bin "$bin" --fast --version 0.0.9 --out "$work/old" >/dev/null || exit 1
packaging/build deb rpm tar --bin "$bin" --fast --version 0.1.0 --out "$work/new" >/dev/null || exit 1

for part in "${parts[@]}"; do
    [ -f "tests/suites/packages/$part.sh" ] || { echo "there is no part $part" >&2; exit 64; }
    echo "--- $part"
    . "tests/suites/packages/$part.sh"
done

{
    echo "fault|made by|seen"
    printf '%s\n' "${rows[@]}"
} | awk -F'|' '{ printf "  %-52s %-44s %s\n", $1, $2, $3 }'
echo "test result: ok. $passed passed; 0 failed;"
