#!/usr/bin/env bash
# Where a clock has its time from (tests/tests/clock.rs): real chronyd and ntpd, unpacked and not installed, in namespaces.
# None of them may set this machine's clock: chronyd is told so (-x), ntpd is not given the right.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/beds/enclosed.sh
needs nft setpriv
if outside && [ -z "${OUTRIDER_TIME_SERVICES:-}" ]; then
    OUTRIDER_TIME_SERVICES=$(tests/beds/deb/unpack chrony ntpsec) || skip "chrony and ntpsec could not be unpacked"
    export OUTRIDER_TIME_SERVICES
fi
enclose "$0" "$@"
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test clock -- --ignored --nocapture --test-threads 1
