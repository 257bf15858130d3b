# The programs as they are handed out: what glibc they need, how large a node's package is. Building them takes long, so this is
# done where packaging/build was run before (or OUTRIDER_DIST names the folder).   sourced by packages.sh
dist=${OUTRIDER_DIST:-target/x86_64-unknown-linux-gnu/packaged}
if [ ! -x "$dist/outrider" ] || [ ! -x "$dist/outrider-coordinator" ]; then
    echo "skipped: $dist is not built; packaging/build does it"
    return 0
fi
for program in outrider outrider-agent outrider-helper outrider-guest-agent outrider-coordinator; do
    newest=$(objdump -T "$dist/$program" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
    printf '%s\n' "$newest" GLIBC_2.28 | sort -CV || fail "$program needs $newest"
    ok "$program needs $newest, at most 2.28"
done
packaging/build deb --bin "$dist" --out "$work/dist" >/dev/null
size=$(dpkg-deb -f "$work/dist/outrider-agent_0.1.0-1_amd64.deb" Installed-Size)
# The budget is 15 MiB (docs/performance.md): this holds what was reached on the way there.
[ "$size" -le 21504 ] || fail "a node's package takes $size KiB, more than 21 MiB"
ok "a node's package takes $size KiB installed, $(($(stat -c %s "$work/dist/outrider-agent_0.1.0-1_amd64.deb") / 1024)) KiB to download"
said=$("$dist/outrider" up 2>&1 && echo "it went on") || true
grep -q 'has no coordinator in it' <<<"$said" || fail "a node's outrider up: $said"
ok "a node's outrider says of up: $said"
