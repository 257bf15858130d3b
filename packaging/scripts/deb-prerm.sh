# An upgrade is no removal: the service runs on until the new version is configured.
case "$1" in
    remove) stop ;;
esac
