#!/bin/sh
# Lays out what a package would install: packaging/install.sh [--bin FOLDER] DESTDIR
#
# FOLDER holds the built programs (target/dist when left out); DESTDIR is the root they are put below. Users, folders in
# /etc and /run, and what is enabled follow from the sysusers, tmpfiles and preset files when systemd applies them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
programs=$here/../target/dist
if [ "${1:-}" = --bin ]; then programs=${2:?--bin needs a folder}; shift 2; fi
root=${1:?usage: packaging/install.sh [--bin FOLDER] DESTDIR}

(cd "$here" && find usr -type f) | while read -r file; do
    install -D -m 0644 "$here/$file" "$root/$file"
done
for program in outrider outrider-agent outrider-coordinator; do
    install -D -m 0755 "$programs/$program" "$root/usr/bin/$program"
done
for program in outrider-helper outrider-guest-agent; do
    install -D -m 0755 "$programs/$program" "$root/usr/libexec/outrider/$program"
done
