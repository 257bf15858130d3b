#!/usr/bin/env bash
# The way in to Rancher: balancers, ingresses and a backend with Rancher's own code in network namespaces, each fault made
# for real (tests/tests/way_in). With the word "cost": what a pass costs where all is well (docs/performance.md).
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
enclose "$0" "$@"
can_link type bridge
# Where nginx writes unless its configuration says otherwise, and the published ones do not.
for folder in /var/log/nginx /var/lib/nginx; do mount -t tmpfs -o mode=755 tmpfs $folder; done
if [ "${1:-}" = cost ]; then cargo run -q --release -p outrider-tests --bin way-in-cost; exit; fi
command -v keepalived >/dev/null || echo "without keepalived: no address moves (tests/run installs it as root on Debian)"
# Most of it is waiting (for time-outs, for passes, for what must settle), and each test has a network of its own.
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test way_in -- --ignored --nocapture --test-threads 20 ${WAY_IN_TEST:+"$WAY_IN_TEST"}
