# The container bed: a machine with a real systemd, in namespaces that end with the suite.   . tests/beds/container/bed.sh
#
#   bed_enter "$0" "$@"     runs the suite again in a mount namespace of its own, $BED_TREE (a machine's tree) made; before anything else
#   bed_create ROOT         a machine over the read-only tree ROOT; its file system is at $BED_ROOT until it boots, and after
#   bed_boot                boots it
#   bed COMMAND …           runs a command inside
#   bed_off                 powers it off
#
# What stops a suite stops its machine: mounts live in the suite's namespace, processes hang below the one that
# `bed_boot` started, and the cgroup is removed when the suite ends.
set -euo pipefail
BED_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

bed_enter() {
    [ -n "${BED_INSIDE:-}" ] && return 0
    # The programs under test were linked here: they need a machine with a libc no older than ours.
    local release=trixie
    grep -q '^VERSION_CODENAME=bookworm' /etc/os-release && release=bookworm
    BED_TREE=${BED_TREE:-$("$BED_HERE/root" "${BED_RELEASE:-$release}")}
    export BED_TREE
    BED_INSIDE=1 exec unshare --mount --propagation private -- bash "$@"
}

bed_create() {
    BED_NAME=outrider-bed-$$
    # Empty branches of suites that were killed; one in use refuses to go.
    find "$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)"/outrider-bed-* -depth -type d -exec rmdir {} \; 2>/dev/null || true
    BED_DIR=$(mktemp -d)
    trap bed_clean EXIT
    trap 'exit 130' INT TERM HUP
    # A tmpfs: an overlay cannot stand on another one, as a container's /tmp may be.
    mount -t tmpfs -o size=80%,mode=700 tmpfs "$BED_DIR"
    mkdir "$BED_DIR"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$BED_DIR/upper,workdir=$BED_DIR/work" "$BED_DIR/root"
    BED_ROOT=$BED_DIR/root
}

bed_boot() {
    # Killed together with the suite, should that be killed without a chance to clean up.
    setpriv --pdeathsig KILL "$BED_HERE/init" "$BED_ROOT" "$BED_NAME" >"$BED_DIR/console" 2>&1 </dev/null &
    BED_JOB=$!
    local child
    for _ in $(seq 300); do
        kill -0 "$BED_JOB" 2>/dev/null || { echo "the machine did not boot:"; tail -n 5 "$BED_DIR/console"; return 1; }
        child=$(cat "/proc/$BED_JOB/task/$BED_JOB/children" 2>/dev/null || true)
        child=${child%% *}
        if [ -n "$child" ] && [ "$(cat "/proc/$child/comm" 2>/dev/null)" = systemd ]; then
            BED_INIT=$child
            case $(bed systemctl is-system-running 2>/dev/null || true) in
                starting|running|degraded) return 0 ;;
            esac
        fi
        sleep 0.1
    done
    echo "systemd did not come up"; return 1
}

bed() {
    nsenter -t "$BED_INIT" -r -w -m -u -i -n -p -C -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}

bed_off() {
    [ -n "${BED_INIT:-}" ] || return 0
    # systemd's own signal for "power off".
    kill -s RTMIN+4 "$BED_INIT" 2>/dev/null || true
    for _ in $(seq 150); do
        kill -0 "$BED_JOB" 2>/dev/null || break
        sleep 0.1
    done
    # PID 1 takes everything inside with it.
    kill -9 "$BED_INIT" 2>/dev/null || true
    wait "$BED_JOB" 2>/dev/null || true
    BED_INIT=
}

bed_clean() {
    local code=$? cgroup
    set +e
    bed_off
    [ -n "${BED_JOB:-}" ] && { kill -9 "$BED_JOB"; wait "$BED_JOB"; } 2>/dev/null
    umount -l "$BED_DIR/root" 2>/dev/null
    umount -l "$BED_DIR" 2>/dev/null
    rmdir "$BED_DIR"
    cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)/$BED_NAME
    if [ -d "$cgroup" ]; then find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null; fi
    exit "$code"
}
