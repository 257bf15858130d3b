#!/usr/bin/env bash
# Real etcd clusters in network namespaces, broken for real (tests/tests/quorum). The suite runs in namespaces of its own
# (mounts, network, processes): what it makes is gone with it, however it ends, and the machine's network is not touched.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for tool in unshare ip nft etcd etcdctl strace; do
    command -v $tool >/dev/null || skip "$tool is missing (tests/run installs it as root on Debian)"
done

if [ -z "${OUTRIDER_ENCLOSED:-}" ]; then
    # A later etcd beside the installed one; without it every cluster runs the installed one.
    if ! OUTRIDER_ETCD_NEWER=$(tests/beds/etcd/unpack); then
        echo "the clusters of a later etcd run the installed one: it could not be unpacked"
        OUTRIDER_ETCD_NEWER=
    fi
    export OUTRIDER_ETCD_NEWER
    space=(unshare --mount --net --pid --fork --kill-child --mount-proc)
    "${space[@]}" true 2>/dev/null || skip "namespaces cannot be made here"
    # What a killed run left on disk goes now.
    tmp=${TMPDIR:-/tmp}
    for left in "$tmp"/outrider-quorum.*; do
        if [ -d "$left" ] && ! kill -0 "${left##*.}" 2>/dev/null; then rm -rf --one-file-system "$left"; fi
    done
    export TMPDIR=$tmp/outrider-quorum.$$
    mkdir -m 700 "$TMPDIR"
    OUTRIDER_ENCLOSED=1 exec "${space[@]}" bash "$0"
fi

trap 'rm -rf --one-file-system "$TMPDIR"' EXIT
trap 'exit 130' INT TERM HUP
mount -t tmpfs -o mode=755 tmpfs /run
ip link set lo up
probe=$(mktemp -u orXXXX)
{ ip link add "$probe" type bridge && ip netns add "$probe" && ip netns exec "$probe" nft list ruleset; } >/dev/null 2>&1 \
    || skip "no bridge, network namespace or nftables in this kernel"
ip netns del "$probe"
ip link del "$probe"
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test quorum -- --ignored --nocapture --test-threads 1 ${QUORUM_TEST:+"$QUORUM_TEST"}
