#!/usr/bin/env bash
# The way in to Rancher: balancers, ingresses and a backend with Rancher's own code in network namespaces, each fault made
# for real (tests/tests/way_in).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/beds/enclosed.sh
needs nft haproxy nginx
if outside; then
    # The namespaces have no way out: what must be fetched is fetched before.
    if [ -z "${OUTRIDER_RANCHER_BACKEND:-}" ]; then
        OUTRIDER_RANCHER_BACKEND=$(tests/tools/build rancher-backend) || skip "the Rancher-like backend could not be built"
    fi
    if [ -z "${OUTRIDER_TRAEFIK:-}" ] && ! OUTRIDER_TRAEFIK=$(tests/beds/traefik/unpack); then
        echo "without Traefik: it could not be unpacked"
        OUTRIDER_TRAEFIK=
    fi
    export OUTRIDER_RANCHER_BACKEND OUTRIDER_TRAEFIK
fi
enclose "$0"
can_link type bridge
# Where the published configurations have nginx write.
mount -t tmpfs -o mode=755 tmpfs /var/log/nginx
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test way_in -- --ignored --nocapture --test-threads 1 ${WAY_IN_TEST:+"$WAY_IN_TEST"}
