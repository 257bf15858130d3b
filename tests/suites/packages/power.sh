# The power fails while dpkg works, at points that are held by stand-ins in front of PATH; then the machine boots and dpkg is
# let finish.   sourced by deb.sh
bed mkdir -p /opt/hang
hang() {                                                            # program, shell pattern of its arguments, before it: a command
    bed sh -c 'cat >"/opt/hang/$1"; chmod 755 "/opt/hang/$1"' sh "$1" <<H
#!/bin/sh
case "\$*" in
    $2) $3 : >/run/hangs; exec sleep infinity ;;
    *) exec $(bed sh -c "command -v $1") "\$@" ;;
esac
H
}
cut_in() {                                                          # words, old or new, then what hang takes
    local words=$1 what=$2; shift 2
    bed sh -c 'rm -f /opt/hang/* /run/hangs'
    [ $# = 0 ] || hang "$@"
    if [ $# = 0 ]; then
        bed dpkg --unpack "$(deb "$what" outrider-agent)" >/dev/null 2>&1 || fail "$words: dpkg --unpack failed"
    else
        bed env PATH=/opt/hang:/usr/sbin:/usr/bin:/sbin:/bin dpkg -i "$(deb "$what" outrider-agent)" >"$work/cut.log" 2>&1 </dev/null &
        until_true 30 "$words: dpkg comes to that point" bed test -e /run/hangs
    fi
    cut_power
    wait 2>/dev/null || true
    boot
}
finished() {                                                        # words, expected state
    bed dpkg --configure -a >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "$1: dpkg --configure -a failed"; }
    dpkg_i new
    until_true 20 "$1: the agent runs" active
    is "power fails $1: finished afterwards" "0.1.0-1 ii enabled active" "$(dpkg_version) $(state)"
    # The machine's own settings of dpkg leave out man pages and documents.
    is "  every file is whole" "" "$(bed dpkg -V outrider-agent 2>&1 | grep -vE ' /usr/share/(man|doc)/' || true)"
    is "  and nothing is half unpacked" "" "$(listing | grep -E '\.dpkg-(new|tmp)$' || true)"
    row "the power fails $1" "kill of PID 1, boot, dpkg --configure -a" "finished; every file whole, agent runs"
}
half='/usr/bin/dpkg-deb "$@" | head -c 30000000;'
for point in \
    "in the middle of unpacking|dpkg-deb|*--fsys-tarfile*|$half" \
    "when the user is to be made|systemd-sysusers|*|" \
    "when units are to be enabled|systemctl|*preset*|" \
    "when the agent is to be started|systemctl|*start*|" \
    "between unpacking and configuring"; do
    IFS='|' read -r words program pattern before <<<"$point"
    before=${point#*|*|*|}
    bed userdel outrider 2>/dev/null || true                        # it outlives a purge
    if [ -n "$program" ]; then cut_in "$words" new "$program" "$pattern" "$before"; else cut_in "$words" new; fi
    finished "$words"
    bed dpkg -P outrider-agent >/dev/null 2>&1
done
for point in \
    "in the middle of an upgrade's unpacking|dpkg-deb|*--fsys-tarfile*|$half" \
    "when an upgraded agent is to be restarted|systemctl|*try-restart*|" \
    "between an upgrade's unpacking and configuring"; do
    IFS='|' read -r words program pattern before <<<"$point"
    before=${point#*|*|*|}
    dpkg_i old
    until_true 20 "the agent runs" active
    bed sh -c 'echo "# mine" >/etc/outrider/agent.toml.d/50-mine.toml'
    if [ -n "$program" ]; then cut_in "$words" new "$program" "$pattern" "$before"; else cut_in "$words" new; fi
    until_true 20 "$words: the agent runs after the boot, before dpkg is called" active
    finished "$words"
    is "  configuration is kept" "# mine" "$(bed cat /etc/outrider/agent.toml.d/50-mine.toml)"
    bed dpkg -P outrider-agent >/dev/null 2>&1
done
