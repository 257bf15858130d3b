# What both packages' scripts share. packaging/build puts it behind `set -e`, PACKAGE, USER_NAME, UNITS (enabled and started),
# RESTARTED (what runs on the files that were replaced), and in front of one script.
#
# Nothing here waits for a unit: a package that cloud-init installs is installed by a service that the boot waits for.

say() { echo "$PACKAGE: $*" >&2; }

# A systemd that runs, and is this root's: not in a chroot, nor while an image is built.
running() { [ -d /run/systemd/system ]; }
have() { command -v "$1" >/dev/null 2>&1; }
reload() { ! running || systemctl daemon-reload || say "systemd did not read its units again"; }

# The user and folders, by systemd's own declarations where it can, also in an image that is being built.
users_and_folders() {
    if ! getent passwd "$USER_NAME" >/dev/null 2>&1; then
        { have systemd-sysusers && systemd-sysusers "$SYSUSERS" >/dev/null 2>&1; } ||
            { have useradd && useradd --system --user-group --no-create-home --home-dir "/var/lib/$USER_NAME" \
                --shell /usr/sbin/nologin "$USER_NAME"; } ||
            say "the user $USER_NAME could not be made: neither systemd-sysusers nor useradd works here; make it before the start"
    fi
    [ "$PACKAGE" = outrider-agent ] || return 0
    { have systemd-tmpfiles && systemd-tmpfiles --create outrider.conf >/dev/null 2>&1; } ||
        mkdir -p /etc/outrider/agent.toml.d /etc/outrider/helper.d || say "/etc/outrider could not be made"
}

# Only what runs, and without waiting; what is stopped, disabled or masked stays so.
restart_if_running() {
    running || return 0
    for unit in $RESTARTED; do systemctl --no-block try-restart "$unit" 2>/dev/null || true; done
}

stop() {
    running || return 0
    for unit in $UNITS $RESTARTED; do systemctl stop "$unit" 2>/dev/null || true; done
}

# The preset decides, once; a mask of the administrator's outweighs it.
preset() {
    have systemctl || return 0
    for unit in $UNITS; do
        [ "$(systemctl is-enabled "$unit" 2>/dev/null)" = masked ] || systemctl --no-reload preset "$unit" >/dev/null 2>&1 ||
            say "$unit could not be enabled or disabled by its preset"
    done
}

# Configuration of ours that another package manager, or another version of this package, put aside.
report_leftovers() {
    [ -d /etc/outrider ] || return 0
    find /etc/outrider -type f \( -name '*.rpmnew' -o -name '*.rpmsave' -o -name '*.rpmorig' -o -name '*.dpkg-*' -o -name '*.ucf-*' \) |
        while read -r file; do say "$file is left of an upgrade and is not read: compare it with yours, then remove it"; done
}
