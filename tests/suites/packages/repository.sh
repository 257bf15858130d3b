# A signed repository: real apt from it, with what is forged refused; rpm's signatures and metadata.   sourced by packages.sh
for tool in gpg dpkg-deb; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing"; return 0; }
done
export GNUPGHOME=$work/gnupg
mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key "Outrider bed <bed@outrider.internal>" ed25519 sign never 2>/dev/null
packaging/repository "$work/repo" --key bed@outrider.internal --packages "$work/old" >"$work/repo.log" 2>&1 || { cat "$work/repo.log"; fail "the repository is not made"; }
machine "$BED_TREE"
boot
bed mkdir -p /etc/apt/keyrings
serve() { rm -rf "$BED_ROOT/opt/repo"; cp -r "$work/repo" "$BED_ROOT/opt/repo"; }
# Without what apt has seen before: it would not read again what it knows to be unchanged.
update() { bed sh -c 'rm -rf /var/lib/apt/lists/*; apt-get -qq -o APT::Sandbox::User=root -o Acquire::Check-Date=false update 2>&1'; }
serve
cp "$work/repo/outrider.asc" "$BED_ROOT/etc/apt/keyrings/outrider.asc"
echo 'deb [signed-by=/etc/apt/keyrings/outrider.asc] file:/opt/repo/deb ./' >"$BED_ROOT/etc/apt/sources.list.d/outrider.list"
is "apt takes the signed list" "" "$(update)"
apt_install() { bed env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o APT::Sandbox::User=root "$@" >"$work/apt.log" 2>&1 </dev/null; }
apt_install install outrider-agent || { cat "$work/apt.log"; fail "apt does not install"; }
until_true 20 "the agent runs" active
is "apt installs it, and it runs" "enabled active 0.0.9-1" "$(state) $(bed dpkg-query -W -f '${Version}' outrider-agent)"
row "a node installs from the repository" "apt-get install, signed-by" "installed, runs"
packaging/repository "$work/repo" --key bed@outrider.internal --packages "$work/new" >/dev/null 2>&1
serve
update >/dev/null
pid=$(main_pid)
apt_install upgrade || { cat "$work/apt.log"; fail "apt does not upgrade"; }
until_true 20 "the upgraded agent runs" restarted "$pid"
is "apt upgrades it" "0.1.0-1" "$(bed dpkg-query -W -f '${Version}' outrider-agent)"
is "and finds the version before, to go back" 2 "$(bed apt-cache madison outrider-agent | wc -l)"
row "a new version in the repository" "apt-get upgrade" "upgraded, restarted"

bed sh -c 'cd /opt/repo/deb && sed -i "s/^Version: 0.1.0-1/Version: 0.2.0-1/" Packages && gzip -9nc Packages >Packages.gz'
said=$(update || true)
grep -qE 'Hash Sum mismatch|unexpected size' <<<"$said" || fail "a changed list is taken: $said"
ok "a list that was changed after it was signed is refused"
row "the list of packages is forged" "Packages changed" "$(grep -oE 'Hash Sum mismatch|unexpected size' <<<"$said" | head -n 1)"
serve
bed sh -c 'cd /opt/repo/deb && sed -i "s/^Label: Outrider/Label: Outsider/" InRelease'
said=$(update || true)
grep -qE 'BADSIG|invalid|not signed' <<<"$said" || fail "a changed Release is taken: $said"
ok "a Release that was changed is refused"
row "the signed file is forged" "InRelease changed" "$(grep -oE 'BADSIG|invalid|not signed' <<<"$said" | head -n 1)"
serve
bed sh -c 'dpkg -P outrider-agent >/dev/null 2>&1; cd /opt/repo/deb && printf x >>outrider-agent_0.1.0-1_amd64.deb'
update >/dev/null
if apt_install install outrider-agent; then fail "a changed package is installed"; fi
grep -qE 'Hash Sum mismatch|unexpected size' "$work/apt.log" || fail "$(cat "$work/apt.log")"
ok "a package that was changed is refused"
row "a package is forged" "a byte appended" "$(grep -oE 'Hash Sum mismatch|unexpected size' "$work/apt.log" | head -n 1)"
end_machine

if command -v createrepo_c >/dev/null && command -v rpmsign >/dev/null; then
    one=$work/repo/rpm/outrider-agent-0.1.0-1.x86_64.rpm
    mkdir "$work/rpmdb"
    rpm --dbpath "$work/rpmdb" --import "$work/repo/outrider.asc"
    is "rpm verifies the package's signature" 0 "$(rpm --dbpath "$work/rpmdb" -K "$one" >/dev/null 2>&1; echo $?)"
    cp "$one" "$work/forged.rpm"
    printf '\xff' | dd of="$work/forged.rpm" bs=1 seek=$(($(stat -c %s "$one") - 100)) conv=notrunc 2>/dev/null
    is "and not that of a changed one" 1 "$(rpm --dbpath "$work/rpmdb" -K "$work/forged.rpm" >/dev/null 2>&1; echo $?)"
    row "a package is forged" "a byte of an rpm changed" "rpm -K fails"
    gpg --batch --verify "$work/repo/rpm/repodata/repomd.xml.asc" "$work/repo/rpm/repodata/repomd.xml" 2>/dev/null || fail "the metadata is not signed"
    ok "the repository's metadata is signed"
    is "and names every package" 4 "$(zcat "$work"/repo/rpm/repodata/*primary.xml.gz | grep -c '<package type="rpm"')"
else
    echo "skipped: createrepo_c or rpmsign is missing"
fi
gpgconf --kill all 2>/dev/null || true
unset GNUPGHOME
