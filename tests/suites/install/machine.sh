# The machine: an image before its first boot, then the running system.   sourced by install.sh

# --- in an image, before its first boot ---------------------------------------------------------------------------------
snapshot "$BED_ROOT" >"$work/before"
mount -t proc proc "$BED_ROOT/proc"
told chroot "$BED_ROOT" /opt/release/usr/bin/outrider "${asked[@]}"
umount "$BED_ROOT/proc"
is "installed in an image" 0 "$code"
says "there systemd is not asked" "it starts at the next boot"
row "systemd does not run (image build)" "chroot before the first boot" "it starts at the next boot"
bed_boot || exit 1
bed systemctl start coordinator.service
until_true 60 "the agent starts by itself at the first boot" active
until_true 60 "the agent is let in" bed test -s /var/lib/outrider/identity.json
until_true 60 "the coordinator has its report" reported
ok "installed in the image, it starts at the first boot, enrols and reports"
is "the token is for root and the agent's group" "640 root outrider" "$(bed stat -c '%a %U %G' /etc/outrider/token)"
is "the configuration is good" 0 "$(bed outrider-agent validate >/dev/null 2>&1; echo $?)"
is "profile and cluster are in force" "k3s-server prod" "$(bed outrider facts --only host | jq -r '.node.profile + " " + .node.cluster')"
bed sh -c 'cat /var/lib/outrider-install/receipt.json' >"$work/receipt"
is "no secret is in the receipt" 0 "$(grep -cF -e "$(cut -d: -f4 "$BED_ROOT/opt/token")" "$work/receipt" || true)"

# --- twice --------------------------------------------------------------------------------------------------------------
pid=$(show outrider-agent.service MainPID)
installer "${asked[@]}"
is "a second run" 0 "$code"
says "it has nothing to do" "Nothing to do: this machine is as asked for."
is "and leaves the agent alone" "$pid" "$(show outrider-agent.service MainPID)"
installer install --cluster stage
is "another cluster is a new drop-in, read without a new start" "0 stage $pid" \
    "$code $(bed outrider facts --only host | jq -r .node.cluster) $(show outrider-agent.service MainPID)"
bed sh -c 'echo "# mine" >>/etc/outrider/agent.toml.d/60-install.toml'
installer install --cluster prod
is "a drop-in that was changed by hand is not overwritten" 1 "$code"
says "it says so" "was changed by hand"
row "the drop-in was edited" "a line added" "was changed by hand; refused"

# --- the way back -------------------------------------------------------------------------------------------------------
uid=$(bed jq -r .nodeUid /var/lib/outrider/identity.json 2>/dev/null || bed sed -n 's/.*"nodeUid": "\(.*\)".*/\1/p' /var/lib/outrider/identity.json)
installer uninstall
is "uninstalled" 0 "$code"
says "settings and identity stay" "settings, token and identity stay"
is "nothing runs" "inactive not-found" "$(show outrider-agent.service ActiveState) $(show outrider-agent.service LoadState)"
is "the programs are gone" "" "$(bed sh -c 'ls /usr/bin/outrider* /usr/libexec/outrider /usr/lib/systemd/system/outrider* 2>/dev/null' || true)"
bed test -s /var/lib/outrider/identity.key && bed test -s /etc/outrider/token || fail "identity or token is gone"
installer install --from /opt/outrider.tar.gz
is "installed again, from the archive and without a word of settings" 0 "$code"
until_true 60 "the agent starts" active
is "it is the same node" "$uid" "$(bed sed -n 's/.*"nodeUid": "\(.*\)".*/\1/p' /var/lib/outrider/identity.json)"
installer uninstall --purge
is "purged" 0 "$code"
same "after a purge the machine is what it was" "$work/before" "/proc/$BED_INIT/root"
ok "after a purge the machine is, file by file, what it was before the installation"
installer uninstall --purge
is "a second purge is no error" "0" "$code"

# --- what stands in the way: refused before anything is changed ---------------------------------------------------------
refused() {                                                         # words, what is said, how made, command …
    local words=$1 what=$2 how=$3; shift 3
    told "$@"
    is "$words: refused" 1 "$code"
    says "$words" "$what"
    same "$words: nothing was changed" "$work/before" "/proc/$BED_INIT/root"
    row "$words" "$how" "$what"
}
run=/opt/release/usr/bin/outrider stub=("${asked[@]}" --from /opt/stub)
refused "not root" "not root" "setpriv --reuid 65534" bed setpriv --reuid 65534 --regid 65534 --clear-groups $run install --coordinator https://127.0.0.1:8440 --from /opt/stub
refused "the token pins another CA" "the CA does not match" "a token with other 64 digits" bed $run install --coordinator https://127.0.0.1:8440 --token-file /opt/wrong-token --from /opt/stub
bed mount -o bind,ro /usr /usr
refused "/usr is read-only" "is read-only" "mount -o bind,ro" bed $run "${stub[@]}"
bed umount -l /usr
bed sh -c 'mkdir /usr/libexec/outrider && mount -t tmpfs -o size=8m tmpfs /usr/libexec/outrider'
told bed $run "${stub[@]}"
bed sh -c 'umount /usr/libexec/outrider && rmdir /usr/libexec/outrider'
is "the disk is too small: refused" 1 "$code"
says "the disk is too small" "MiB free"
same "the disk is too small: nothing was changed" "$work/before" "/proc/$BED_INIT/root"
row "the disk is too small" "a tmpfs of 8 MiB at one place" "has 8 MiB free; … are to be written"
bed ln -s /dev/null /etc/systemd/system/outrider-agent.service
told bed $run "${stub[@]}"
bed rm /etc/systemd/system/outrider-agent.service
is "a masked unit: refused" 1 "$code"
says "a masked unit" "is masked"
row "the unit is masked" "a link to /dev/null" "is masked; it is not unmasked"
bed hostname localhost
refused "the machine is called localhost" "is every machine's name" "hostname localhost" bed $run "${stub[@]}"
bed hostname bed
bed mkdir -p /opt/bad; bed cp $run /opt/bad/outrider
refused "no release anywhere" "no release was given" "the program alone" bed /opt/bad/outrider "${asked[@]}"
refused "an archive that is none" "is no release" "--from /opt/token" bed $run "${asked[@]}" --from /opt/token
installer "${stub[@]}" --dry-run
is "--dry-run ends with 0" 0 "$code"
same "--dry-run changes nothing" "$work/before" "/proc/$BED_INIT/root"

# --- without network ----------------------------------------------------------------------------------------------------
# Without hardware of its own the machine could not show that it is the same one; its old node lets go of the name.
operator revoke bed >/dev/null || fail "the old node cannot be revoked"
bed systemctl stop coordinator.service
installer "${asked[@]}"
is "without a coordinator that can be asked it goes on" 0 "$code"
says "and says so" "cannot be asked from here"
row "no network" "the coordinator does not run" "cannot be asked from here; installed"
until_true 60 "the agent starts all the same" active
bed systemctl start coordinator.service
until_true 90 "once it can be reached, the agent is let in" bed test -s /var/lib/outrider/identity.json
ok "installed without network, it enrols once there is one"
# The token of another coordinator, on a machine that is a node.
installer install --token-file /opt/wrong-token --coordinator https://127.0.0.1:1 --from /opt/stub
is "a node of another coordinator: refused" 1 "$code"
says "it says whose it is" "is a node of another coordinator"
row "an identity of another coordinator" "the other token on a node" "is a node of another coordinator; refused"
installer uninstall --purge
is "purged again" 0 "$code"
same "after it the machine is what it was" "$work/before" "/proc/$BED_INIT/root"

# --- killed while systemd is told ---------------------------------------------------------------------------------------
cp /usr/bin/strace "$BED_ROOT/opt/strace"
mkdir "$BED_ROOT/opt/lib"
ldd /usr/bin/strace | awk '$3 ~ /^\// { print $3 }' | while read -r library; do cp "$library" "$BED_ROOT/opt/lib/"; done
live=($run "${asked[@]}" --from /opt/stub)
kills=0
for command in there back; do
    n=0
    while n=$((n + 1)); do
        line=("${live[@]}")
        if [ $command = back ]; then installer "${asked[@]}" --from /opt/stub; line=($run uninstall --purge); fi
        told bed env LD_LIBRARY_PATH=/opt/lib /opt/strace -qq -e signal=none -o /dev/null -e trace=/clone,/fork \
            -e "inject=/clone,/fork:signal=KILL:when=$n" -E LD_LIBRARY_PATH -- "${line[@]}"
        [ "$code" = 137 ] || break
        kills=$((kills + 1))
        if [ $command = there ]; then
            installer "${asked[@]}" --from /opt/stub
            [ "$code" = 0 ] || fail "killed at program $n it does not complete: $(cat "$work/said")"
        fi
        installer uninstall --purge
        [ "$code" = 0 ] || fail "killed at program $n it does not go back: $(cat "$work/said")"
        same "killed at program $n ($command)" "$work/before" "/proc/$BED_INIT/root"
    done
    [ "$code" = 0 ] || fail "$command, program $n: $(cat "$work/said")"
    installer uninstall --purge
done
[ $kills -ge 8 ] || fail "it was killed $kills times only"
ok "killed before each of $kills programs it runs on a live machine: run again it completes or goes back"
row "kill -9 while systemd is told" "strace, before each of $kills programs" "run again: done, or as before"

# --- a package laid out the programs ------------------------------------------------------------------------------------
mkdir -p "$BED_ROOT/opt/deb/DEBIAN"
cp -r "$BED_ROOT/opt/release/usr" "$BED_ROOT/opt/deb/"
printf 'Package: outrider\nVersion: 1\nArchitecture: all\nMaintainer: bed <bed@localhost>\nDescription: bed\n' >"$BED_ROOT/opt/deb/DEBIAN/control"
bed sh -c 'dpkg-deb --build -Znone /opt/deb /opt/outrider.deb && dpkg -i /opt/outrider.deb' >"$work/dpkg" 2>&1 || fail "$(tail -n 3 "$work/dpkg")"
# As the package's own script does.
bed systemd-sysusers
snapshot "/proc/$BED_INIT/root" >"$work/packaged"
told bed outrider "${asked[@]}"
is "with a package, configuration, token and service are set up" 0 "$code"
says "and its files left alone" "the package outrider laid it out"
until_true 60 "the agent starts" active
installer "${asked[@]}" --from /opt/release
is "a release over a package's files: refused" 1 "$code"
row "a release over a package's files" "--from on a machine with the deb" "$(grep -ho 'would be lost at its next upgrade' "$work/said" || fail "$(cat "$work/said")")"
told bed outrider uninstall --purge
is "purged" 0 "$code"
says "which command takes the programs" "apt-get remove outrider"
same "only the package's own files are there" "$work/packaged" "/proc/$BED_INIT/root"
row "a package laid out the programs" "dpkg -i, install, uninstall --purge" "apt-get remove outrider takes them away"
bed_off
