if [ "$1" = 0 ]; then
    reload
    if running; then systemctl reset-failed 'outrider-*' 2>/dev/null || true; fi
    for left in /etc/outrider "/var/lib/$USER_NAME"; do
        [ ! -e "$left" ] || say "$left is kept, so that another installation finds the same node; remove it if that is not wanted"
    done
fi
exit 0
