#!/usr/bin/env bash
# The way in to Rancher: balancers, ingresses and a backend with Rancher's own code in network namespaces, each fault made
# for real (tests/tests/way_in). The suite runs in namespaces of its own (mounts, network, processes): what it makes is gone
# with it, however it ends, and the machine's network is not touched.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for tool in unshare ip nft haproxy nginx; do
    command -v $tool >/dev/null || skip "$tool is missing (tests/run installs it as root on Debian)"
done

if [ -z "${OUTRIDER_ENCLOSED:-}" ]; then
    # The namespaces have no way out: what must be fetched is fetched before.
    if [ -z "${OUTRIDER_RANCHER_BACKEND:-}" ]; then
        OUTRIDER_RANCHER_BACKEND=$(tests/tools/build rancher-backend) || skip "the Rancher-like backend could not be built"
    fi
    if [ -z "${OUTRIDER_TRAEFIK:-}" ] && ! OUTRIDER_TRAEFIK=$(tests/beds/traefik/unpack); then
        echo "without Traefik: it could not be unpacked"
        OUTRIDER_TRAEFIK=
    fi
    export OUTRIDER_RANCHER_BACKEND OUTRIDER_TRAEFIK
    space=(unshare --mount --net --pid --fork --kill-child --mount-proc)
    "${space[@]}" true 2>/dev/null || skip "namespaces cannot be made here"
    # What a killed run left on disk goes now.
    tmp=${TMPDIR:-/tmp}
    for left in "$tmp"/outrider-way-in.*; do
        if [ -d "$left" ] && ! kill -0 "${left##*.}" 2>/dev/null; then rm -rf --one-file-system "$left"; fi
    done
    export TMPDIR=$tmp/outrider-way-in.$$
    mkdir -m 700 "$TMPDIR"
    OUTRIDER_ENCLOSED=1 exec "${space[@]}" bash "$0"
fi

trap 'rm -rf --one-file-system "$TMPDIR"' EXIT
trap 'exit 130' INT TERM HUP
mount -t tmpfs -o mode=755 tmpfs /run
# Where the published configurations have nginx write.
mount -t tmpfs -o mode=755 tmpfs /var/log/nginx
ip link set lo up
probe=$(mktemp -u orXXXX)
{ ip link add "$probe" type bridge && ip netns add "$probe" && ip netns exec "$probe" nft list ruleset; } >/dev/null 2>&1 \
    || skip "no bridge, network namespace or nftables in this kernel"
ip netns del "$probe"
ip link del "$probe"
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test way_in -- --ignored --nocapture --test-threads 1 ${WAY_IN_TEST:+"$WAY_IN_TEST"}
