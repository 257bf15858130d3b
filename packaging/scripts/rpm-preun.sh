# 0 versions will be left: a removal. In an upgrade this is the old package's script and runs after the new version is there.
if [ "$1" = 0 ]; then
    stop
    if have systemctl; then
        for unit in $UNITS; do systemctl --no-reload disable "$unit" >/dev/null 2>&1 || true; done
    fi
fi
exit 0
