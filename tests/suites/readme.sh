#!/usr/bin/env bash
# Every recipe of the README runs as written. A recipe is a code block marked `sh`; one marked `sh no-run` is shown, not
# run (it needs a cluster, root or an hour). `cargo run … --bin outrider --` is answered by the binary that is already
# built, so that a recipe costs no second build.
set -uo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
export HOME=$home XDG_STATE_HOME=$home/state XDG_CONFIG_HOME=$home/config NO_COLOR=1
[ -f README.md ] || { echo "README.md is missing"; exit 1; }

mkdir "$home/recipes" "$home/bin" "$home/work"
awk -v folder="$home/recipes" '
    /^```sh( |$)/ && !/no-run/ { n++; file = sprintf("%s/%02d", folder, n); print "# README.md:" NR > file; inside = 1; next }
    /^```/ { inside = 0; next }
    inside { print > file }' README.md
real_cargo=$(command -v cargo)
cat >"$home/bin/cargo" <<SH
#!/usr/bin/env bash
# \`cargo run [--release] --bin NAME -- ARGS\` runs what is built; the rest is cargo.
if [ "\$1" = run ]; then
    while [ \$# -gt 0 ]; do
        case \$1 in --bin) name=\$2; shift ;; --) shift; exec "$OUTRIDER_BIN/\$name" "\$@" ;; esac
        shift
    done
fi
HOME=$(printf '%q' "${CARGO_HOME_PARENT:-$(getent passwd "$(id -u)" | cut -d: -f6)}") exec "$real_cargo" "\$@"
SH
chmod +x "$home/bin/cargo"
export PATH=$home/bin:$OUTRIDER_BIN:$PATH

passed=0 failed=0
for recipe in "$home"/recipes/*; do
    [ -f "$recipe" ] || { echo "the README has no recipe marked sh"; exit 1; }
    where=$(head -n 1 "$recipe" | sed 's/^# //')
    # In a folder of its own: a recipe leaves nothing in the tree.
    if cd "$home/work" && timeout 120 bash -eu "$recipe" >"$recipe.out" 2>&1 </dev/null; then
        passed=$((passed + 1)); echo "ok    $where"
    else
        failed=$((failed + 1)); echo "FAIL  $where ended with $?"; sed 's/^/      /' "$recipe"; tail -n 15 "$recipe.out" | sed 's/^/    > /'
    fi
done
echo "test result: $([ $failed = 0 ] && echo ok || echo FAILED). $passed passed; $failed failed;"
[ $failed = 0 ]
