#!/usr/bin/env bash
# The packaged units under a real systemd, in a machine of their own: laid out as a package would, started from
# cloud-init, run as the packaged user, broken and cured. Needs root, mmdebstrap and util-linux.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "skipped: a machine of its own needs root"; exit 77; }
for tool in mmdebstrap unshare nsenter jq openssl; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing (tests/run installs it as root on Debian)"; exit 77; }
done
grep -q cgroup2 /proc/mounts || { echo "skipped: no cgroup2 is mounted, which systemd needs"; exit 77; }
. tests/beds/container/bed.sh
bed_enter "$0" "$@"
bin=${OUTRIDER_BIN:-target/debug}

# --- what is counted and shown ------------------------------------------------------------------------------------------
passed=0 rows=()
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
fail() {
    printf 'FAIL  %s\n' "$1"
    bed journalctl --no-pager -o short-monotonic -u outrider-agent -u outrider-helper 2>/dev/null | tail -n 25 || true
    exit 1
}
is() { if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: expected \"$2\", found \"$3\""; fi; }
row() { rows+=("$1|$2|$3|${4:--}|${5:--}"); }                       # fault, how made, seen, to raise, to clear
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
active() { [ "$(show outrider-agent.service ActiveState)" = active ]; }
as_agent() { bed setpriv --reuid outrider --regid outrider --clear-groups "$@"; }
ask() { as_agent python3 /run/ask.py "$@"; }
status() { bed outrider-agent status 2>/dev/null; }
condition() {                                                       # type, jq filter over it; an error while the agent is away
    status | jq -e --arg t "$1" '.conditions[] | select(.type == $t)' | jq -e "$2" >/dev/null
}

# --- a machine with RKE2's files, and a first boot that starts the agent ------------------------------------------------
bed_create "$BED_TREE"
packaging/install.sh --bin "$bin" "$BED_ROOT" 2>/dev/null || { echo "the programs are not built: run tests/run, or cargo build"; exit 1; }

rke2=$BED_ROOT/var/lib/rancher/rke2 etcd=/var/lib/rancher/rke2/server/tls/etcd
install -d -m 0755 "$BED_ROOT/var/lib/rancher" "$rke2"
install -d -m 0700 "$rke2/server" "$rke2/server/tls" "$rke2/server/tls/etcd" "$rke2/server/db" "$rke2/server/db/etcd" \
    "$rke2/server/db/etcd/member" "$rke2/server/db/etcd/member/wal" "$rke2/server/db/snapshots"
printf 'name: bed-1a2b3c4d\nelection-timeout: 4000\nauth-token: s3cret\n' >"$rke2/server/db/etcd/config"
head -c 20480 /dev/zero >"$rke2/server/db/snapshots/etcd-snapshot-bed-1700000000"
chmod 0600 "$rke2/server/db/etcd/config" "$rke2/server/db/snapshots"/*
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=etcd-client \
    -keyout "$BED_ROOT/$etcd/client.key" -out "$BED_ROOT/$etcd/client.crt" 2>/dev/null
cp "$BED_ROOT/$etcd/client.crt" "$BED_ROOT/$etcd/server-ca.crt"
chmod 0600 "$BED_ROOT/$etcd/client.key"; chmod 0644 "$BED_ROOT/$etcd"/*.crt
# A server's and an agent's certificates, with the modes they have there.
tls=/var/lib/rancher/rke2/server/tls agent_tls=/var/lib/rancher/rke2/agent
install -d -m 0755 "$rke2/agent" "$rke2/agent/pod-manifests" "$rke2/data" "$rke2/data/v1.33.1-rke2r1-eef53a0d1ec2"
ln -s data/v1.33.1-rke2r1-eef53a0d1ec2 "$rke2/bin"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3000 -subj /CN=rke2-server-ca@1 \
    -keyout "$BED_ROOT/$tls/server-ca.key" -out "$BED_ROOT/$tls/server-ca.crt" 2>/dev/null
for pair in "$tls/client-admin" "$agent_tls/serving-kubelet"; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=${pair##*/}" \
        -keyout "$BED_ROOT/$pair.key" -out "$BED_ROOT/run.csr" 2>/dev/null
    openssl x509 -req -in "$BED_ROOT/run.csr" -CA "$BED_ROOT/$tls/server-ca.crt" -CAkey "$BED_ROOT/$tls/server-ca.key" -CAcreateserial \
        -days 365 -out "$BED_ROOT/$pair.crt" 2>/dev/null
done
rm -f "$BED_ROOT/run.csr" "$BED_ROOT/$tls"/*.srl
cp "$BED_ROOT/$tls/server-ca.crt" "$BED_ROOT/$agent_tls/server-ca.crt"
printf '{}' >"$BED_ROOT/$tls/dynamic-cert.json"
chmod 0600 "$BED_ROOT/$tls"/*.key "$BED_ROOT/$tls/dynamic-cert.json" "$BED_ROOT/$agent_tls"/*.key "$BED_ROOT/$agent_tls"/*.crt
install -d -m 0755 "$BED_ROOT/etc/rancher/rke2"
printf 'token: K10s3cret::server:s3cret\nnode-ip: 10.0.0.1\n' >"$BED_ROOT/etc/rancher/rke2/config.yaml"
chmod 0600 "$BED_ROOT/etc/rancher/rke2/config.yaml"
ln -s /etc/shadow "$BED_ROOT/$etcd/planted.crt"

seed=$BED_ROOT/var/lib/cloud/seed/nocloud
install -d "$seed"
printf 'instance-id: bed-1\nlocal-hostname: bed\n' >"$seed/meta-data"
printf 'config: disabled\n' >"$seed/network-config"
# Without --no-block: the worst that userdata can do to a boot.
cat >"$seed/user-data" <<'C'
#cloud-config
locale: false
ssh_deletekeys: false
ssh_genkeytypes: []
runcmd:
  - [systemctl, preset, outrider-agent.service, outrider-helper.socket]
  - [systemctl, start, outrider-helper.socket]
  - [systemctl, start, outrider-agent.service]
C

t=$(now)
bed_boot || exit 1
bed sh -c 'cat >/run/ask.py' <tests/suites/unit/ask.py
done_booting() { bed test -e /run/cloud-init/result.json && case $(bed systemctl is-system-running 2>/dev/null) in running|degraded) ;; *) false ;; esac; }
until_true 120 "cloud-init starts the agent and both end" done_booting
until_true 20 "the agent is ready" active
row "userdata starts the agent and waits" "runcmd: systemctl start" "boot ends, unit active" "$(took "$t")"
ok "started by cloud-init without --no-block, the boot ends and the agent is ready"
is "cloud-init itself had no error" 0 "$(bed cat /run/cloud-init/result.json | jq '.v1.errors | length')"
is "no unit of ours failed" "" "$(bed systemctl list-units --failed --plain --no-legend 'outrider-*')"

# --- the units, by systemd's own judgement ------------------------------------------------------------------------------
for unit in outrider-agent.service outrider-helper.socket outrider-helper.service outrider-guest-agent.service outrider-guest-agent.path \
    outrider-guest-agent.timer outrider-coordinator.service; do
    said=$(bed systemd-analyze verify "/usr/lib/systemd/system/$unit" 2>&1 | grep -i outrider | grep -v 'Command.*man' || true)
    is "systemd-analyze verify $unit" "" "$said"
done
# In tenths. The agent's is higher for the reasons its unit gives: without them it could not tell a clock's state; and the set-up's,
# which installs packages, for its own. Of a unit without default dependencies, as the agent's is, what confines the file system is
# not counted: counted, it would be 1.8.
for unit in outrider-agent=19 outrider-helper=15 outrider-coordinator=15 outrider-guest-agent=75; do
    limit=${unit#*=} unit=${unit%=*}
    said=$(bed systemd-analyze security --no-pager --offline=true --threshold="$limit" "/usr/lib/systemd/system/$unit.service") \
        || fail "$unit is too exposed: $(tail -n 1 <<<"$said")"
    ok "$unit: $(tail -n 1 <<<"$said" | sed -E 's/.*: ([0-9.]+) .*/exposure \1/'), at most $((limit / 10)).$((limit % 10))"
done

# --- the daemon as packaged ---------------------------------------------------------------------------------------------
pid=$(show outrider-agent.service MainPID)
is "runs as its own user" "outrider outrider" "$(bed ps -o user=,group= -p "$pid" | xargs)"
proc() { bed awk -v k="$1:" '$1 == k { print $2 }' "/proc/$pid/status"; }
for set in CapInh CapPrm CapEff CapBnd CapAmb; do is "$set is empty" 0000000000000000 "$(proc $set)"; done
is "no new privileges" 1 "$(proc NoNewPrivs)"
is "system calls are filtered" 2 "$(proc Seccomp)"
is "the state folder is the daemon's alone" "700 outrider" "$(bed stat -c '%a %U' /var/lib/outrider)"
as_agent test -r "$etcd/client.key" && fail "the daemon's user can read RKE2's key by itself"
ok "the daemon's user cannot read RKE2's key (0600 root, in folders of 0700)"

ids=$(bed journalctl -u outrider-agent -o json --no-pager | jq -r 'select(.OUTRIDER_TYPE != null) | .MESSAGE_ID' | sort -u)
[ -n "$ids" ] || fail "no transition in the journal"
for id in $ids; do grep -q "$id" protocol/src/reasons.rs || fail "MESSAGE_ID $id is in no list"; done
ok "every transition in the journal carries the MESSAGE_ID of its reason ($(wc -w <<<"$ids") kinds)"
t=$(now)
until_true 60 "cloud-init's end is reported" condition CloudInitSucceeded '.status == "True"'
row "cloud-init was still running" "it started the agent" "CloudInitSucceeded=Unknown" "-" "$(took "$t")"
# The clock is asked through the system-call filter, processes and disks through the sandbox.
read_facts() {
    facts=$(as_agent python3 -c 'import socket
s = socket.socket(socket.AF_UNIX); s.connect("/run/outrider/agent.sock"); s.sendall(b"{\"ask\":\"facts\"}\n")
print(s.makefile().read())')
    [ "$(fact '.checks | has("host") and has("clock") and has("cloudInit") and has("guestAgent") and has("etcd") and has("certificates")')" = true ]
}
fact() { jq -r "$1" <<<"$facts"; }
until_true 60 "every check has been read" read_facts
is "adjtimex(2) may be asked" known "$(fact '.checks.clock.value.kernel.state')"
is "the container is recognised" outrider-bed "$(fact '.checks.host.value.virtualization.value')"
is "and so no guest agent is expected" notApplicable "$(fact '.checks.guestAgent.state')"
is "file systems are seen through the sandbox" known "$(fact '.checks.host.value.filesystems.state')"
is "interfaces can be listed" known "$(fact '.checks.host.value.interfaces.state')"
code=0; bed cloud-init status >/dev/null || code=$?
is "cloud-init's exit code is derived as it gives it" "$code" "$(fact '.checks.cloudInit.value.exitCode')"
is "cloud-init's source" DataSourceNoCloud "$(fact '.checks.cloudInit.value.datasource')"
version=$(bed cloud-init --version 2>&1 | awk '{ print $2 }')
is "cloud-init's version" "$version" "$(fact '.checks.cloudInit.value.version' | sed 's/^$/'"none, not $version"'/')"

# --- the root helper ----------------------------------------------------------------------------------------------------
sum() { sha256sum "$BED_ROOT/$1" | cut -d' ' -f1; }
t=$(now)
is "the helper passes RKE2's client key" "$(bed sha256sum $etcd/client.key | cut -d' ' -f1)" "$(ask open $etcd/client.key)"
row "RKE2's key is root's alone" "0600 root:root in 0700" "descriptor by the helper" "$(took "$t")"
is "and the names beside it" "client.crt client.key planted.crt server-ca.crt" "$(ask list $etcd)"
is "RKE2's configuration without its token" '{"node-ip":"10.0.0.1"}' "$(ask open /etc/rancher/rke2/config.yaml)"
is "a path off the list" notAllowed "$(ask open /etc/shadow)"
db=/var/lib/rancher/rke2/server/db
is "of etcd's configuration who the member means to be" '{"election-timeout":4000,"name":"bed-1a2b3c4d"}' "$(ask open $db/etcd/config)"
is "snapshots by name and size" etcd-snapshot-bed-1700000000:20480 "$(ask describe $db/snapshots)"
is "and none of them opened" notAllowed "$(ask open $db/snapshots/etcd-snapshot-bed-1700000000)"
is "RKE2's join token" notAllowed "$(ask open /var/lib/rancher/rke2/server/token)"
is "a planted link to /etc/shadow" symlink "$(ask open $etcd/planted.crt)"
row "a link planted beside the certificates" "planted.crt -> /etc/shadow" "refused: symlink"
is "nothing there" notFound "$(ask open $etcd/missing.crt)"
is "another user of the group is refused by uid" notYou \
    "$(bed setpriv --reuid nobody --regid outrider --clear-groups python3 /run/ask.py open $etcd/client.key)"
if bed setpriv --reuid nobody --regid nogroup --clear-groups python3 /run/ask.py open $etcd/client.key 2>/dev/null; then
    fail "a stranger may connect"
fi
ok "a stranger cannot even connect"
helper=$(show outrider-helper.service MainPID)
is "the helper holds one capability" 0000000000000004 "$(bed awk '$1 == "CapBnd:" { print $2 }' "/proc/$helper/status")"
etcd_detail=$(fact '.checks.etcd | tostring')
grep -q 'only root may read it\|may not open' <<<"$etcd_detail" && fail "the etcd check was refused a file: $etcd_detail"
certificate_file() { fact ".checks.certificates.value.files[] | select(.path | endswith(\"$1\")) | $2"; }
is "the certificates check reads a server's through the helper" known "$(certificate_file server/tls/client-admin.crt .certificates.state)"
is "and an agent's, which is root's alone" known "$(certificate_file agent/serving-kubelet.crt .certificates.state)"
is "and who signed them" "$tls/server-ca.crt" "$(certificate_file server/tls/client-admin.crt .issuer.value)"
is "and the version, on which renewal hangs" v1.33.1-rke2r1 "$(fact '.checks.certificates.value.version.value')"
for key in $tls/server-ca.key $tls/dynamic-cert.json; do
    is "no key beside them: ${key##*/}" notAllowed "$(ask open $key)"
done
# Of a key beside a certificate the fingerprint of its public half comes, and nothing else.
for key in $tls/client-admin.key $agent_tls/serving-kubelet.key; do
    given=$(ask open $key)
    [ "$given" = notAllowed ] || grep -qE '^[0-9a-f]{64}$' <<<"$given" || fail "more than a fingerprint of ${key##*/}: $given"
    [ "$given" != "$(bed sha256sum "$key" | cut -d' ' -f1)" ] || fail "the key itself is given: ${key##*/}"
done
is "the etcd check finds RKE2 and reads its key through the helper" rke2 "$(fact '.checks.etcd.value.distribution // .checks.etcd.detail')"
is "and its member's configuration, data folder and snapshots" "bed-1a2b3c4d 4000 true 1" "$(fact '.checks.etcd.value |
    "\(.expected.value.name) \(.electionTimeoutMs) \(.dataFolder.value.freeBytes > 0) \(.snapshots.value.count)"')"

bed sh -c 'mkdir -p /disk2 /srv/pki && mv /var/lib/rancher/rke2 /disk2/rke2 && ln -s /disk2/rke2 /var/lib/rancher/rke2 &&
    echo one >/srv/pki/ca.pem && chmod 600 /srv/pki/ca.pem &&
    echo /srv/pki/ca.pem >/etc/outrider/helper.d/ours.conf && echo /etc/shadow >/etc/outrider/helper.d/open.conf && chmod 666 /etc/outrider/helper.d/open.conf &&
    systemctl --quiet stop outrider-helper.service 2>/dev/null'
is "RKE2's folder moved to another disk behind a link" "$(bed sha256sum /disk2/rke2/server/tls/etcd/client.key | cut -d' ' -f1)" "$(ask open $etcd/client.key)"
is "root's own addition" "$(bed sha256sum /srv/pki/ca.pem | cut -d' ' -f1)" "$(ask open /srv/pki/ca.pem)"
is "an addition that anybody could have written" notAllowed "$(ask open /etc/shadow)"
bed journalctl --no-pager -o cat -u outrider-helper | grep -q 'open.conf is not used' || fail "the unsafe addition is not named in the journal"
row "helper.d file that anybody may write" "chmod 666" "not used, named in the journal"

# --- faults, made and cured ---------------------------------------------------------------------------------------------
restarts() { show outrider-agent.service NRestarts; }
restarted() { [ "$(restarts)" -gt "$before" ] && active; }
before=$(restarts) t=$(now)
bed kill -STOP "$pid"
until_true 120 "the watchdog restarts a stopped agent" restarted
row "the loop stands still" "SIGSTOP" "watchdog, restarted" "$(took "$t")"
ok "a stopped agent is restarted by the watchdog"
bed journalctl --no-pager -o cat -u outrider-agent | grep -qi 'watchdog timeout' || fail "not by the watchdog"

before=$(restarts) t=$(now)
bed kill -KILL "$(show outrider-agent.service MainPID)"
until_true 60 "a killed agent is restarted" restarted
row "the daemon is killed" "SIGKILL" "restarted" "$(took "$t")"
ok "a killed agent is restarted"
bed test -S /run/outrider/helper.sock || fail "the helper's socket went with the agent"
ok "the helper's socket outlives the agent"

until_true 30 "the agent answers" condition ConfigValid '.status == "True"'
bed sh -c 'echo "[coordinator]
url = [\"https://typo.example\"]" >/etc/outrider/agent.toml.d/bad.toml'
t=$(now)
bed systemctl reload outrider-agent
until_true 60 "a bad configuration is reported" condition ConfigValid '.status == "False"'
raised=$(took "$t") t=$(now)
bed rm /etc/outrider/agent.toml.d/bad.toml
bed systemctl reload outrider-agent
until_true 60 "the cure is reported" condition ConfigValid '.status == "True"'
row "an unknown key in a drop-in" "reload" "ConfigValid=False" "$raised" "$(took "$t")"
ok "reload: a bad drop-in is ConfigValid=False, its removal clears it"

# --- rancher-system-agent beside it -------------------------------------------------------------------------------------
. tests/suites/unit/rancher-system-agent.sh

# --- the packaged coordinator takes the packaged agent in ---------------------------------------------------------------
t=$(now)
bed systemctl start outrider-coordinator.service || fail "the coordinator does not start: $(bed journalctl --no-pager -o cat -n 3 -u outrider-coordinator)"
ok "the coordinator starts and is ready"
service=$(show outrider-coordinator.service MainPID)
is "as a user of its own" outrider-coordinator "$(bed ps -o user:32= -p "$service" | xargs)"
is "without capabilities" 0000000000000000 "$(bed awk '$1 == "CapBnd:" { print $2 }' "/proc/$service/status")"
bed sh -c 'STATE_DIRECTORY=/var/lib/outrider-coordinator outrider-coordinator token create >/etc/outrider/token 2>/run/token.err &&
    chgrp outrider /etc/outrider/token && chmod 640 /etc/outrider/token &&
    printf "[coordinator]\nurls = [\"https://127.0.0.1:%s\"]\ntoken_file = \"/etc/outrider/token\"\n" "$1" >/etc/outrider/agent.toml.d/coordinator.toml' \
    sh "$(bed ss -Hltnp | awk '/outrider-coordi/ { sub(/.*:/, "", $4); print $4; exit }')" || fail "no token: $(bed cat /run/token.err)"
bed systemctl reload outrider-agent
until_true 60 "the agent enrols and reports" condition ReportsDelivered '.status == "True" and .reason != "NoCoordinator"'
row "a token is put beside the agent" "drop-in, reload" "enrolled, ReportsDelivered=True" "-" "$(took "$t")"
ok "the packaged agent enrols at the packaged coordinator"
is "the agent's key is its alone" "600 outrider" "$(bed find /var/lib/outrider -name '*.key' -exec stat -c '%a %U' {} + | sort -u)"

idle() { [ "$(show outrider-helper.service ActiveState)" = inactive ]; }
bed systemctl stop outrider-agent.service >/dev/null
t=$(now)
until_true 90 "the helper ends when nobody asks" idle
row "nobody asks the helper" "30 s" "ended, socket stays" "$(took "$t")"
is "and is there again at the next question" "$(bed sha256sum /srv/pki/ca.pem | cut -d' ' -f1)" "$(ask open /srv/pki/ca.pem)"

bed systemctl start outrider-agent.service
until_true 30 "the agent is ready again" active
t=$(now)
bed systemctl stop outrider-agent.service
took=$(took "$t")
awk -v s="${took% s}" 'BEGIN { exit !(s <= 5) }' || fail "SIGTERM took $took, more than 5 s"
is "SIGTERM ends in success" success "$(show outrider-agent.service Result)"
row "the service is stopped" "SIGTERM" "drained, success" "$took"

# --- removal, a second install, and purge --------------------------------------------------------------------------------
ours() { bed find / -xdev -name '*outrider*' -prune -not -path '/opt/*' -not -path '/run/*' -not -path '/var/log/*' | sort | xargs; }
key() { bed sh -c 'sha256sum /var/lib/outrider/identity.key' | cut -d' ' -f1; }
node_uid() { status | jq -r .node.uid; }
reports() { condition ReportsDelivered '.reason == "ReportsFlow"'; }
cp -r packaging "$BED_ROOT/opt/packaging"
bed systemctl start outrider-agent.service
until_true 60 "the agent reports again" reports
before_key=$(key) before_uid=$(node_uid) t=$(now)
is "the agent is enabled before" enabled "$(bed systemctl is-enabled outrider-agent.service)"
bed sh /opt/packaging/uninstall.sh / || fail "the removal failed"
row "the programs are removed" "uninstall.sh" "stopped, disabled, state kept" "$(took "$t")"
for unit in outrider-agent.service outrider-helper.socket outrider-helper.service outrider-guest-agent.path outrider-guest-agent.timer \
    outrider-guest-agent.service outrider-coordinator.service; do
    is "$unit is gone" "not-found inactive" "$(show $unit LoadState) $(show $unit ActiveState)"
done
is "no process of ours runs on" "" "$(bed pgrep -a outrider || true)"
is "no socket is left" "" "$(bed sh -c 'ls -A /run/outrider 2>/dev/null' || true)"
is "configuration and state stay, and nothing else" "/etc/outrider /var/lib/outrider /var/lib/outrider-coordinator" "$(ours)"
is "the node's key stays, for its user alone" "$before_key 600 outrider" "$(key) $(bed stat -c '%a %U' /var/lib/outrider/identity.key)"
is "a second removal is no error" 0 "$(bed sh /opt/packaging/uninstall.sh / >/dev/null 2>&1; echo $?)"

packaging/install.sh --bin "$bin" "$BED_ROOT" 2>/dev/null
bed sh -c 'systemctl daemon-reload && systemd-sysusers && systemd-tmpfiles --create outrider.conf &&
    systemctl --quiet preset outrider-agent.service outrider-helper.socket &&
    systemctl start outrider-coordinator.service outrider-helper.socket outrider-agent.service' || fail "the second install does not start"
t=$(now)
until_true 60 "the agent reports after the second install" reports
is "it is the same node as before" "$before_key $before_uid" "$(key) $(node_uid)"
row "and installed again" "install.sh" "the same node reports" "$(took "$t")"

bed sh /opt/packaging/uninstall.sh --purge / || fail "the purge failed"
is "after a purge nothing is left" "" "$(ours)"
is "but the users, whose numbers nobody may inherit" "outrider outrider-coordinator" "$(bed getent passwd outrider outrider-coordinator | cut -d: -f1 | xargs)"
row "everything is purged" "uninstall.sh --purge" "configuration and state gone"

bed_off
{
    echo "fault|made by|seen|to raise|to clear"
    printf '%s\n' "${rows[@]}"
} | awk -F'|' '{ printf "  %-42s %-30s %-36s %-9s %s\n", $1, $2, $3, $4, $5 }'
echo "test result: ok. $passed passed; 0 failed;"
