#!/usr/bin/env bash
# Real etcd clusters in network namespaces, broken for real (tests/tests/quorum).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/beds/enclosed.sh
needs nft etcd etcdctl strace
if outside; then
    # A later etcd beside the installed one; without it every cluster runs the installed one.
    if ! OUTRIDER_ETCD_NEWER=$(tests/beds/etcd/unpack); then
        echo "the clusters of a later etcd run the installed one: it could not be unpacked"
        OUTRIDER_ETCD_NEWER=
    fi
    export OUTRIDER_ETCD_NEWER
fi
enclose "$0"
can_link type bridge
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test quorum -- --ignored --nocapture --test-threads 1 ${QUORUM_TEST:+"$QUORUM_TEST"}
