#!/usr/bin/env bash
# Userdata judged, written and booted: the faults of the cases beside what `cloud-init schema` says of them, every profile
# from every source, Terraform's own reading, and first boots of a machine of its own with systemd and cloud-init.
set -euo pipefail
cd "$(dirname "$0")/../.."
boots=yes
why() { boots=no; echo "no first boots: $1"; }
[ "$(id -u)" = 0 ] || why "a machine of its own needs root"
for tool in mmdebstrap unshare nsenter openssl curl; do
    command -v $tool >/dev/null || why "$tool is missing (tests/run installs it as root on Debian)"
done
grep -q cgroup2 /proc/mounts || why "no cgroup2 is mounted, which systemd needs"
if [ $boots = yes ]; then
    . tests/beds/container/bed.sh
    bed_enter "$0" "$@"
fi
bin=$(realpath "${OUTRIDER_BIN:-target/debug}")
outrider=$bin/outrider
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work NO_COLOR=1

passed=0 rows=()
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
fail() { printf 'FAIL  %s\n' "$1"; exit 1; }
is() { if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: expected \"$2\", found \"$3\""; fi; }
row() { rows+=("$1|$2|$3|${4:--}"); }                               # fault, how made, seen, what cloud-init schema says
token=OR1$(printf 'a1%.0s' {1..32})::abcd1234:secret0123456789secret0123456789
schema() {                                                          # file -> valid, invalid or -
    command -v cloud-init >/dev/null || { echo -; return; }
    if cloud-init schema --config-file "$1" >"$work/schema.out" 2>&1; then echo valid; else echo invalid; fi
}

# --- the faults, by both judges -----------------------------------------------------------------------------------------
. tests/suites/userdata/faults.sh

# --- what is rendered, by both judges -----------------------------------------------------------------------------------
sum=$(printf 'cd%.0s' {1..32}) n=0
for profile in harvester-vm rancher-ha-server rancher-ha-agent k3s-server eksa-node eksa-admin; do
    for agent in image package /opt/outrider.tar.gz /opt/outrider.rpm 'https://o.example:8440/install/outrider-{arch}.tar.gz' https://mirror.example/outrider.deb; do
        more=(); [[ $agent != https* ]] || more=(--sha256 "x86_64=$sum" --sha256 "aarch64=$sum")
        "$outrider" userdata render --profile $profile --coordinator https://o.example:8440 --token "$token" --cluster prod \
            --agent "$agent" "${more[@]}" --out "$work/node.yaml"
        "$outrider" userdata lint --platform nocloud --strict "$work/node.yaml" >"$work/lint.out" || fail "$profile, $agent: $(cat "$work/lint.out")"
        [ "$(schema "$work/node.yaml")" != invalid ] || fail "$profile, $agent: $(cat "$work/schema.out")"
        bytes=$(stat -c %s "$work/node.yaml")
        [ $profile != harvester-vm ] || [ "$bytes" -le 2048 ] || fail "$profile, $agent: $bytes bytes"
        n=$((n + 1))
    done
done
row "$n combinations of profile and source" "outrider userdata render" "one cloud-config, lint --strict ends with 0" "$(schema "$work/node.yaml")"
ok "$n combinations are one cloud-config each that both judges take; harvester-vm fits into 2048 bytes"
render() { "$outrider" userdata render --profile harvester-vm --coordinator https://o.example:8440 --token "$token" "$@"; }
render >"$work/plain"
is "base64 decodes to it" "$(cat "$work/plain")" "$(render --format base64 | base64 -d)"
for form in 'secret data userdata' 'rancher-machine-pool userData'; do
    set -- $form
    render --format "$1" --mac 52:54:00:00:00:01 >"$work/object"
    is "$1 holds it" "$(cat "$work/plain")" "$(python3 -c '
import base64, sys, yaml
node = yaml.safe_load(open(sys.argv[1]))
for key in sys.argv[2:]: node = node[key]
sys.stdout.write(base64.b64decode(node).decode())' "$work/object" "${@:2}")"
done
download=(--agent 'https://o.example:8440/install/outrider-{arch}.tar.gz' --sha256 "$sum")
render "${download[@]}" >"$work/plain"
render "${download[@]}" --format terraform >"$work/main.tf"
terraform=$(command -v terraform || command -v tofu || true)
if [ -n "$terraform" ]; then
    mkdir "$work/tf"
    # The locals alone: the resource would want the provider from a registry.
    sed '/^resource /,$d' "$work/main.tf" >"$work/tf/main.tf"
    echo 'output "userdata" { value = local.outrider_userdata_userdata }' >>"$work/tf/main.tf"
    : >"$work/tf.rc"
    (cd "$work/tf" && export TF_CLI_CONFIG_FILE="$work/tf.rc" CHECKPOINT_DISABLE=1
        "$terraform" init -input=false >out 2>&1 && "$terraform" apply -auto-approve -input=false >>out 2>&1 || { cat out; exit 1; }
        "$terraform" output -raw userdata) >"$work/read" || fail "terraform does not take it: $(tail -n 5 "$work/read")"
    cmp "$work/plain" "$work/read" || fail "terraform reads another text"
    ok "terraform reads it back byte for byte"
    row "a script with quotes and \$(…) in Terraform" "--format terraform, terraform output -raw" "the same bytes"
else
    echo "skipped: terraform is not installed"
fi

# --- the recipes, one after the other: docs/userdata.md, and of docs/install.md what is done with userdata -----------------
for page in userdata install; do
    awk -v folder="$work" -v page=$page '
        /^## / { here = page == "userdata" || $0 == "## With userdata" }
        /^```sh$/ && here { n++; file = sprintf("%s/recipe-%s%02d", folder, page, n); print "# docs/" page ".md:" NR > file; inside = 1; next }
        /^```/ { inside = 0 }
        inside { print > file }' docs/$page.md
done
[ -e "$work/recipe-install01" ] || fail "docs/install.md has no recipe in its section With userdata"
mkdir "$work/recipes"
for recipe in "$work"/recipe-*; do
    (cd "$work/recipes" && PATH=$bin:$PATH bash -eu "$recipe") >"$recipe.out" 2>&1 </dev/null || { tail -n 15 "$recipe.out"; fail "$(head -n 1 "$recipe")"; }
    ok "$(head -n 1 "$recipe" | sed 's/^# //')"
done

# --- first boots --------------------------------------------------------------------------------------------------------
[ $boots = no ] || . tests/suites/userdata/boots.sh

{
    echo "fault|made by|seen|cloud-init schema"
    printf '%s\n' "${rows[@]}"
} | awk -F'|' '{ printf "  %-46s %-50s %-46s %s\n", $1, $2, $3, $4 }'
echo "test result: ok. $passed passed; 0 failed;"
