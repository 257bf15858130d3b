# `install` after a removal that left the configuration is told from an upgrade here alone: configure cannot tell. The mark
# is of this boot: after another one systemd has started by itself what is enabled.
case "$1" in
    install) if running; then : >"/run/$PACKAGE.installed"; fi ;;
esac
