# kill -9 at every step, on a tree below --root: before every sync, rename, folder, link and removal that the installer makes,
# on the way there and on the way back.   sourced by install.sh
# In memory: thousands of syncs are no load for whoever shares this disk.
tree=$BED_DIR/tree
mkdir -p "$tree"/{etc/systemd/system,usr/bin,usr/lib/systemd/system,var/lib,run}
touch "$tree/usr/lib/systemd/systemd"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$tree/etc/passwd"; printf 'root:x:0:\n' >"$tree/etc/group"
printf 'root:*:19000:0:99999:7:::\n' >"$tree/etc/shadow"; printf 'root:*::\n' >"$tree/etc/gshadow"
# One file of the release is there already, and is somebody else's.
install -D -m 0644 /dev/stdin "$tree/usr/lib/tmpfiles.d/outrider.conf" <<<"# theirs"
# Tools leave these behind at their first use.
systemd-sysusers --root="$tree" - <<<'u probe - "probe"' >/dev/null 2>&1 || fail "systemd-sysusers does not work below a root"
userdel --prefix "$tree" probe
snapshot "$tree" >"$work/before"
cli=$work/bin/outrider stub=$BED_ROOT/opt/stub
there=("$cli" install --root "$tree" --from "$stub" --coordinator https://127.0.0.1:1 --token-file "$BED_ROOT/opt/token" --name n1 -o json)
back=("$cli" uninstall --root "$tree" --purge -o json)

words() { jq -r '"\(.outcome): \(.error) \([.findings[] | select(.severity == "error") | .message] | join("; "))"' "$work/said" 2>/dev/null || cat "$work/said"; }
killed_at() {                                                       # system call, count, command …
    local call=$1 n=$2; shift 2
    code=0
    # The shell would tell of every one that was killed.
    { strace -qq -e signal=none -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$n" -- "$@" >"$work/said" 2>&1; } 2>/dev/null || code=$?
}
told "${there[@]}"; [ "$code" = 0 ] || fail "the installation below --root failed: $(words)"
snapshot "$tree" >"$work/installed"
grep -v ' outrider-install\|var/lib/outrider-install' "$work/installed" >"$work/installed.files"
told "${there[@]}"; is "the second run has nothing to do" "0 nothing-to-do" "$code $(jq -r .outcome "$work/said")"
told "${back[@]}"; same "a purge leaves what was before" "$work/before" "$tree"
kills=0
for call in fsync rename mkdir symlink unlink; do
    n=0
    while n=$((n + 1)); do
        killed_at $call $n "${there[@]}"
        [ "$code" = 137 ] || break
        kills=$((kills + 1))
        # Every other time the way back starts from the half-done state, else from the completed one.
        if [ $((n % 2)) = 0 ]; then
            told "${there[@]}"; [ "$code" = 0 ] || fail "after a kill before $call $n it does not complete: $(words)"
            snapshot "$tree" | grep -v 'var/lib/outrider-install' | diff "$work/installed.files" - >"$work/diff" || fail "after a kill before $call $n: $(cat "$work/diff")"
        fi
        told "${back[@]}"; [ "$code" = 0 ] || fail "after a kill before $call $n it does not go back: $(words)"
        same "a kill before $call $n, then back" "$work/before" "$tree"
    done
    [ "$code" = 0 ] || fail "$call $n: $(words)"
    told "${back[@]}"
done
ok "killed at $kills points on the way there: run again it completes, and a purge leaves what was before"
row "kill -9 at every step of install" "strace, $kills points before sync, rename, …" "run again: done; purged: as before"
kills=0
for call in fsync rename unlink rmdir unlinkat; do
    n=0
    while n=$((n + 1)); do
        told "${there[@]}"; [ "$code" = 0 ] || fail "$(words)"
        killed_at $call $n "${back[@]}"
        [ "$code" = 137 ] || break
        kills=$((kills + 1))
        told "${back[@]}"; [ "$code" = 0 ] || fail "after a kill of the way back before $call $n: $(words)"
        same "a kill of the way back before $call $n, then again" "$work/before" "$tree"
    done
    [ "$code" = 0 ] || fail "$call $n: $(words)"
    same "the way back" "$work/before" "$tree"
done
ok "killed at $kills points on the way back: run again, what was before is there"
row "kill -9 at every step of uninstall --purge" "strace, $kills points" "run again: as before"

# The disk fills while files are written (a sync says so, as where room is given late), and then there is room again.
code=0
strace -qq -e signal=none -o /dev/null -e trace=fsync -e inject=fsync:error=ENOSPC:when=20+ -- "${there[@]}" >"$work/said" 2>&1 || code=$?
[ "$code" != 0 ] || fail "a full disk is no failure: $(words)"
told "${there[@]}"; is "with room again the same command completes" "0 done" "$code $(jq -r .outcome "$work/said")"
told "${back[@]}"; same "a full disk in the middle, then back" "$work/before" "$tree"
row "the disk fills in the middle" "strace: ENOSPC from the 20th sync on" "failed; run again: done; purged: as before"
