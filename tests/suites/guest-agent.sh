#!/usr/bin/env bash
# The guest agent's set-up under a real systemd, with real apt, dpkg, zypper, rpm, cloud-init and qemu-ga, in a machine of its own:
# the unprivileged agent asks, root's unit installs, and the guest agent answers at the host's end of its channel.
#
# Stand-ins, for what a container cannot have: a terminal in place of the virtio port (and the packaged agent sees /dev, for
# that terminal is not in /sys/class/virtio-ports, where it finds a real one); a unit of the package's name in
# /etc/systemd/system, since the real one is bound to a device unit; files in place of SMBIOS where the port is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "skipped: a machine of its own needs root"; exit 77; }
for tool in mmdebstrap unshare nsenter jq python3; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing (tests/run installs it as root on Debian)"; exit 77; }
done
grep -q cgroup2 /proc/mounts || { echo "skipped: no cgroup2 is mounted, which systemd needs"; exit 77; }
. tests/beds/container/bed.sh
bed_enter "$0" "$@"
bin=${OUTRIDER_BIN:-target/debug}
pool=$(tests/beds/deb/pool "$BED_TREE" qemu-guest-agent)
rpms=$(tests/beds/deb/pool "$BED_TREE" zypper rpm createrepo-c)

# --- what is counted and shown ------------------------------------------------------------------------------------------
passed=0 rows=()
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
fail() {
    printf 'FAIL  %s\n' "$1"
    bed journalctl --no-pager -o short-monotonic -u 'outrider-*' -u qemu-guest-agent 2>/dev/null | tail -n 40 || true
    exit 1
}
is() { if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: expected \"$2\", found \"$3\""; fi; }
has() { case $2 in *"$3"*) ok "$1" ;; *) fail "$1: \"$3\" is not in \"$2\"" ;; esac; }
row() { rows+=("$1|$2|$3|${4:--}"); }                               # fault, how made, reported, after
now() { date +%s%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f s", (b - a) / 1e9 }'; }
until_true() {                                                      # seconds, words, command …
    local limit=$(($(date +%s) + $1)) words=$2; shift 2
    until "$@"; do
        [ "$(date +%s)" -lt "$limit" ] || fail "$words: not within the limit"
        sleep 0.1
    done
}
show() { bed systemctl show -P "$2" "$1"; }
condition() { bed outrider-agent status 2>/dev/null | jq -r '.conditions[] | select(.type == "GuestAgentReady") | '"$1"; }
says() { [ "$(condition .reason 2>/dev/null)" = "$1" ]; }           # the agent's reason
setup() { bed cat /run/outrider-guest-agent/status.json | jq -r "$1"; }
setup_is() { [ "$(setup '"\(.state) \(.reason // "-")"' 2>/dev/null)" = "$1" ]; }
ask() { bed python3 /run/vport.py ask /run/channel.sock "$1"; }     # from the host's end
config() { bed sh -c 'cat >/etc/outrider/agent.toml.d/guest.toml'; bed systemctl reload outrider-agent.service; }
# By hand: at once, and not after what an earlier failure asked to wait for.
set_up() {
    until_true 60 "the run before ends" ended
    bed rm -f /run/outrider-guest-agent/status.json
    bed systemctl start --no-block outrider-guest-agent.service
}
idle() { [ "$(show outrider-guest-agent.service ActiveState)" = inactive ]; }
ended() { case $(show outrider-guest-agent.service ActiveState) in inactive|failed) ;; *) false ;; esac; }
# The agent would ask at once for what is taken away here.
purge() { bed systemctl stop outrider-guest-agent.path qemu-guest-agent.service; bed sh -c 'dpkg --purge qemu-guest-agent >/dev/null 2>&1'; }
sources() { bed sh -c "printf '%s\n' '$1' >/etc/apt/sources.list.d/bed.list; rm -rf /var/lib/apt/lists/*"; }
repository='deb [trusted=yes] file:/srv/pool ./'

# --- a machine without a guest agent ------------------------------------------------------------------------------------
bed_create "$BED_TREE"
packaging/install.sh --bin "$bin" "$BED_ROOT" 2>/dev/null || { echo "the programs are not built: run tests/run, or cargo build"; exit 1; }
cp -r "$pool" "$BED_ROOT/srv/pool"
cp -r "$rpms" "$BED_ROOT/srv/rpms"
install -d "$BED_ROOT/etc/outrider/agent.toml.d" "$BED_ROOT/var/lib/cloud/seed/nocloud"
printf '[checks.guest-agent]\ninterval = "1s"\n' >"$BED_ROOT/etc/outrider/agent.toml.d/often.toml"
printf '[guest_agent]\nmanage = true\n' >"$BED_ROOT/etc/outrider/agent.toml.d/guest.toml"
# The stand-in for the unit comes and goes with the real package.
printf '[Service]\nExecStart=/bin/sh -c "exec qemu-ga"\n' >"$BED_ROOT/srv/qemu-guest-agent.service"
cat >"$BED_ROOT/usr/local/bin/shadow" <<'P'
#!/bin/sh
# dpkg's own hook, run after it has done something.
unit=/etc/systemd/system/qemu-guest-agent.service
if [ -e /usr/sbin/qemu-ga ]; then [ -e $unit ] || cp /srv/qemu-guest-agent.service $unit; else rm -f $unit; fi
systemctl daemon-reload
P
chmod 755 "$BED_ROOT/usr/local/bin/shadow"
echo 'post-invoke=/usr/local/bin/shadow' >"$BED_ROOT/etc/dpkg/dpkg.cfg.d/shadow"
install -d "$BED_ROOT/etc/systemd/system/outrider-agent.service.d"
printf '[Service]\nPrivateDevices=no\n' >"$BED_ROOT/etc/systemd/system/outrider-agent.service.d/bed.conf"
printf 'instance-id: bed-guest\nlocal-hostname: bed\n' >"$BED_ROOT/var/lib/cloud/seed/nocloud/meta-data"
printf 'config: disabled\n' >"$BED_ROOT/var/lib/cloud/seed/nocloud/network-config"
cat >"$BED_ROOT/var/lib/cloud/seed/nocloud/user-data" <<'C'
#cloud-config
locale: false
ssh_deletekeys: false
ssh_genkeytypes: []
bootcmd:
  - mkdir -p /dev/virtio-ports && touch /dev/virtio-ports/org.qemu.guest_agent.0
  - /usr/libexec/outrider/outrider-guest-agent --dry-run >/run/plan-before-packages
runcmd:
  - /usr/libexec/outrider/outrider-guest-agent --dry-run >/run/plan-after-packages
C
bed_boot || exit 1
booted() { bed test -e /run/cloud-init/result.json && case $(bed systemctl is-system-running 2>/dev/null) in running|degraded) ;; *) false ;; esac; }
until_true 120 "the boot ends" booted
steps() { bed cat "/run/plan-$1-packages" | jq -r '[.steps[].kind] | join(" ")'; }
is "while cloud-init may install packages, the set-up would wait for it" "WaitForCloudInit WaitForLock InstallPackage StartUnit" "$(steps before)"
is "and by the time of runcmd no more" "WaitForLock InstallPackage StartUnit" "$(steps after)"
row "cloud-init before its packages, and after" "bootcmd, runcmd" "waits for it; does not"
bed rm /dev/virtio-ports/org.qemu.guest_agent.0
bed sh -c 'cat >/run/vport.py' <tests/suites/guest-agent/vport.py
bed sh -c 'cat >/run/holder.py' <tests/suites/guest-agent/holder.py
bed systemd-run --quiet --unit=vport python3 /run/vport.py port /dev/virtio-ports/org.qemu.guest_agent.0 /run/channel.sock
until_true 10 "the channel is there" bed test -e /dev/virtio-ports/org.qemu.guest_agent.0

# --- not without root's leave -------------------------------------------------------------------------------------------
bed sh -c 'printf "[guest_agent]\nmanage = false\n" >/etc/outrider/agent.toml.d/guest.toml'
bed systemctl preset outrider-agent.service outrider-helper.socket outrider-guest-agent.path outrider-guest-agent.timer 2>/dev/null
is "the presets enable what asks" "enabled enabled" "$(bed systemctl is-enabled outrider-guest-agent.path outrider-guest-agent.timer | xargs)"
t=$(now)
bed systemctl start outrider-agent.service outrider-guest-agent.timer
until_true 30 "the timer runs the set-up" setup_is "held -"
until_true 60 "the missing package is told" says GuestAgentNotInstalled
row "manage = false" "agent.toml.d" "GuestAgentNotInstalled" "$(took "$t")"
manage_told() { case $(condition .message) in *"leaves it at that: guest_agent.manage is not true"*) ;; *) false ;; esac; }
until_true 30 "why it is left" manage_told
ok "the condition says that guest_agent.manage is why"
bed test ! -e /usr/sbin/qemu-ga || fail "it was installed without leave"
is "the timer alone started it, which ordering cannot block" "" "$(show outrider-guest-agent.service WantedBy)"

# A daemon that asks in a loop, 2,000 times.
until_true 30 "it rests and ends" idle
starts() { bed journalctl --no-pager -o cat -u outrider-guest-agent | grep -c '^Starting' || true; }
before=$(starts) t=$(now)
bed setpriv --reuid outrider --regid outrider --clear-groups sh -c 'for i in $(seq 2000); do echo $i >/run/outrider/guest-agent.ask; done'
until_true 30 "it rests again" idle
after=$(starts)
[ $((after - before)) -ge 1 ] || fail "it was not started at all"
[ $((after - before)) -le 4 ] || fail "2,000 questions started it $((after - before)) times in $(took "$t")"
is "the path unit listens on" active "$(show outrider-guest-agent.path ActiveState)"
row "the agent asks 2,000 times in a loop" "writes to the asking file" "started $((after - before)) times, path unit active" "$(took "$t")"
ok "2,000 questions in $(took "$t") start it $((after - before)) times"

# --- the agent asks; another process holds dpkg's lock; then the guest agent is there --------------------------------------
sources "$repository"
bed systemd-run --quiet --unit=holder python3 /run/holder.py unattended-upgr /var/lib/dpkg/lock-frontend
holder=$(show holder.service MainPID)
t=$(now)
printf '[guest_agent]\nmanage = true\n' | config
until_true 90 "the agent asks, and the lock is waited for" says GuestAgentLockHeld
has "with its holder" "$(condition .message)" "/var/lib/dpkg/lock-frontend, held by process $holder (unattended-upgr)"
row "dpkg's lock is held" "fcntl(2) by a process named unattended-upgr" "GuestAgentLockHeld, by number and name" "$(took "$t")"
is "who holds it is not ended" active "$(show holder.service ActiveState)"
t=$(now)
bed systemctl stop holder.service
until_true 120 "it is installed and runs" says GuestAgentRunning
is "the condition" True "$(condition .status)"
row "and let go" "the process ends" "GuestAgentRunning" "$(took "$t")"
is "the package is the real one" "install ok installed" "$(bed dpkg-query -W -f '${Status}' qemu-guest-agent)"
is "nothing more than what it needs was installed" "libglib2.0-0 libnuma1 liburing2 qemu-guest-agent" \
    "$(bed sh -c 'grep " install " /var/log/dpkg.log' | awk '{ sub(/:.*/, "", $4); print $4 }' | sort | xargs)"
is "guest-ping is answered at the host's end" "{}" "$(ask guest-ping)"
has "and so are addresses" "$(ask guest-network-get-interfaces)" '"lo"'
is "outrider check says the same" GuestAgentRunning "$(bed outrider check --only guest-agent -o json | jq -r '.conditions[0].reason')"
until_true 30 "the set-up ends" idle
is "it did what it says" "done -" "$(setup '"\(.state) \(.reason // "-")"')"
is "no mark of an installation is left" "" "$(bed ls /var/lib/outrider-guest-agent)"
is "nothing was enabled, unmasked or written beside the package" "bed.list" "$(bed ls /etc/apt/sources.list.d | xargs)"

# --- the repository is gone ---------------------------------------------------------------------------------------------
purge
sources 'deb [trusted=yes] http://user:s3cret@127.0.0.1:9/debian ./'
t=$(now)
set_up
until_true 60 "no repository can be reached" setup_is "failed GuestAgentNoRepository"
until_true 30 "it has ended" idle
bed systemctl start outrider-guest-agent.path
bed setpriv --reuid outrider --regid outrider --clear-groups sh -c 'echo again >/run/outrider/guest-agent.ask'
sleep 1
until_true 30 "asked again it rests, and ends" idle
is "too early it tries nothing" 1 "$(setup .failures)"
bed systemctl stop outrider-guest-agent.path
until_true 120 "that no repository can be reached is told" says GuestAgentNoRepository
has "with apt's words" "$(condition .message)" "apt-get update"
case $(condition .message)$(bed journalctl --no-pager -u outrider-guest-agent) in *s3cret*) fail "the repository's password is told" ;; esac
ok "and without the repository's password, there and in the journal"
has "and when it tries again" "$(condition .message)" "tries again at $(setup .nextAttemptAt)"
row "the repository is gone" "sources.list names a closed port" "GuestAgentNoRepository" "$(took "$t")"
is "the rest of the machine goes on" "running" "$(bed systemctl is-system-running)"

# --- packages on the machine, no network --------------------------------------------------------------------------------
t=$(now)
bed sh -c 'mkdir -p /opt/guest-agent && cp /srv/pool/*.deb /opt/guest-agent/ && chmod 777 /opt/guest-agent'
printf '[guest_agent]\nmanage = true\npackage_file = "/opt/guest-agent"\n' | config
set_up
until_true 60 "a folder that anybody may write is refused" says GuestAgentSetupHeld
has "with its mode" "$(condition .message)" "/opt/guest-agent may be written by others (mode 0777)"
row "package_file in a folder that others may write" "chmod 777" "GuestAgentSetupHeld" "$(took "$t")"
bed chmod 755 /opt/guest-agent
t=$(now)
set_up
until_true 120 "it is installed from there" says GuestAgentRunning
is "and answers" "{}" "$(ask guest-ping)"
row "no repository, packages on the machine" "package_file = a folder of root's" "GuestAgentRunning" "$(took "$t")"

# --- interrupted in the middle, and finished -------------------------------------------------------------------------------
purge
sources "$repository"
printf '[guest_agent]\nmanage = true\n' | config
bed sh -c 'cat >/usr/local/bin/hold && chmod 755 /usr/local/bin/hold' <<'P'
#!/bin/sh
# dpkg's own hook, run before it configures what it has unpacked.
[ "$DPKG_HOOK_ACTION" = configure ] && [ ! -e /run/let-go ] && { touch /run/held; sleep 3600; }
exit 0
P
bed sh -c 'echo "pre-invoke=/usr/local/bin/hold" >/etc/dpkg/dpkg.cfg.d/hold'
t=$(now)
set_up
until_true 60 "dpkg has unpacked" bed test -e /run/held
until_true 60 "meanwhile it is said to be at work" says GuestAgentInstalling
bed systemctl kill --signal=KILL outrider-guest-agent.service
dead() { [ "$(show outrider-guest-agent.service ActiveState)" = failed ]; }
until_true 30 "all of it is dead" dead
is "half a package is left" "install ok unpacked" "$(bed dpkg-query -W -f '${Status}' qemu-guest-agent)"
is "and the mark that it was ours" installing "$(bed ls /var/lib/outrider-guest-agent)"
bed touch /run/let-go
bed systemctl stop qemu-guest-agent.service
set_up
until_true 90 "the next run finishes it" says GuestAgentRunning
is "whole" "install ok installed" "$(bed dpkg-query -W -f '${Status}' qemu-guest-agent)"
is "by dpkg --configure, for it was ours" 1 "$(bed journalctl --no-pager -o cat -u outrider-guest-agent | grep -c -- '--configure -a')"
until_true 30 "and the mark goes" idle
is "with it" "" "$(bed ls /var/lib/outrider-guest-agent)"
row "killed in the middle of the installation" "SIGKILL to the whole unit, dpkg unpacked" "finished by the next run" "$(took "$t")"
bed rm /etc/dpkg/dpkg.cfg.d/hold

# --- calls refused ----------------------------------------------------------------------------------------------------------
bed sh -c 'mkdir -p /etc/qemu && printf "[general]\nblock-rpcs=guest-exec,guest-network-get-interfaces\n" >/etc/qemu/qemu-ga.conf; systemctl restart qemu-guest-agent.service'
t=$(now)
until_true 120 "that it refuses a needed call is told" says GuestAgentCallsRefused
has "with the call and the file" "$(condition .message)" "guest-network-get-interfaces (block-rpcs of /etc/qemu/qemu-ga.conf)"
case $(ask guest-network-get-interfaces || true) in *disabled*|*"not found"*|*"not been"*) ok "the real agent does refuse it" ;; *) fail "it answers: $(ask guest-network-get-interfaces)" ;; esac
row "guest-network-get-interfaces is blocked" "qemu-ga.conf, read by the real qemu-ga" "GuestAgentCallsRefused error" "$(took "$t")"
bed sh -c 'rm /etc/qemu/qemu-ga.conf; printf "[Service]\nExecStart=/bin/sh -c \"exec qemu-ga -b guest-exec,guest-get-osinfo\"\n" >/etc/systemd/system/qemu-guest-agent.service
    systemctl daemon-reload && systemctl restart qemu-guest-agent.service'
line_told() { case $(condition .message) in *"guest-get-osinfo (-b of /proc/"*) ;; *) false ;; esac; }
t=$(now)
until_true 120 "and so is one of the command line" line_told
is "as a warning" "True warn" "$(condition '"\(.status) \(.severity)"')"
row "guest-get-osinfo is blocked" "-b of its command line" "GuestAgentCallsRefused warn" "$(took "$t")"
bed sh -c 'printf "[Service]\nExecStart=/bin/sh -c \"exec qemu-ga\"\n" >/etc/systemd/system/qemu-guest-agent.service
    systemctl daemon-reload && systemctl restart qemu-guest-agent.service'
until_true 120 "the cure is told" says GuestAgentRunning

# --- masked -------------------------------------------------------------------------------------------------------------
bed sh -c 'rm /etc/systemd/system/qemu-guest-agent.service && systemctl daemon-reload && systemctl stop qemu-guest-agent.service; systemctl --quiet mask qemu-guest-agent.service; pkill -x qemu-ga || true'
t=$(now)
until_true 150 "the mask is told" says GuestAgentMasked
set_up
until_true 30 "the set-up leaves it" setup_is "held -"
has "and says so" "$(setup .message)" "is masked, and is not unmasked"
is "it stays masked" masked "$(bed systemctl is-enabled qemu-guest-agent.service || true)"
row "the unit is masked" "systemctl mask" "GuestAgentMasked, stays masked" "$(took "$t")"
bed sh -c 'systemctl --quiet unmask qemu-guest-agent.service && cp /srv/qemu-guest-agent.service /etc/systemd/system/ && systemctl daemon-reload'

# --- real zypper and rpm --------------------------------------------------------------------------------------------------
. tests/suites/guest-agent/zypper.sh

# --- no channel ---------------------------------------------------------------------------------------------------------
bed systemctl stop vport.service qemu-guest-agent.service outrider-agent.service
bed sh -c 'rm -f /dev/virtio-ports/org.qemu.guest_agent.0
    mkdir /run/no-container && : >/run/no-container/environ && : >/run/systemd/container && mount --bind /run/no-container/environ /proc/1/environ &&
    mount -t tmpfs tmpfs /sys/devices/virtual && mkdir -p /sys/devices/virtual/dmi/id && echo KubeVirt >/sys/devices/virtual/dmi/id/sys_vendor
    printf "[node]\nprofile = \"harvester-vm\"\n" >/etc/outrider/agent.toml.d/node.toml'
# What it finds is its exit code.
said=$(bed outrider check --only guest-agent -o json | jq -r '.conditions[0] | "\(.reason) \(.severity) \(.advice)"' || true)
has "the missing channel is told" "$said" "GuestAgentPortMissing error"
has "with the setting of the VM" "$said" "channel org.qemu.guest_agent.0 must be added to the VM on the host"
set_up
until_true 30 "the set-up does nothing about it" setup_is "held -"
has "and names what is missing as well" "$(setup .message)" "the VM lacks the virtio channel org.qemu.guest_agent.0"
row "the VM has no channel" "no port, SMBIOS says KubeVirt (stand-in)" "GuestAgentPortMissing, names the VM's setting"
until_true 30 "it ends" idle
is "no unit of ours failed" "" "$(bed systemctl list-units --failed --plain --no-legend 'outrider-*')"

bed_off
{
    echo "fault|made by|reported|after"
    printf '%s\n' "${rows[@]}"
} | awk -F'|' '{ printf "  %-46s %-48s %-44s %s\n", $1, $2, $3, $4 }'
echo "test result: ok. $passed passed; 0 failed;"
