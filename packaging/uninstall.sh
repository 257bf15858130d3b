#!/bin/sh
# Takes away what packaging/install.sh laid out: packaging/uninstall.sh [--purge] DESTDIR
#
# DESTDIR / is this machine: its units are stopped and disabled first. Configuration in /etc/outrider and the state folders
# stay, so that after another install the same node is there and not a new one. --purge takes those too: the node has to
# be enrolled anew, and a coordinator's certificate authority is gone for good. Users stay, as packages leave them: files
# elsewhere may be theirs, and another user with their number would inherit those.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
purge=
if [ "${1:-}" = --purge ]; then purge=1; shift; fi
root=${1:?usage: packaging/uninstall.sh [--purge] DESTDIR}
root=${root%/}
units="outrider-agent.service outrider-helper.socket outrider-helper.service outrider-guest-agent.path outrider-guest-agent.timer
outrider-guest-agent.service outrider-coordinator.service"

live=
if [ -z "$root" ] && [ -d /run/systemd/system ]; then live=1; fi
if [ -n "$live" ]; then
    for unit in $units; do
        [ -e "/usr/lib/systemd/system/$unit" ] || continue
        # One that does not stop would run on without its files.
        systemctl stop "$unit"
        systemctl --quiet --no-warn disable "$unit" 2>/dev/null || systemctl --quiet disable "$unit"
    done
fi
(cd "$here" && find usr -type f) | while read -r file; do
    rm -f "$root/$file"
done
rm -f "$root/usr/bin/outrider" "$root/usr/bin/outrider-agent" "$root/usr/bin/outrider-coordinator" \
    "$root/usr/libexec/outrider/outrider-helper" "$root/usr/libexec/outrider/outrider-guest-agent"
# Folders of ours alone, and only when nobody else has put something there.
for folder in usr/libexec/outrider usr/lib/outrider usr/share/outrider; do
    rmdir "$root/$folder" 2>/dev/null || [ ! -d "$root/$folder" ] || echo "$root/$folder is kept: it is not empty" >&2
done
rm -rf "$root/run/outrider" "$root/run/outrider-guest-agent"
if [ -n "$purge" ]; then
    rm -rf "$root/etc/outrider" "$root/var/lib/outrider" "$root/var/lib/outrider-coordinator" "$root/var/lib/outrider-guest-agent"
fi
if [ -n "$live" ]; then
    systemctl daemon-reload
    systemctl reset-failed 'outrider-*' 2>/dev/null || true
fi
