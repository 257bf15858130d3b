#!/usr/bin/env bash
# Nodes in network namespaces over real VXLAN, and what a broken network does to them (tests/tests/neighbours.rs). What is
# waited for are mostly the minutes for which a rule lets a cure settle, so the faults are made side by side, each in a
# cluster of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/beds/enclosed.sh
needs nft nginx ss
enclose "$0"
can_link type vxlan id 9 dstport 8472 dev lo
# Not exec: the shell is process 1 here and takes in what is orphaned.
cargo test --workspace --test neighbours -- --ignored --nocapture --test-threads 1
