# deb: every state that a service can be in, through upgrade, downgrade, removal and purge; power cuts.   sourced by packages.sh
deb() { echo "/opt/$1/$2_$([ "$1" = old ] && echo 0.0.9 || echo 0.1.0)-1_amd64.deb"; }
dpkg_i() { bed env DEBIAN_FRONTEND=noninteractive dpkg -i "$(deb "$1" "${2:-outrider-agent}")" >"$work/dpkg.log" 2>&1 </dev/null || { cat "$work/dpkg.log"; fail "dpkg -i $1 failed"; }; }
dpkg_version() { bed dpkg-query -W -f '${Version} ${db:Status-Abbrev}' outrider-agent 2>/dev/null | xargs; }
carry() { mkdir -p "$BED_ROOT/opt/old" "$BED_ROOT/opt/new"; cp "$work"/old/*.deb "$BED_ROOT/opt/old/"; cp "$work"/new/*.deb "$BED_ROOT/opt/new/"; }

# --- by their own judges --------------------------------------------------------------------------------------------------
packaging/build deb tar --bin "$bin" --fast --version 0.1.0 --out "$work/again" >/dev/null
is "the same source gives the same bytes" "" "$(cd "$work/again" && for f in *; do cmp "$f" "$work/new/$f"; done 2>&1)"
is "a node's package depends on nothing" "" "$(dpkg-deb -f "$work/new/outrider-agent_0.1.0-1_amd64.deb" Depends Pre-Depends Recommends)"
is "and ships nothing in /etc" "" "$(dpkg-deb -c "$work/new/outrider-agent_0.1.0-1_amd64.deb" | awk '$6 ~ /^.\/etc/')"
if command -v lintian >/dev/null; then
    is "lintian" "" "$(lintian --tag-display-limit 0 --allow-root --suppress-tags uses-no-compression-for-data-tarball \
        "$work"/new/*.deb 2>&1 | grep -E '^[EW]:' || true)"
else
    echo "skipped: lintian is not installed"
fi

# --- in an image that is being built --------------------------------------------------------------------------------------
machine "$BED_TREE"
carry
chroot "$BED_ROOT" dpkg -i "$(deb new outrider-agent)" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg in a chroot failed"; }
is "in a chroot nothing is said" "" "$(grep '^outrider' "$work/dpkg.log" || true)"
is "the user is made" outrider "$(chroot "$BED_ROOT" getent passwd outrider | cut -d: -f1)"
boot
until_true 20 "the agent runs after the image's first boot" active
is "installed into an image, it runs when that boots" "enabled active" "$(state)"
row "an image is built" "dpkg -i in a chroot without systemd" "enabled; runs at the first boot"
end_machine

machine "$BED_TREE"
carry
boot
listing >"$work/before"

# --- not to be started ----------------------------------------------------------------------------------------------------
bed sh -c 'printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d'
dpkg_i new
is "policy-rc.d that forbids it: enabled, not started" "enabled inactive" "$(state)"
row "services may not be started" "policy-rc.d, exit 101" "enabled, not started"
bed rm /usr/sbin/policy-rc.d
bed dpkg -P outrider-agent >/dev/null 2>&1
is "a purge of what never ran leaves nothing" "" "$(listing | diff "$work/before" - || true)"

# --- a first installation -------------------------------------------------------------------------------------------------
dpkg_i old outrider-coordinator
is "the coordinator is not started by its installation" "disabled inactive" "$(enabled outrider-coordinator.service) $(show outrider-coordinator.service ActiveState)"
bed systemctl enable --now --quiet outrider-coordinator.service
dpkg_i old
until_true 20 "the agent runs" active
is "journalctl knows our messages" "$(grep -c '^-- ' packaging/usr/lib/systemd/catalog/outrider.catalog)" "$(bed journalctl --list-catalog | grep -cFf <(sed -n 's/^-- //p' packaging/usr/lib/systemd/catalog/outrider.catalog))"
is "a first installation enables and starts" "enabled active enabled" "$(state) $(enabled outrider-helper.socket)"
bed sh -c 'STATE_DIRECTORY=/var/lib/outrider-coordinator outrider-coordinator token create >/etc/outrider/token 2>/dev/null &&
    chgrp outrider /etc/outrider/token && chmod 640 /etc/outrider/token &&
    printf "[coordinator]\nurls = [\"https://127.0.0.1:8440\"]\ntoken_file = \"/etc/outrider/token\"\n" >/etc/outrider/agent.toml.d/50-mine.toml'
bed systemctl reload outrider-agent.service
until_true 30 "the agent enrols" bed test -s /var/lib/outrider/identity.json
node=$(identity) mine=$(bed sh -c 'cat /etc/outrider/agent.toml.d/50-mine.toml /etc/outrider/token | sha256sum')

# --- upgrades and downgrades, in every state ------------------------------------------------------------------------------
kept() {
    is "  configuration is as it was" "$mine" "$(bed sh -c 'cat /etc/outrider/agent.toml.d/50-mine.toml /etc/outrider/token | sha256sum')"
    is "  identity is as it was" "$node" "$(identity)"
}
pid=$(main_pid)
bed sh -c 'touch /etc/outrider/agent.toml.d/50-mine.toml.dpkg-dist'
dpkg_i new
until_true 20 "the upgraded agent runs" restarted "$pid"
is "upgrade of one that runs: restarted" "enabled active 0.1.0-1 ii" "$(state) $(dpkg_version)"
grep -q '50-mine.toml.dpkg-dist is left of an upgrade' "$work/dpkg.log" || fail "the leftover is not named: $(cat "$work/dpkg.log")"
ok "a file that was put aside is named"
bed rm /etc/outrider/agent.toml.d/50-mine.toml.dpkg-dist
row "a file put aside lies in /etc/outrider" "50-mine.toml.dpkg-dist" "$(grep -o '.*is left of an upgrade' "$work/dpkg.log" | cut -c1-70)…"
kept
row "upgrade, the service runs" "dpkg -i" "restarted by the new version, identity kept"
pid=$(main_pid)
dpkg_i old
until_true 20 "the downgraded agent runs" restarted "$pid"
is "downgrade of one that runs: restarted" "enabled active 0.0.9-1 ii" "$(state) $(dpkg_version)"
kept
row "downgrade, the service runs" "dpkg -i of 0.0.9" "restarted, identity kept"
bed systemctl stop outrider-agent.service
dpkg_i new
is "upgrade of one that is stopped: stays stopped" "enabled inactive 0.1.0-1 ii" "$(state) $(dpkg_version)"
row "upgrade, the service is stopped" "systemctl stop, dpkg -i" "stays stopped"
bed systemctl disable --quiet outrider-agent.service
dpkg_i old
is "one that is disabled: stays disabled and stopped" "disabled inactive" "$(state)"
bed systemctl start outrider-agent.service
pid=$(main_pid)
dpkg_i new
until_true 20 "the upgraded agent runs" restarted "$pid"
is "one that is disabled and runs: restarted, stays disabled" "disabled active" "$(state)"
row "upgrade, the service is disabled" "systemctl disable, dpkg -i" "stays disabled; restarted where it ran"
bed systemctl stop outrider-agent.service
bed systemctl mask --quiet outrider-agent.service
dpkg_i old
is "one that is masked: stays masked" "masked inactive" "$(state)"
row "upgrade, the service is masked" "systemctl mask, dpkg -i" "stays masked and stopped"
bed systemctl unmask --quiet outrider-agent.service
bed systemctl enable --now --quiet outrider-agent.service
until_true 20 "the agent runs again" active
kept

# --- removal, reinstallation ----------------------------------------------------------------------------------------------
bed dpkg -r outrider-agent >/dev/null 2>&1 || fail "the removal failed"
is "removed: no process is left" "" "$(bed pgrep -f '^/usr/(bin|libexec/outrider)/outrider-(agent|helper)' || true)"
is "no unit and no program" "" "$(bed sh -c 'ls /usr/lib/systemd/system/outrider-agent.service /usr/lib/systemd/system/outrider-helper.* /usr/bin/outrider-agent 2>/dev/null' || true)"
kept
row "the package is removed" "dpkg -r" "stopped, gone; configuration and identity stay"
dpkg_i new
until_true 20 "the agent runs after another installation" active
is "installed again: the same state" "enabled active" "$(state)"
kept
bed systemctl disable --now --quiet outrider-agent.service
bed dpkg -r outrider-agent >/dev/null 2>&1
dpkg_i new
is "disabled, removed and installed again: stays disabled" "disabled inactive" "$(state)"
row "installed again" "dpkg -i after dpkg -r" "started if it was enabled; the same node"
bed systemctl enable --now --quiet outrider-agent.service

# --- purge ----------------------------------------------------------------------------------------------------------------
bed sh -c 'echo OUTRIDER_LOG=info >/etc/outrider/coordinator.env'
bed dpkg -P outrider-agent >/dev/null 2>&1 || fail "the purge failed"
is "the agent's purge leaves the coordinator's settings" "/etc/outrider/coordinator.env" "$(bed find /etc/outrider -mindepth 1)"
is "and the coordinator running" active "$(show outrider-coordinator.service ActiveState)"
bed dpkg -P outrider-coordinator >/dev/null 2>&1 || fail "the coordinator's purge failed"
is "after both purges the machine has the files it had before" "" "$(listing | diff "$work/before" - || true)"
row "both packages are purged" "dpkg -P" "the list of files is the one of before"

# --- inside cloud-init, as a service that the boot waits for ---------------------------------------------------------------
bed sh -c 'cat >/etc/systemd/system/first.service <<U
[Unit]
Before=multi-user.target cloud-final.service
[Service]
Type=oneshot
TimeoutStartSec=60
ExecStart=/usr/bin/dpkg -i /opt/new/outrider-agent_0.1.0-1_amd64.deb
[Install]
WantedBy=multi-user.target
U
systemctl enable --quiet first.service'
bed_off
boot
until_true 20 "the agent runs" active
is "installed by a service that the boot waits for: both end" "success enabled active" "$(show first.service Result) $(state)"
row "installed while the boot waits for it" "a oneshot before multi-user.target" "the boot ends, the agent runs"
bed sh -c 'systemctl disable --quiet first.service; rm /etc/systemd/system/first.service; dpkg -P outrider-agent' >/dev/null 2>&1

recipe Packages
bed sh -euc 'cd /opt/new && sh -eu /opt/recipe' >"$work/recipe.log" 2>&1 || { cat "$work/recipe.log"; fail "docs/install.md, Packages"; }
ok "docs/install.md, Packages"
bed dpkg -P outrider-agent >/dev/null 2>&1

. tests/suites/packages/power.sh
end_machine
