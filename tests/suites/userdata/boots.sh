# First boots with what `outrider userdata` writes, in a machine of its own.   sourced by userdata.sh
#   offline: merged into a pool's userdata, the agent from an archive in the image, enrolled at a real coordinator
#   download: the archive from a server whose CA the token pins; a wrong pin and a wrong SHA-256 are refused first
until_true() {                                                      # seconds, words, command …
    local limit=$(($(date +%s) + $1)) words=$2; shift 2
    until "$@"; do
        [ "$(date +%s)" -lt "$limit" ] || { bed journalctl --no-pager -n 30 -o short-monotonic; fail "$words: not within the limit"; }
        sleep 0.2
    done
}
booted() { bed test -e /run/cloud-init/result.json && case $(bed systemctl is-system-running 2>/dev/null) in running|degraded) ;; *) false ;; esac; }
show() { bed systemctl show -P "$2" "$1"; }
active() { [ "$(show outrider-agent.service ActiveState)" = active ]; }
stored_report() {                                                   # seconds since 1970
    python3 - "$state/coordinator.db" <<'P'
import sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
at = db.execute("SELECT MIN(received_at) FROM events JOIN origins ON origins.id = origin WHERE name = 'node1'").fetchone()[0]
print(at / 1e3) if at else sys.exit(1)
P
}
machine() {                                                         # name
    bed_create "$BED_TREE"
    # The bed's own way out asks for the exit code.
    trap 'code=$?; rm -rf "$work"; (exit $code); bed_clean' EXIT
    install -d "$BED_ROOT/var/lib/cloud/seed/nocloud"
    printf 'instance-id: %s\nlocal-hostname: %s\n' "$1" "$1" >"$BED_ROOT/var/lib/cloud/seed/nocloud/meta-data"
    printf 'config: disabled\n' >"$BED_ROOT/var/lib/cloud/seed/nocloud/network-config"
    seed=$BED_ROOT/var/lib/cloud/seed/nocloud/user-data
}
mkdir "$work/tree"
packaging/install.sh --bin "$bin" "$work/tree" 2>/dev/null || fail "the programs are not built: run tests/run, or cargo build"
# The release sums up its files; unoptimised and with what a debugger wants that takes its time.
strip "$work"/tree/usr/bin/* "$work"/tree/usr/libexec/outrider/*
# Of a node's archive it is no part.
cp /bin/true "$work/tree/usr/bin/outrider-coordinator"
tar -czf "$work/outrider.tar.gz" --owner=0 --group=0 -C "$work/tree" usr

cat >"$work/theirs.yaml" <<'Y'
#cloud-config
# Of the pool.
locale: false
ssh_deletekeys: false
ssh_genkeytypes: []
write_files:
  - path: /usr/local/custom_script/install.sh
    permissions: "0644"
    content: |
      date +%s >/run/rancher-ran
      systemctl show -P ActiveState outrider-install.service >/run/installing
runcmd:
  - touch /run/theirs-ran
  - sh /usr/local/custom_script/install.sh
Y

# --- offline, merged into a pool's userdata -----------------------------------------------------------------------------
machine node1
cp "$work/outrider.tar.gz" "$BED_ROOT/opt/"
cp "$bin/outrider-coordinator" "$BED_ROOT/opt/"
state=$BED_ROOT/var/lib/coordinator
mkdir -m 700 "$state"
# A first start makes its CA; then it may be asked while it does not run.
"$bin/outrider-coordinator" serve --listen 127.0.0.1:0 --state-dir "$state" >"$work/first-start" 2>&1 &
first=$!
for _ in $(seq 100); do [ -s "$state/operator.token" ] && break; sleep 0.1; done
kill $first; wait $first || true
"$bin/outrider-coordinator" token create --state-dir "$state" >"$work/node.token" 2>"$work/token.err" || fail "no token: $(cat "$work/token.err")"
cat >"$BED_ROOT/etc/systemd/system/coordinator.service" <<'U'
[Service]
ExecStart=/opt/outrider-coordinator serve --listen 127.0.0.1:8440 --state-dir /var/lib/coordinator
[Install]
WantedBy=multi-user.target
U
chroot "$BED_ROOT" systemctl --quiet enable coordinator.service
"$outrider" userdata merge "$work/theirs.yaml" --profile rancher-ha-server --coordinator https://127.0.0.1:8440 \
    --token-file "$work/node.token" --agent /opt/outrider.tar.gz --guest-agent image --out "$seed"
"$outrider" userdata lint --strict --platform nocloud "$seed" >"$work/lint.out" || fail "$(cat "$work/lint.out")"
bed_boot || exit 1
until_true 120 "the boot ends" booted
is "cloud-init had no error" 0 "$(bed cat /run/cloud-init/result.json | jq '.v1.errors | length')"
bed test -e /run/theirs-ran || fail "their command did not run"
bed test -e /run/rancher-ran || fail "Rancher's script did not run"
case $(bed cat /run/installing) in
    active|activating|inactive) ok "Rancher's script ran last and waited for nothing (the installation was $(bed cat /run/installing))" ;;
    *) fail "the installation was $(bed cat /run/installing) when Rancher's script ran" ;;
esac
until_true 60 "the agent starts" active
until_true 60 "the agent is let in" bed test -s /var/lib/outrider/identity.json
ok "the agent from an archive in the image is installed, started and enrolled, without any network"
is "the token is root's and its user's" "640 root outrider" "$(bed stat -c '%a %U %G' /etc/outrider/token)"
is "the installation has its receipt" true "$(jq .complete "$BED_ROOT/var/lib/outrider-install/receipt.json")"
is "the configuration is good" 0 "$(bed outrider-agent validate >/dev/null 2>&1; echo $?)"
is "the profile is in force" rancher-ha-server "$(bed outrider facts --only host | jq -r .node.profile)"
is "the installation is over, and not for the next boot" "inactive disabled" "$(show outrider-install.service ActiveState) $(bed systemctl is-enabled outrider-install.service || true)"
is "nothing failed" "" "$(bed systemctl list-units --failed --plain --no-legend 'outrider-*')"
bed sh -c 'journalctl --no-pager; cat /var/log/cloud-init*.log' >"$work/logs"
grep -q outrider "$work/logs" || fail "the logs say nothing at all"
is "the token's secret is in no log" 0 "$(grep -cF -e "$(cut -d: -f4 "$work/node.token")" "$work/logs" || true)"
row "a first boot without network" "theirs merged with ours, archive in the image" "boot ends, Rancher's script last, node enrolled"
# From the first line of our part to the first report that the coordinator stored. Told, not judged: the machine is busy with
# other things, and programs that are not optimised unpack and sum up slowly (OUTRIDER_BIN=target/release).
first_line=$(bed journalctl -u outrider-install.service -o short-unix --no-pager | awk '/^[0-9]/ && !seen++ { print $1 }')
until_true 60 "a report is stored" stored_report
took=$(awk -v from="$first_line" -v to="$(stored_report)" 'BEGIN { printf "%.1f s", to - from }')
row "from the start of our part to the first report" "journal, the coordinator's store" "$took"
bed outrider uninstall --purge >"$work/uninstall.out" 2>&1 || fail "$(cat "$work/uninstall.out")"
is "uninstall --purge takes what userdata wrote too" "" \
    "$(bed sh -c 'ls -d /etc/outrider /var/lib/outrider* /usr/bin/outrider* /etc/systemd/system/outrider* 2>/dev/null' | xargs)"
bed_off
bed_clean_up() { umount -l "$BED_DIR/root"; umount -l "$BED_DIR"; rmdir "$BED_DIR" 2>/dev/null || true; }
bed_clean_up

# --- downloaded from a server whose CA the token pins -------------------------------------------------------------------
machine node2
srv=$BED_ROOT/srv
mkdir -p "$srv/v1" "$srv/install"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=bed CA" -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout "$BED_ROOT/srv.key" -out "$work/srv.csr" 2>/dev/null
openssl x509 -req -in "$work/srv.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 30 -copy_extensions copy -out "$BED_ROOT/srv.pem" 2>/dev/null
# Two roots, as while a rotation overlaps; the token pins the second.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=old CA" -keyout /dev/null -out "$work/old.pem" 2>/dev/null
cat "$work/old.pem" "$work/ca.pem" >"$srv/v1/ca"
cp "$work/outrider.tar.gz" "$srv/install/outrider-$(uname -m).tar.gz"
pin=$(openssl x509 -in "$work/ca.pem" -outform DER | sha256sum | cut -c1-64)
sum=$(sha256sum "$work/outrider.tar.gz" | cut -c1-64)
# curl, which the image has to have, with the libraries that the tree lacks.
cp /usr/bin/curl "$BED_ROOT/usr/bin/"
ldd /usr/bin/curl | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
    [ -e "$BED_ROOT$library" ] || install -D "$(realpath "$library")" "$BED_ROOT$library"
done
cat >"$BED_ROOT/srv.py" <<'P'
import functools, http.server, ssl
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/srv")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8440), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv.pem", "/srv.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
P
printf '[Service]\nExecStart=/usr/bin/python3 /srv.py\n[Install]\nWantedBy=multi-user.target\n' >"$BED_ROOT/etc/systemd/system/srv.service"
chroot "$BED_ROOT" systemctl --quiet enable srv.service
asked() {                                                           # pin, sum
    "$outrider" userdata render --profile k3s-server --coordinator https://127.0.0.1:8440 --token "OR1$1::abcd1234:secret0123456789" \
        --agent 'https://127.0.0.1:8440/install/outrider-{arch}.tar.gz' --sha256 "$2" --guest-agent none
}
{ asked "$pin" "$sum" && printf 'locale: false\nssh_deletekeys: false\nssh_genkeytypes: []\n'; } >"$seed"
# The scripts that a wrong pin and a wrong sum give are tried by hand before.
script() { asked "$1" "$2" | python3 -c '
import sys, yaml
files = yaml.safe_load(sys.stdin)["write_files"]
sys.stdout.write(next(f["content"] for f in files if f["path"].endswith("install.sh")))'; }
wrong=$(printf '00%.0s' {1..32})
script "$wrong" "$sum" >"$BED_ROOT/wrong-pin.sh"
script "$pin" "$wrong" >"$BED_ROOT/wrong-sum.sh"
bed_boot || exit 1
until_true 120 "the boot ends" booted
until_true 60 "the agent is downloaded and starts" active
is "cloud-init had no error" 0 "$(bed cat /run/cloud-init/result.json | jq '.v1.errors | length')"
is "nothing of the download is left" "agent.toml.d helper.d install.sh token" "$(bed ls /etc/outrider | xargs)"
is "the installation is over" "inactive disabled" "$(show outrider-install.service ActiveState) $(bed systemctl is-enabled outrider-install.service || true)"
row "a first boot that downloads" "TLS server with the pinned CA, of two it shows" "installed and started"
refused() {                                                         # file, token that is to lie there
    bed sh -c "rm -rf /usr/bin/outrider-agent /etc/outrider/ca? /etc/outrider/pem; printf '%s' '$2' >/etc/outrider/token; sh /$1" >"$work/refused.out" 2>&1 && fail "$1 is taken"
    bed test ! -e /usr/bin/outrider-agent || fail "$1: the agent was unpacked"
}
refused wrong-pin.sh "OR1$wrong::abcd1234:secret"
ok "another CA than the token pins is not trusted: $(tail -n 1 "$work/refused.out")"
row "a server with another CA than the token pins" "the script with that token" "nothing is fetched"
refused wrong-sum.sh "OR1$pin::abcd1234:secret"
grep -q 'FAILED' "$work/refused.out" || fail "$(cat "$work/refused.out")"
ok "an archive with another SHA-256 is not unpacked"
row "an archive with another SHA-256" "the script with that sum" "nothing is unpacked"
bed_off
