# rpm: the same states through Debian's rpm in a machine of its own.   sourced by packages.sh
command -v rpm >/dev/null || { echo "skipped: rpm is missing (Debian: rpm)"; return 0; }
rpm_file() { echo "/opt/$1/outrider-agent-$([ "$1" = old ] && echo 0.0.9 || echo 0.1.0)-1.x86_64.rpm"; }
# Debian's rpm refuses to install beside dpkg, unless told so.
rpm_u() {                                                           # old or new, options
    local what=$1; shift
    bed rpm -U --force-debian "$@" "$(rpm_file "$what")" >"$work/rpm.log" 2>&1 </dev/null || { cat "$work/rpm.log"; fail "rpm -U $what failed"; }
}
rpm_version() { bed rpm -q --qf '%{VERSION}-%{RELEASE}' outrider-agent 2>/dev/null || true; }
# rpm as this machine has it, with its libraries and macros.
carry_rpm() {
    mkdir -p "$BED_ROOT/opt/old" "$BED_ROOT/opt/new" "$BED_ROOT/usr/lib/rpm"
    cp "$work"/old/*.rpm "$BED_ROOT/opt/old/"; cp "$work"/new/*.rpm "$BED_ROOT/opt/new/"
    cp /usr/bin/rpm "$BED_ROOT/usr/bin/"
    cp -r /usr/lib/rpm/. "$BED_ROOT/usr/lib/rpm/"
    ldd /usr/bin/rpm | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
        [ -e "$BED_ROOT$library" ] || install -D "$(realpath "$library")" "$BED_ROOT$library"
    done
}
is "a node's rpm requires nothing" "" "$(rpm -qp --requires "$work/new/outrider-agent-0.1.0-1.x86_64.rpm" 2>/dev/null | grep -v '^rpmlib(' || true)"
if command -v rpmlint >/dev/null; then
    is "rpmlint" "" "$(rpmlint -c packaging/rpmlint.toml "$work"/new/*.rpm 2>&1 | grep -E ': [EW]: ' || true)"
else
    echo "skipped: rpmlint is not installed"
fi

machine "$BED_TREE"
carry_rpm
chroot "$BED_ROOT" rpm -U --force-debian "$(rpm_file new)" >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log"; fail "rpm in a chroot failed"; }
is "in a chroot nothing is said" "" "$(cat "$work/rpm.log")"
boot
until_true 20 "the agent runs after the image's first boot" active
is "installed into an image, it runs when that boots" "enabled active" "$(state)"
row "an image is built" "rpm -U in a chroot without systemd" "enabled; runs at the first boot"
end_machine

machine "$BED_TREE"
carry_rpm
boot
listing >"$work/before"
rpm_u old
is "a first installation enables and does not start" "enabled inactive enabled" "$(state) $(enabled outrider-helper.socket)"
row "a first installation" "rpm -U" "enabled by its preset, not started"
bed systemctl start outrider-agent.service
until_true 20 "the agent runs" active
bed sh -c 'echo "# mine" >/etc/outrider/agent.toml.d/50-mine.toml; echo mine >/var/lib/outrider/mine; touch /etc/outrider/agent.toml.rpmnew'
kept() { is "  configuration and state are kept" "# mine mine" "$(bed cat /etc/outrider/agent.toml.d/50-mine.toml /var/lib/outrider/mine | xargs)"; }
pid=$(main_pid)
rpm_u new
until_true 20 "the upgraded agent runs" restarted "$pid"
is "upgrade of one that runs: restarted" "enabled active 0.1.0-1" "$(state) $(rpm_version)"
grep -q 'agent.toml.rpmnew is left of an upgrade' "$work/rpm.log" || fail "the leftover is not named: $(cat "$work/rpm.log")"
ok "a file that was put aside is named"
bed rm /etc/outrider/agent.toml.rpmnew
kept
row "upgrade, the service runs" "rpm -U" "restarted once, by the new version's script"
pid=$(main_pid)
rpm_u old --oldpackage
until_true 20 "the downgraded agent runs" restarted "$pid"
is "downgrade of one that runs: restarted" "enabled active 0.0.9-1" "$(state) $(rpm_version)"
row "downgrade, the service runs" "rpm -U --oldpackage" "restarted"
pid=$(main_pid)
rpm_u old --replacepkgs
until_true 20 "the agent runs after the same version again" active
is "the same version again: runs" "enabled active 0.0.9-1" "$(state) $(rpm_version)"
bed systemctl stop outrider-agent.service
rpm_u new
is "upgrade of one that is stopped: stays stopped" "enabled inactive 0.1.0-1" "$(state) $(rpm_version)"
row "upgrade, the service is stopped" "systemctl stop, rpm -U" "stays stopped"
bed systemctl disable --quiet outrider-agent.service
rpm_u old --oldpackage
is "one that is disabled: stays disabled and stopped" "disabled inactive" "$(state)"
bed systemctl start outrider-agent.service
pid=$(main_pid)
rpm_u new
until_true 20 "the upgraded agent runs" restarted "$pid"
is "one that is disabled and runs: restarted, stays disabled" "disabled active" "$(state)"
row "upgrade, the service is disabled" "systemctl disable, rpm -U" "stays disabled; restarted where it ran"
bed systemctl stop outrider-agent.service
bed systemctl mask --quiet outrider-agent.service
rpm_u old --oldpackage
is "one that is masked: stays masked" "masked inactive" "$(state)"
row "upgrade, the service is masked" "systemctl mask, rpm -U" "stays masked and stopped"
bed systemctl unmask --quiet outrider-agent.service
bed systemctl enable --now --quiet outrider-agent.service
until_true 20 "the agent runs again" active
kept

# --- the power fails ------------------------------------------------------------------------------------------------------
bed mkdir -p /opt/hang
for pattern in '*daemon-reload*' '*try-restart*'; do
    bed sh -c 'rm -f /run/hangs; cat >/opt/hang/systemctl; chmod 755 /opt/hang/systemctl' <<H
#!/bin/sh
case "\$*" in $pattern) : >/run/hangs; exec sleep infinity ;; esac
exec /usr/bin/systemctl "\$@"
H
    bed rpm -U --force-debian --oldpackage --replacepkgs --define '_install_script_path /opt/hang:/usr/sbin:/usr/bin:/sbin:/bin' \
        "$(rpm_file new)" >"$work/cut.log" 2>&1 </dev/null &
    until_true 60 "rpm comes to $pattern" bed test -e /run/hangs
    cut_power
    wait 2>/dev/null || true
    boot
    until_true 20 "the agent runs after the boot, before rpm is called" active
    rpm_u new --replacepkgs
    until_true 20 "the agent runs" active
    is "power fails at ${pattern//\*/}: finished by the same command" "1 0.1.0-1 enabled active" "$(bed rpm -q outrider-agent | wc -l) $(rpm_version) $(state)"
    is "  every file is whole" "" "$(bed rpm -V outrider-agent 2>&1 | grep -vE '/usr/share/(man|doc)/' || true)"
    kept
    row "the power fails at ${pattern//\*/}" "kill of PID 1, boot, rpm -U again" "finished; every file whole, agent runs"
    rpm_u old --oldpackage
done

bed rpm -e --force-debian outrider-agent >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log"; fail "rpm -e failed"; }
grep -q '/etc/outrider is kept' "$work/rpm.log" || fail "what is kept is not said: $(cat "$work/rpm.log")"
is "erased: no process, no unit" " " "$(bed pgrep -f '^/usr/(bin|libexec/outrider)/outrider-(agent|helper)' || true) $(bed sh -c 'ls /usr/lib/systemd/system/outrider-agent.service 2>/dev/null' || true)"
kept
# Folders that many packages share are owned by others on a system of rpm's.
is "nothing but configuration and state is left" "/etc/outrider /var/lib/outrider" "$(listing | diff "$work/before" - | sed -n 's/^> //p' | grep -vE '^/(etc|var/lib)/outrider/|^/usr/share/(fish|man|zsh)' | xargs)"
row "the package is erased" "rpm -e" "$(grep -c 'is kept' "$work/rpm.log") folders kept, and said"
rpm_u new
is "installed again: as at first" "enabled inactive" "$(state)"
kept
end_machine
