#!/usr/bin/env bash
# The etcd sensor against real clusters and lying peers (tests/tests/sense_etcd): of the installed etcd, and once more of a
# later one unpacked beside it, which answers differently without a quorum.
set -euo pipefail
cd "$(dirname "$0")/../.."

# What a member means to be is read of the one etcd process of this machine: other suites' have to be out of sight.
alone=()
if [ "$(id -u)" = 0 ] && unshare --mount --pid --fork --kill-child --mount-proc true 2>/dev/null; then
    alone=(unshare --mount --pid --fork --kill-child --mount-proc)
fi

# The whole workspace is named so that dependencies keep the features they were built with.
against() {
    echo "-- $(PATH=$1 etcd --version | head -n 1)"
    PATH=$1 ${alone[@]+"${alone[@]}"} cargo test --workspace --test sense_etcd -- --ignored --nocapture --test-threads 1
}
against "$PATH"
if newer=$(tests/beds/etcd/unpack); then
    against "$newer:$PATH"
else
    echo "not run against a later etcd: it could not be unpacked"
fi
