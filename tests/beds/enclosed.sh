# Namespaces of a suite's own: mounts, network, processes.   . tests/beds/enclosed.sh
#
#   needs TOOL …        ends the suite as skipped where a tool is missing or we are not root
#   outside && …        what has to be done before, on the machine itself
#   enclose "$0" "$@"   runs the suite again inside; what follows runs only there
#   can_link TYPE …     ends the suite as skipped where the kernel has no such link (the words of `ip link add NAME`)
#
# What the suite makes is gone with it, however it ends, and the machine's network is not touched. The beds in
# tests/src/beds/ that change a network refuse to run anywhere else.
set -euo pipefail

skip() { echo "skipped: $1"; exit 77; }
needs() {
    [ "$(id -u)" = 0 ] || skip "network namespaces need root"
    local tool
    for tool in unshare ip "$@"; do
        command -v "$tool" >/dev/null || skip "$tool is missing (tests/run installs it as root on Debian)"
    done
}
outside() { [ -z "${OUTRIDER_ENCLOSED:-}" ]; }

enclose() {
    if outside; then
        local space=(unshare --mount --net --pid --fork --kill-child --mount-proc) tmp=${TMPDIR:-/tmp} left
        "${space[@]}" true 2>/dev/null || skip "namespaces cannot be made here"
        # What a killed run left on disk goes now.
        for left in "$tmp"/outrider-enclosed.*; do
            if [ -d "$left" ] && ! kill -0 "${left##*.}" 2>/dev/null; then rm -rf --one-file-system "$left"; fi
        done
        export TMPDIR=$tmp/outrider-enclosed.$$
        mkdir -m 700 "$TMPDIR"
        OUTRIDER_ENCLOSED=1 exec "${space[@]}" bash "$@"
    fi
    trap 'rm -rf --one-file-system "$TMPDIR"' EXIT
    trap 'exit 130' INT TERM HUP
    # `ip netns` keeps its names there.
    mount -t tmpfs -o mode=755 tmpfs /run
    ip link set lo up
    { ip netns add probe && ip netns exec probe nft list ruleset; } >/dev/null 2>&1 \
        || skip "no network namespaces or no nftables in this kernel"
    ip netns del probe
}
can_link() {
    ip link add probe "$@" 2>/dev/null || skip "this kernel has no such link: $*"
    ip link del probe
}
