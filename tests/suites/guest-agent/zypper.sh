# Real zypper and rpm on the same machine, apt out of the way: sourced by tests/suites/guest-agent.sh.
#
# The package is made by rpmbuild of the real qemu-ga; a repository by createrepo_c. `transactional-update` and a read-only
# root are played in the unit tests (`agent/src/setup/tests.rs`): zypper's code 5 is all that comes of them.
purge
bed sh -c 'dpkg -i /srv/rpms/*.deb >/run/dpkg.log 2>&1 || { tail -n 5 /run/dpkg.log; exit 1; }
    mv /usr/bin/apt-get /usr/bin/apt-get.away && rpm --initdb 2>/dev/null; rm -rf /etc/zypp/repos.d; mkdir -p /etc/zypp/repos.d' || fail "zypper cannot be installed"
bed sh -c 'mkdir -p /srv/qga && cd /srv/qga && dpkg-deb -x /srv/pool/qemu-guest-agent_*.deb tree && cat >qga.spec' <<'S'
Name: qemu-guest-agent
Version: 7.2
Release: 1
Summary: The real qemu-ga, packed for a test
License: GPL-2.0-or-later
AutoReqProv: no
%description
Of the suite guest-agent.
%install
install -D -m 0755 /srv/qga/tree/usr/sbin/qemu-ga %{buildroot}/usr/bin/qemu-ga
%files
/usr/bin/qemu-ga
S
bed sh -c 'cd /srv/qga && rpmbuild -bb --quiet --define "_topdir /srv/qga/top" --define "_build_id_links none" --define "debug_package %{nil}" --define "__os_install_post %{nil}" qga.spec >build.log 2>&1 &&
    mkdir -p /srv/repo && cp top/RPMS/*/*.rpm /srv/repo/ && createrepo_c -q /srv/repo' || fail "no rpm repository: $(bed tail -n 3 /srv/qga/build.log)"

# rpm calls no hook of dpkg's.
bed sh -c 'cp /srv/qemu-guest-agent.service /etc/systemd/system/ && systemctl daemon-reload'
t=$(now)
set_up
until_true 60 "zypper without a repository is told" says GuestAgentNoRepository
has "with its exit code" "$(condition .message)" "zypper ended with code"
row "zypper has no repository" "real zypper, no .repo file" "GuestAgentNoRepository" "$(took "$t")"

bed sh -c 'printf "[bed]\nname=bed\nbaseurl=http://127.0.0.1:9/\nenabled=1\ngpgcheck=0\n" >/etc/zypp/repos.d/bed.repo'
t=$(now)
set_up
until_true 120 "zypper with a repository that is gone is told" setup_is "failed GuestAgentNoRepository"
row "zypper's repository is gone" "real zypper, a closed port" "GuestAgentNoRepository" "$(took "$t")"

bed sh -c 'sed -i "s,^baseurl=.*,baseurl=file:///srv/repo," /etc/zypp/repos.d/bed.repo'
bed systemd-run --quiet --unit=holder python3 /run/holder.py packagekitd /run/zypp.pid
holder=$(show holder.service MainPID)
t=$(now)
set_up
until_true 60 "zypper's lock is waited for" says GuestAgentLockHeld
has "with its holder" "$(condition .message)" "/run/zypp.pid, held by process $holder (packagekitd)"
row "zypper's lock is held" "fcntl(2) by a process named packagekitd" "GuestAgentLockHeld, by number and name" "$(took "$t")"
t=$(now)
bed systemctl stop holder.service
until_true 120 "zypper installs it and it runs" says GuestAgentRunning
is "by rpm: only its package has /usr/bin/qemu-ga" 0 "$(bed test -x /usr/bin/qemu-ga; echo $?)"
is "and answers" "{}" "$(ask guest-ping)"
row "and let go" "the process ends" "GuestAgentRunning" "$(took "$t")"
bed sh -c 'mv /usr/bin/apt-get.away /usr/bin/apt-get'
