# Links that `systemctl enable` makes; a mask is the administrator's, and stays.
remove_links() {
    for unit in $UNITS; do
        for link in /etc/systemd/system/*.wants/"$unit"; do
            if [ -L "$link" ]; then rm -f "$link"; rmdir "${link%/*}" 2>/dev/null || true; fi
        done
    done
}

purge() {
    remove_links
    rm -rf "/var/lib/$USER_NAME"
    if [ "$PACKAGE" = outrider-coordinator ]; then
        rm -f /etc/outrider/coordinator.env
    else
        rm -rf /run/outrider /run/outrider-guest-agent /var/lib/outrider-guest-agent
        # The receipt of `outrider install`; what that replaced is somebody's.
        if [ -e /var/lib/outrider-install/replaced ]; then
            say "/var/lib/outrider-install/replaced is kept: files that outrider install replaced"
        else
            rm -rf /var/lib/outrider-install
        fi
        # The coordinator's settings lie in the same folder, and go with the coordinator.
        [ ! -d /etc/outrider ] || find /etc/outrider -mindepth 1 -maxdepth 1 ! -name coordinator.env -exec rm -rf {} +
    fi
    rmdir /etc/outrider 2>/dev/null || true
}
case "$1" in
    # Configuration and state stay, and so do the links that say what is enabled: the same node is there after another
    # installation, in the same state.
    remove) reload ;;
    purge) purge; reload; if running; then systemctl reset-failed 'outrider-*' 2>/dev/null || true; fi ;;
esac
