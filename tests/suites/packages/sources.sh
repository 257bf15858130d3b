# A repository that userdata sets up by itself: a first boot with real apt over HTTP, then real dnf and zypper by the same
# document; a network that comes late, wrong keys.   sourced by packages.sh
for tool in gpg createrepo_c rpmsign curl; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing (tests/run installs what Debian has)"; return 0; }
done
export GNUPGHOME=$work/gnupg-sources
mkdir -m 700 "$GNUPGHOME"
for who in signer stranger; do
    gpg --batch --quiet --passphrase '' --quick-generate-key "$who <$who@outrider.internal>" rsa3072 sign never 2>/dev/null
done
gpg --armor --export stranger@outrider.internal >"$work/stranger.asc"
packaging/repository "$work/sources" --key signer@outrider.internal --packages "$work/new" >"$work/repo.log" 2>&1 || { cat "$work/repo.log"; fail "the repository is not made"; }
gpgconf --kill all 2>/dev/null || true
unset GNUPGHOME
url=http://127.0.0.1:8081
key_url=$url/outrider.asc#$(sha256sum "$work/sources/outrider.asc" | cut -c1-64)

asked() {                                                           # key, options: the document
    "$bin/outrider" userdata render --profile k3s-server --cluster bed --guest-agent none --agent package \
        --repo $url --repo-key "$@" || fail "it is not rendered"
    printf 'locale: false\nssh_deletekeys: false\nssh_genkeytypes: []\n'
}
new_machine() {                                                     # name
    machine "$BED_TREE"
    rm -f "$BED_ROOT/etc/cloud/cloud-init.disabled"
    cp -r "$work/sources" "$BED_ROOT/srv/repo"
    printf '[Service]\nExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /srv/repo 8081\n' >"$BED_ROOT/etc/systemd/system/srv.service"
    # apt's own user has no place in the machine's namespace. Another repository is broken, as they are at times.
    printf 'APT::Sandbox::User "root";\n' >"$BED_ROOT/etc/apt/apt.conf.d/90bed"
    echo 'deb http://127.0.0.1:9/other ./' >"$BED_ROOT/etc/apt/sources.list.d/other.list"
    # curl, which the image has to have where the key is downloaded, with the libraries that the tree lacks.
    cp /usr/bin/curl "$BED_ROOT/usr/bin/"
    ldd /usr/bin/curl | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
        [ -e "$BED_ROOT$library" ] || install -D "$(realpath "$library")" "$BED_ROOT$library"
    done
    seed=$BED_ROOT/var/lib/cloud/seed/nocloud
    install -d "$seed"
    printf 'instance-id: %s\nlocal-hostname: %s\n' "$1" "$1" >"$seed/meta-data"
    printf 'config: disabled\n' >"$seed/network-config"
}
first_boot() {
    "$bin/outrider" userdata lint --strict --platform nocloud "$seed/user-data" >"$work/lint.out" || fail "$(cat "$work/lint.out")"
    boot
    until_true 120 "cloud-init ends" bed test -e /run/cloud-init/result.json
    is "cloud-init had no error, and did not wait" 0 "$(bed cat /run/cloud-init/result.json | jq '.v1.errors | length')"
}
log() { bed journalctl --no-pager -o cat -u outrider-install.service; }
failed_once() { [ "$(show outrider-install.service NRestarts)" != 0 ] || [ "$(show outrider-install.service SubState)" = auto-restart ]; }
installed() { [ "$(enabled outrider-install.service)" = disabled ] && [ "$(show outrider-install.service ActiveState)" = inactive ]; }
# The document's script, as the unit would run it again.
script() {                                                          # key, options
    asked "$@" | python3 -c '
import sys, yaml
for file in yaml.safe_load(sys.stdin)["write_files"]:
    if file["path"].endswith((".asc", "install.sh")):
        open(sys.argv[1] + file["path"], "w").write(file["content"])' "$BED_ROOT"
    bed sh /etc/outrider/install.sh >"$work/script.out" 2>&1 </dev/null
}
takes() {                                                           # words, key
    script "$2" || { cat "$work/script.out"; fail "$1: the script ends with an error"; }
    ok "$1"
}
refused() {                                                         # words, what is said, key
    ! script "$3" || fail "$1 is taken: $(tail -n 3 "$work/script.out")"
    grep -qE "$2" "$work/script.out" || fail "$1: \"$2\" is not said: $(tail -n 5 "$work/script.out")"
    bed test ! -e /usr/bin/outrider-agent || fail "$1: the agent was installed"
    ok "$1 is refused: $(grep -oE "$2" "$work/script.out" | tail -n 1)"
    row "$1" "the document's script" "$(grep -oE "$2" "$work/script.out" | tail -n 1)"
}

# --- apt: the network comes after the boot --------------------------------------------------------------------------------
new_machine late
asked "$key_url" >"$seed/user-data"
first_boot
until_true 30 "the installation finds no server" failed_once
bed test ! -e /usr/bin/outrider-agent || fail "there is an agent before there is a server"
bed systemctl start srv.service
until_true 60 "the installation ends" installed
until_true 20 "the agent runs" active
is "apt: installed when the network was there, and it runs" "enabled active 0.1.0-1 ii" \
    "$(state) $(bed dpkg-query -W -f '${Version} ${db:Status-Abbrev}' outrider-agent | xargs)"
bed apt-cache policy outrider-agent | grep -q "$url/deb" || fail "apt does not know the repository: $(bed apt-cache policy outrider-agent)"
ok "the repository stays, for what comes later"
is "nothing of the work is left" "" "$(bed sh -c 'ls -d /etc/outrider/w 2>/dev/null' || true)"
row "the network comes after the boot" "systemctl start of the server" "boot ended without it; then apt installs, agent runs"
takes "the same again changes nothing" "$key_url"
bed dpkg -P outrider-agent >/dev/null 2>&1
mkdir -p "$BED_ROOT/etc/outrider"
takes "with the key in the document" "$work/sources/outrider.asc"
is "  it is installed" "0.1.0-1" "$(bed dpkg-query -W -f '${Version}' outrider-agent)"

# --- the recipes, and what the one for a disk says, carried out -------------------------------------------------------------
printf 'OR1%s::abcd1234:an-enrolment-token\n' "$(printf 'a1%.0s' {1..32})" >"$work/node.token"
for section in Repository Air-gapped; do
    recipe "$section"
    (cd "$work" && PATH=$bin:$PATH COORDINATOR=https://outrider.example:8440 REPOSITORY=$work/sources bash -eu "$BED_ROOT/opt/recipe") >"$work/recipe.log" 2>&1 ||
        { cat "$work/recipe.log"; fail "docs/install.md, $section"; }
    ok "docs/install.md, $section"
done
bed dpkg -P outrider-agent >/dev/null 2>&1
bed systemctl stop srv.service
mkdir -p "$BED_ROOT/etc/outrider" "$BED_ROOT/media"
mv "$BED_ROOT/srv/repo" "$BED_ROOT/media/outrider"
url=file:///media/outrider takes "apt installs from a disk, without any server" "$work/sources/outrider.asc"
is "  it is installed" "0.1.0-1" "$(bed dpkg-query -W -f '${Version}' outrider-agent)"

# --- apt: the wrong key ---------------------------------------------------------------------------------------------------
new_machine wrong
asked "$work/stranger.asc" >"$seed/user-data"
ln -s ../srv.service "$BED_ROOT/etc/systemd/system/multi-user.target.wants/srv.service"
first_boot
until_true 60 "the installation is refused" failed_once
log >"$work/log"
grep -qE 'NO_PUBKEY|not signed' "$work/log" || fail "the wrong key is not said: $(tail -n 5 "$work/log")"
bed test ! -e /usr/bin/outrider-agent || fail "a package signed by another is installed"
ok "apt, a repository signed by another key: refused in the boot, and said: $(grep -oE 'NO_PUBKEY|not signed' "$work/log" | head -n 1)"
row "apt, a repository of another key" "a first boot" "$(grep -oE 'NO_PUBKEY|is not signed' "$work/log" | tail -n 1), nothing installed"
bed systemctl disable --now --quiet outrider-install.service
refused "apt, a key with another SHA-256" 'k: FAILED' "$url/outrider.asc#$(printf '00%.0s' {1..32})"

# --- dnf and zypper, by the same document ---------------------------------------------------------------------------------
rpms=$(tests/beds/deb/pool "$BED_TREE" dnf zypper rpm) || { echo "skipped: the packages of dnf and zypper cannot be had"; end_machine; return 0; }
mkdir -p "$BED_ROOT/srv/rpms"
cp "$rpms"/*.deb "$BED_ROOT/srv/rpms/"
bed sh -c 'dpkg -i /srv/rpms/*.deb >/run/dpkg.log 2>&1 || { tail -n 5 /run/dpkg.log; exit 1; }
    mkdir -p /etc/rpm; echo "%_dbpath /var/lib/rpm" >/etc/rpm/macros; rpm --initdb 2>/dev/null; rm -rf /etc/zypp/repos.d; mkdir -p /etc/zypp/repos.d /etc/yum.repos.d
    printf "[other]\nname=other\nbaseurl=http://127.0.0.1:9/\nenabled=1\n" | tee /etc/zypp/repos.d/other.repo >/etc/yum.repos.d/other.repo
    mv /usr/bin/zypper /usr/bin/zypper.away; rm -f /etc/os-release' || fail "dnf and zypper cannot be installed"
# Debian's rpm keeps its database in root's home, unless told where (above), and refuses to install beside dpkg's.
bed mv /var/lib/dpkg /var/lib/dpkg.away
gone() { bed rpm -e outrider-agent >/dev/null 2>&1 || fail "rpm -e failed"; bed rpm -e --allmatches gpg-pubkey 2>/dev/null || true; }
family() {                                                          # dnf or zypper, ID and ID_LIKE of its system
    printf 'ID=%s\nID_LIKE="%s"\n' "$2" "$3" >"$BED_ROOT/etc/os-release"
    refused "$1, a repository of another key" 'GPG check FAILED|[Ss]ignature verification failed|repomd.xml GPG signature verification error|is signed with unknown key|not trusted' "$work/stranger.asc"
    bed sh -c 'rpm -e --allmatches gpg-pubkey 2>/dev/null; rm -rf /var/cache/dnf /var/cache/zypp'
    takes "$1 installs by the same document" "$key_url"
    until_true 20 "$1: the agent runs" active
    is "$1: it runs, and is rpm's" "enabled active 0.1.0-1" "$(state) $(bed rpm -q --qf '%{VERSION}-%{RELEASE}' outrider-agent)"
    row "the same document, $1" "real $1 over HTTP" "installed, enabled, runs"
    takes "$1: the same again changes nothing" "$key_url"
    bed systemctl stop outrider-agent.service outrider-helper.socket
    gone
}
family dnf rocky "rhel centos fedora"
bed mv /usr/bin/zypper.away /usr/bin/zypper
family zypper sles suse
end_machine
