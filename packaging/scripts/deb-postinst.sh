# The administrator's word on services during installation (images, containers), as invoke-rc.d asks for it.
may_start() {
    [ -x /usr/sbin/policy-rc.d ] || return 0
    rc=0
    /usr/sbin/policy-rc.d "$PACKAGE" start >/dev/null 2>&1 || rc=$?
    case $rc in 0|104) ;; *) return 1 ;; esac
}
start_enabled() {
    if ! running || ! may_start; then return 0; fi
    for unit in $UNITS; do
        [ "$(systemctl is-enabled "$unit" 2>/dev/null)" != enabled ] || systemctl --no-block start "$unit" ||
            say "$unit could not be started"
    done
}
case "$1" in
    configure)
        users_and_folders
        [ -n "${2:-}" ] || preset
        reload
        if [ -z "${2:-}" ] || [ -e "/run/$PACKAGE.installed" ]; then start_enabled; else restart_if_running; fi
        rm -f "/run/$PACKAGE.installed"
        report_leftovers
        ;;
    abort-remove) reload; start_enabled ;;
    abort-upgrade|abort-deconfigure) ;;
esac
