# The agent from the coordinator: real curl by hand, and a first boot by userdata.   sourced by packages.sh
command -v curl >/dev/null || { echo "skipped: curl is missing"; return 0; }
machine "$BED_TREE"
mkdir -p "$BED_ROOT/opt" "$BED_ROOT/usr/share/outrider/install"
cp "$bin/outrider" "$BED_ROOT/opt/"
cp "$work/new/outrider-coordinator_0.1.0-1_amd64.deb" "$BED_ROOT/opt/"
cp "$work"/new/outrider-agent*0.1.0* "$work"/old/outrider-agent*.deb "$BED_ROOT/usr/share/outrider/install/"
# curl, which the image has to have, with the libraries that the tree lacks.
for program in curl openssl; do
    [ -e "$BED_ROOT/usr/bin/$program" ] || cp "/usr/bin/$program" "$BED_ROOT/usr/bin/"
    ldd "/usr/bin/$program" | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
        [ -e "$BED_ROOT$library" ] || install -D "$(realpath "$library")" "$BED_ROOT$library"
    done
done
chroot "$BED_ROOT" dpkg -i /opt/outrider-coordinator_0.1.0-1_amd64.deb >/dev/null 2>&1 || fail "the coordinator is not installed"
chroot "$BED_ROOT" systemctl enable --quiet outrider-coordinator.service
boot
listing >"$work/before"
c=https://127.0.0.1:8440
coordinator() { bed env STATE_DIRECTORY=/var/lib/outrider-coordinator outrider-coordinator "$@"; }
coordinator token create >"$work/token" 2>/dev/null || fail "no token"
cp "$work/token" "$BED_ROOT/root/token"; chmod 600 "$BED_ROOT/root/token"
bed sh -c "cd /root && curl -fsSk $c/v1/ca -o ca.pem"
is "the CA is the one that the token pins" "$(cut -c4-67 "$work/token")" "$(bed sh -c 'openssl x509 -in /root/ca.pem -outform DER | sha256sum | cut -c1-64')"
get() { bed sh -c 'cd /root; printf "header = \"Authorization: Bearer %s\"\n" "$(cat token)" | curl -sS --cacert ca.pem -K - "$@"' sh "$@"; }
is "three families of this version, and nothing of another" "deb rpm tar" "$(get $c/install/index.json | jq -r '[.items[].family] | sort | join(" ")')"
sum=$(sha256sum "$work/new/outrider-agent-0.1.0-x86_64.tar.gz" | cut -c1-64)
is "the index tells the SHA-256" "$sum" "$(get $c/install/index.json | jq -r '.items[] | select(.family == "tar") | .sha256')"
tar=$c/install/outrider-agent-x86_64.tar.gz
is "without a token nothing is served" 401 "$(bed curl -sS --cacert /root/ca.pem -o /dev/null -w '%{http_code}' $tar)"
row "somebody without a token asks for the agent" "curl" "401 $(bed curl -sS --cacert /root/ca.pem $tar | jq -r .reason)"
is "HEAD tells size and ETag" "\"$sum\"" "$(get -I $tar | tr -d '\r' | sed -n 's/^etag: //Ip')"
peak() { bed awk '/^VmHWM/ { print $2 }' "/proc/$(show outrider-coordinator.service MainPID)/status"; }
before=$(peak)
get -o part --max-filesize 999999999 -r 0-999999 $tar
get -o part -C - $tar
is "a download that was cut off is resumed" "$sum" "$(bed sha256sum /root/part | cut -c1-64)"
row "a download is cut off" "curl -r 0-999999, then -C -" "resumed: the same SHA-256"
bed sh -c 'cd /root; printf "header = \"Authorization: Bearer %s\"\n" "$(cat token)" >k; for n in 1 2 3 4 5 6; do curl -sS --cacert ca.pem -K k -o /dev/null "$1" & done; wait; rm k' sh $tar
grown=$((($(peak) - before) / 1024)) size=$(($(stat -c %s "$work/new/outrider-agent-0.1.0-x86_64.tar.gz") / 1048576))
[ "$grown" -lt "$size" ] || fail "the coordinator grew by $grown MiB for a file of $size MiB"
ok "six downloads at once of $size MiB: the coordinator grew by $grown MiB"
is "a path out of the folder" 404 "$(get -o /dev/null -w '%{http_code}' --path-as-is "$c/install/..%2F..%2F..%2Fetc%2Fshadow")"
row "a path that leads out of the folder" "/install/..%2F..%2Fetc%2Fshadow" "404"

# --- userdata that has it downloaded --------------------------------------------------------------------------------------
render() { bed /opt/outrider userdata render --profile k3s-server --coordinator $c --token-file /root/token --guest-agent none "$@"; }
rm -f "$BED_ROOT/etc/cloud/cloud-init.disabled"
seed=$BED_ROOT/var/lib/cloud/seed/nocloud
install -d "$seed"
printf 'config: disabled\n' >"$seed/network-config"
for family in tar deb; do
    coordinator token create >"$BED_ROOT/root/token" 2>/dev/null
    token=$(cat "$BED_ROOT/root/token")
    { render --agent "coordinator:$family" && printf 'locale: false\nssh_deletekeys: false\nssh_genkeytypes: []\n'; } >"$seed/user-data" || fail "it is not rendered"
    printf 'instance-id: %s\nlocal-hostname: %s\n' "$family" "$family" >"$seed/meta-data"
    [ "$family" = deb ] || ok "userdata is $(render --agent coordinator | wc -c) bytes, with SHA-256 from the coordinator"
    bed_off
    bed_boot || exit 1
    until_true 120 "$family: the boot ends" bed test -e /run/cloud-init/result.json
    until_true 60 "$family: the agent runs" active
    until_true 60 "$family: the agent is let in" bed test -s /var/lib/outrider/identity.json
    until_true 30 "$family: the installation ends" bed sh -c '[ "$(systemctl is-active outrider-install.service)" = inactive ]'
    is "$family: downloaded in a first boot, enrolled" "enabled active disabled" "$(state) $(enabled outrider-install.service)"
    is "$family: nothing of the download is left" "" "$(bed sh -c 'ls /etc/outrider' | grep -vxE 'agent.toml.d|helper.d|install.sh|token' || true)"
    is "$family: the token is in no log" 0 "$(bed sh -c 'journalctl --no-pager; cat /var/log/cloud-init*.log' | grep -cF -e "$(cut -d: -f4 <<<"$token")" || true)"
    row "a first boot, the agent as $family from the coordinator" "userdata render --agent coordinator:$family" "installed, enrolled"
    [ "$family" = tar ] || is "the package is known to dpkg" "0.1.0-1 ii" "$(bed dpkg-query -W -f '${Version} ${db:Status-Abbrev}' outrider-agent | xargs)"
    # The same again would be refused: the token let its node in.
    code=$(get -o /root/refused -w '%{http_code}' $tar)
    is "$family: the token is spent" "401 TokenUsedUp" "$code $(jq -r .reason "$BED_ROOT/root/refused")"
    bed systemctl disable --now --quiet outrider-agent.service outrider-helper.socket
    # The same machine with another key is a stranger for as long as the node before it is alive.
    bed env OUTRIDER_URL=$c OUTRIDER_TOKEN="$(cat "$BED_ROOT/var/lib/outrider-coordinator/operator.token")" HOME=/root \
        /opt/outrider revoke "$family" >/dev/null
    if [ "$family" = deb ]; then bed dpkg -P outrider-agent >/dev/null 2>&1; else
        bed sh -c 'tar -tzf /root/part | grep -v /$ | while read -r file; do rm -f "/$file"; done; rm -rf /var/lib/outrider /etc/outrider'
    fi
done
row "a token that let its node in" "GET /install/…" "401 TokenUsedUp"

recipe "From the coordinator"
coordinator token create >"$BED_ROOT/root/token" 2>/dev/null
bed env PATH=/opt:/usr/sbin:/usr/bin COORDINATOR=$c sh -euc 'cd /root && sh -eu /opt/recipe' >"$work/recipe.log" 2>&1 || { cat "$work/recipe.log"; fail "docs/install.md, From the coordinator"; }
ok "docs/install.md, From the coordinator"

# --- by hand, as the coordinator tells ------------------------------------------------------------------------------------
coordinator token create >"$BED_ROOT/root/token" 2>/dev/null
get $c/install/ >"$work/instructions"
sed -n '/^curl -fsSk/,/^# SUSE/p' "$work/instructions" | sed '/^# SUSE/d' >"$BED_ROOT/root/by-hand"
sed -n '/^install -o root/,/^systemctl restart/p' "$work/instructions" >>"$BED_ROOT/root/by-hand"
bed sh -euc "cd /root; sed -i 's#https://[^ /\"]*#$c#g' by-hand; sh -eu by-hand" >"$work/by-hand.log" 2>&1 || { cat "$work/by-hand.log"; fail "what /install/ tells does not work"; }
until_true 30 "the agent is let in" bed test -s /var/lib/outrider/identity.json
ok "what /install/ tells to type installs and enrols"

# --- nothing to serve -----------------------------------------------------------------------------------------------------
bed sh -c 'rm /usr/share/outrider/install/*0.1.0*'
coordinator token create >"$BED_ROOT/root/token" 2>/dev/null
if render --agent coordinator >"$work/out" 2>"$work/err"; then fail "userdata is rendered without anything to download"; fi
grep -q 'serves no tar of its version' "$work/err" || fail "$(cat "$work/err")"
ok "a coordinator with nothing to serve: $(head -c 100 "$work/err" | tr '\n' ' ')…"
row "the coordinator's folder holds another version only" "userdata render --agent coordinator" "refused, with what to put there"
end_machine
