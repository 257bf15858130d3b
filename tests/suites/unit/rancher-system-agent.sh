# rancher-system-agent on a machine with the packaged agent: sourced by tests/suites/unit.sh.
#
# The unit has the directives of Rancher's own, the files its modes and owners, and a stand-in for the program does what the
# real one does at its start: it refuses a file whose mode is not exactly 0600 or whose owner is not its own, and ends with 1.

system_agent=rancher-system-agent.service
connection=/var/lib/rancher/agent/rancher2_connection_info.json
# The reason of one condition of the check; an error while there is none.
rancher_reason() { status | jq -er --arg s "$1" '.conditions[] | select(.type == "RancherAgentReady" and (.subject // "") == $s) | .reason'; }
rancher_says() { status | jq -r --arg s "$1" '.conditions[] | select(.type == "RancherAgentReady" and (.subject // "") == $s) | .message + " " + (.advice // "")'; }
rancher_is() { [ "$(rancher_reason "$1")" = "$2" ]; }
rancher_fact() { read_facts; fact ".checks.rancherAgent.value.$1"; }

bed sh -c 'cat >/usr/local/bin/rancher-system-agent && chmod 755 /usr/local/bin/rancher-system-agent' <<'P'
#!/bin/sh
for file in /etc/rancher/agent/config.yaml /var/lib/rancher/agent/rancher2_connection_info.json; do
    [ "$(stat -c '%a %u %g' "$file")" = '600 0 0' ] || { echo "level=fatal msg=\"file $file had permissions or an owner that were not expected\"" >&2; exit 1; }
done
touch /var/lib/rancher/agent/applied/20261129-180500-applied.plan
exec sleep infinity
P
bed sh -c 'umask 077 && mkdir -p /etc/rancher/agent /var/lib/rancher/agent/work /var/lib/rancher/agent/applied /var/lib/rancher/agent/interlock /var/lib/rancher/agent/plans &&
    cat >/etc/rancher/agent/config.yaml' <<'P'
workDirectory: /var/lib/rancher/agent/work
appliedPlanDirectory: /var/lib/rancher/agent/applied
interlockDirectory: /var/lib/rancher/agent/interlock
localPlanDirectory: /var/lib/rancher/agent/plans
localEnabled: false
remoteEnabled: true
connectionInfoFile: /var/lib/rancher/agent/rancher2_connection_info.json
P
authority=$(bed base64 -w0 "$tls/server-ca.crt")
jq -n --arg ca "$authority" '{namespace: "fleet-default", secretName: "custom-abc-machine-plan",
    kubeConfig: ("apiVersion: v1\nkind: Config\nclusters:\n- name: agent\n  cluster:\n    server: https://rancher.bed.example\n    certificate-authority-data: " + $ca +
        "\ncontexts:\n- name: agent\n  context: {cluster: agent, user: agent}\ncurrent-context: agent\nusers:\n- name: agent\n  user: {token: s3cret-token}\n")}' |
    bed sh -c "umask 077 && cat >$connection"
bed sh -c 'umask 077 && printf "HTTPS_PROXY=http://u:s3cret-proxy@proxy.example:3128\n" >/etc/systemd/system/rancher-system-agent.env
    cat >/etc/systemd/system/rancher-system-agent.service' <<'P'
[Unit]
Description=Rancher System Agent
Wants=network-online.target
After=network-online.target

[Service]
EnvironmentFile=-/etc/default/rancher-system-agent
EnvironmentFile=-/etc/sysconfig/rancher-system-agent
EnvironmentFile=-/etc/systemd/system/rancher-system-agent.env
Type=simple
Restart=always
RestartSec=5s
Environment=CATTLE_LOGLEVEL=info
Environment=CATTLE_AGENT_CONFIG=/etc/rancher/agent/config.yaml
Environment=CATTLE_AGENT_STRICT_VERIFY=true
ExecStart=/usr/local/bin/rancher-system-agent sentinel

[Install]
WantedBy=multi-user.target
P
bed sh -c 'printf "[checks.rancher-agent]\ninterval = \"2s\"\n" >/etc/outrider/agent.toml.d/rancher-agent.toml &&
    systemctl daemon-reload && systemctl enable --quiet --now rancher-system-agent.service && systemctl reload outrider-agent'
t=$(now)
until_true 60 "rancher-system-agent is seen to run" rancher_is "" RancherAgentRunning
until_true 60 "and to be connected" rancher_is connection RancherAgentConnected
row "none" "rancher-system-agent's unit and files" "RancherAgentRunning, RancherAgentConnected" "$(took "$t")"
as_agent cat $connection >/dev/null 2>&1 && fail "the daemon's user can read the connection file by itself"
is "their modes and owners reach the agent through the helper" "384 0 0 384 0 0" \
    "$(rancher_fact 'agent.value | "\(.config.value.file | "\(.mode) \(.uid) \(.gid)") \(.connection.value.file | "\(.mode) \(.uid) \(.gid)")"')"
is "and where it goes, whom it trusts and how" "https://rancher.bed.example fleet-default/custom-abc-machine-plan CN=rke2-server-ca@1 true" \
    "$(rancher_fact 'agent.value | "\(.connection.value | "\(.server) \(.namespace)/\(.secretName) \(.authorities.value[0].subject)") \(.strictVerify.value)"')"
is "and its last plan, by name and time alone" 1 "$(rancher_fact 'agent.value.plans.value.begun')"
is "and its proxy without the password" 'http://***@proxy.example:3128' \
    "$(rancher_fact 'proxies[] | select(.program == "rancher-system-agent") | .variables.value[] | select(.name == "HTTPS_PROXY") | .value')"
case $facts in *s3cret*) fail "a secret of rancher-system-agent is in the facts" ;; esac
ok "no token and no password is in the facts"

# Somebody tidied up modes; the process that runs has read its files before.
bed chmod 0644 $connection
t=$(now)
until_true 120 "a mode that it will refuse is told while it runs" rancher_is connection RancherAgentFilesRefused
row "a mode of 0644 on the connection file" "chmod, the process runs on" "RancherAgentFilesRefused warn" "$(took "$t")"
case $(rancher_says connection) in *"at its next start"*0644*"chmod 0600"*) ok "with the mode, when it matters and what to do" ;; *) fail "$(rancher_says connection)" ;; esac

# It is restarted, and from now on ends at once, for ever. systemd calls it active or activating by turns.
bed systemctl restart $system_agent
t=$(now)
until_true 90 "a restart loop is told" rancher_is "" RancherAgentRestarting
row "it ends and is restarted for ever" "systemctl restart" "RancherAgentRestarting error" "$(took "$t")"
case $(rancher_says "") in *"ended with exit code 1"*"go on showing this node as running"*) ok "with how it ends, and that Rancher may show the node as running" ;; *) fail "$(rancher_says "")" ;; esac
bed chmod 0600 $connection
t=$(now)
until_true 180 "the cure is told" rancher_is "" RancherAgentRunning
until_true 60 "of its files as well" rancher_is connection RancherAgentConnected
row "and is cured" "chmod 0600" "RancherAgentRunning" "-" "$(took "$t")"

# A plan that is under way for over an hour, and an installer that was cut short.
bed touch -d '2 hours ago' /var/lib/rancher/agent/interlock/applyinator-active
t=$(now)
until_true 60 "a plan that hangs is told" rancher_is "" RancherAgentPlanStuck
row "a plan hangs" "applyinator-active, 2 h old" "RancherAgentPlanStuck warn" "$(took "$t")"
bed rm /var/lib/rancher/agent/interlock/applyinator-active
t=$(now)
until_true 90 "and that it went on" rancher_is "" RancherAgentRunning
row "and goes on" "the file is gone" "RancherAgentRunning" "-" "$(took "$t")"

bed systemctl disable --quiet --now $system_agent
t=$(now)
until_true 120 "a stopped agent is told" rancher_is "" RancherAgentStopped
row "rancher-system-agent is stopped" "systemctl disable --now" "RancherAgentStopped" "$(took "$t")"
bed rm -rf /etc/systemd/system/rancher-system-agent.service /etc/systemd/system/rancher-system-agent.env /etc/rancher/agent /var/lib/rancher/agent \
    /usr/local/bin/rancher-system-agent /etc/outrider/agent.toml.d/rancher-agent.toml
bed sh -c 'systemctl daemon-reload && systemctl reload outrider-agent'
