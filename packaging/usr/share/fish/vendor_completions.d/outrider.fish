# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_outrider_global_optspecs
    string join \n context= v/verbose h/help V/version
end

function __fish_outrider_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_outrider_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_outrider_using_subcommand
    set -l cmd (__fish_outrider_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c outrider -n "__fish_outrider_needs_command" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_needs_command" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_needs_command" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "up" -d 'Run everything in one process: a coordinator, the agent of this machine, simulated nodes'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "check" -d 'Look at this machine once, without a coordinator'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "facts" -d 'Print the facts this machine yields, as JSON; no secrets are in them'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "diagnose" -d 'Judge captured facts, offline: facts of one or many nodes in, conditions out'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "install" -d 'Make this machine a managed node: programs, configuration, token, service'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "uninstall" -d 'Take away what `outrider install` made, and nothing else'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "token" -d 'Make, list and revoke enrolment tokens'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "approve" -d 'Let a node in that waits for approval'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "revoke" -d 'Take a node\'s right to speak away, for good'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "label" -d 'Set and remove labels of a node, for -l to select by'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "get" -d 'List nodes, clusters or conditions of the fleet'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "describe" -d 'Show all that is known of one node or cluster'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "explain" -d 'Say what a reason or a condition means and what to do, offline'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "watch" -d 'Follow the fleet: one line for every transition'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "sync" -d 'Say of a hosted cluster (EKS, AKS, GKE) who owns each field, and what becomes of a change'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "userdata" -d 'Judge cloud-init userdata, add to it, and write it'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "login" -d 'Remember a coordinator and its operator token'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "context" -d 'Show and choose the coordinators logged in to'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "completions" -d 'Print the completion script of a shell'
complete -c outrider -n "__fish_outrider_needs_command" -f -a "man" -d 'Write man pages, completions and the reference into a source tree'
complete -c outrider -n "__fish_outrider_using_subcommand up" -l simulate -d 'Play this many more nodes: kept readings through the real rules, with faults that come and go' -r
complete -c outrider -n "__fish_outrider_using_subcommand up" -l for -d 'End by itself after this time, such as 20s or 5m, and print the fleet' -r
complete -c outrider -n "__fish_outrider_using_subcommand up" -l listen -d 'Address the coordinator listens at; port 0 takes a free one [default: 127.0.0.1:8440, or a free port]' -r
complete -c outrider -n "__fish_outrider_using_subcommand up" -l state-dir -d 'Folder for the state of coordinator and agent [default: outrider below $XDG_STATE_HOME or ~/.local/state]' -r -f -a "(__fish_complete_directories)"
complete -c outrider -n "__fish_outrider_using_subcommand up" -l config -d 'Configuration of this machine\'s agent, instead of the installed one' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand up" -s o -l output -d 'How the fleet is printed; json, yaml and name at the end' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand up" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand up" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand up" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand up" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand check" -l only -d 'Only these checks: host, clock, cloud-init, guest-agent, etcd, load-balancer, certificates, credentials, kubernetes, dns, rancher-agent' -r
complete -c outrider -n "__fish_outrider_using_subcommand check" -l config -d 'Read this one file instead of agent.toml and its drop-ins' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand check" -s o -l output -d 'How the conditions are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''
nagios\t''"
complete -c outrider -n "__fish_outrider_using_subcommand check" -l facts-out -d 'Also write the facts that were judged, for `outrider diagnose`' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand check" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand check" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand check" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand facts" -l only -d 'Only these checks: host, clock, cloud-init, guest-agent, etcd, load-balancer, certificates, credentials, kubernetes, dns, rancher-agent' -r
complete -c outrider -n "__fish_outrider_using_subcommand facts" -l config -d 'Read this one file instead of agent.toml and its drop-ins' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand facts" -s o -l output -d 'How the facts are printed' -r -f -a "json\t''
yaml\t''"
complete -c outrider -n "__fish_outrider_using_subcommand facts" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand facts" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand facts" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand facts" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand diagnose" -s o -l output -d 'How the conditions are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand diagnose" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand diagnose" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand diagnose" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand diagnose" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand install" -l coordinator -d 'Coordinator, https://host[:port]; may be repeated, the first one is tried first' -r
complete -c outrider -n "__fish_outrider_using_subcommand install" -l token -d 'Enrolment token, as `outrider token create` printed it; every process sees a command line, --token-file does not show it' -r
complete -c outrider -n "__fish_outrider_using_subcommand install" -l token-file -d 'File with the enrolment token; - reads standard input' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand install" -l cluster -d 'Cluster that the node says it is of; a token that names one decides' -r
complete -c outrider -n "__fish_outrider_using_subcommand install" -l name -d 'Name of the node [default: the host name]' -r
complete -c outrider -n "__fish_outrider_using_subcommand install" -l profile -d 'What the machine is [default: generic]' -r -f -a "harvester-vm\t''
rancher-ha-server\t''
rancher-ha-agent\t''
k3s-server\t''
k3s-agent\t''
eksa-admin\t''
eksa-node\t''
generic\t''"
complete -c outrider -n "__fish_outrider_using_subcommand install" -l from -d 'Where the programs come from: the folder that holds a release\'s usr, or its .tar.gz [default: the release that this program lies in; where the machine has the programs already, none]' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand install" -l root -d 'Work on the tree of an image in this folder instead of this machine' -r -f -a "(__fish_complete_directories)"
complete -c outrider -n "__fish_outrider_using_subcommand install" -s o -l output -d 'How it is printed' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c outrider -n "__fish_outrider_using_subcommand install" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand install" -l dry-run -d 'Say what would be done, and do nothing'
complete -c outrider -n "__fish_outrider_using_subcommand install" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand install" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -l root -d 'Work on the tree of an image in this folder instead of this machine' -r -f -a "(__fish_complete_directories)"
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -s o -l output -d 'How it is printed' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -l purge -d 'Take settings, token, identity and users too: nothing is left, and the machine needs a new token to be a node again'
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -l dry-run -d 'Say what would be done, and do nothing'
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand uninstall" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -f -a "create" -d 'Make a token that lets machines ask to be nodes; it is shown this once'
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -f -a "list" -d 'List tokens, without their secrets'
complete -c outrider -n "__fish_outrider_using_subcommand token; and not __fish_seen_subcommand_from create list revoke" -f -a "revoke" -d 'End tokens at once; nodes already enrolled stay'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l ttl -d 'Life of the token, such as 24h or 90d [default: 24h; with --pool, no end]' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l uses -d 'Nodes it admits [default: 1; with --pool, no limit]' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l name-pattern -d 'Node names it may be used for, as a glob such as \'pool1-*\'' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l rate-per-hour -d 'New nodes an hour that the pattern admits without approval; 0 means that each waits for `outrider approve`' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l cluster -d 'Cluster its nodes are shown under' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -s o -l output -d 'How the token is printed; table prints the token alone' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l pool -d 'Live as long as a node pool, so that a replacement machine months later still joins'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -l admit-seen-vm -d 'Admit a machine without approval when the coordinator sees it at Harvester: one running VM of this name with its MAC or system UUID, which no living node is'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from create" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from list" -s o -l output -d 'How the tokens are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from list" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from revoke" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from revoke" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand token; and __fish_seen_subcommand_from revoke" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand approve" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand approve" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand approve" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand approve" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand revoke" -s o -l output -d 'How they are printed' -r -f -a "table\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand revoke" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand revoke" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand revoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand revoke" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand label" -s o -l output -d 'How the node is printed' -r -f -a "table\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand label" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand label" -l overwrite -d 'Change labels that have another value already'
complete -c outrider -n "__fish_outrider_using_subcommand label" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand label" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand label" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand get" -s o -l output -d 'How they are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''
jsonpath=TEMPLATE\t''"
complete -c outrider -n "__fish_outrider_using_subcommand get" -s l -l selector -d 'Only nodes with these labels, such as \'team=a,tier!=test\'; conditions follow their nodes' -r
complete -c outrider -n "__fish_outrider_using_subcommand get" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand get" -s w -l watch -d 'Go on and print what changes'
complete -c outrider -n "__fish_outrider_using_subcommand get" -l no-headers -d 'Leave the title row out'
complete -c outrider -n "__fish_outrider_using_subcommand get" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand get" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand describe" -s o -l output -d 'How it is printed' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c outrider -n "__fish_outrider_using_subcommand describe" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand describe" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand describe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand describe" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand explain" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand explain" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand explain" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand explain" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand watch" -s o -l output -d 'How transitions are printed; json is one document a line' -r -f -a "table\t''
json\t''
yaml\t''"
complete -c outrider -n "__fish_outrider_using_subcommand watch" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand watch" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand watch" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand watch" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -f -a "explain" -d 'A row a field and a row a pool: desired, upstream, whose it is, what comes next, what may be lost'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -f -a "plan" -d 'What a push would write and delete, and why each write is held'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and not __fish_seen_subcommand_from explain plan simulate" -f -a "simulate" -d 'Play a timeline of changes, and tell which are lost under Rancher\'s loops and under ours'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -s f -l file -d 'What `kubectl get clusters.management.cattle.io NAME -o yaml` prints, or an EKSClusterConfig and its likes; - reads standard input' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -l upstream -d 'The cloud\'s view as it is now, with the fields of an upstreamSpec, where it is newer than the object\'s own' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -l as -d 'By whose rules refresh and push are told: outrider, or rancher as its code does it' -r -f -a "outrider\t''
rancher\t''"
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -l interval -d 'Time between two refreshes, as Rancher\'s settings eks-refresh, aks-refresh and gke-refresh have it' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -l at -d 'Judge as of this time (RFC 3339) instead of now, for an object that was saved earlier' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -s o -l output -d 'How the fields are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from explain" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -s f -l file -d 'What `kubectl get clusters.management.cattle.io NAME -o yaml` prints, or an EKSClusterConfig and its likes; - reads standard input' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -l upstream -d 'The cloud\'s view as it is now, with the fields of an upstreamSpec, where it is newer than the object\'s own' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -l as -d 'By whose rules refresh and push are told: outrider, or rancher as its code does it' -r -f -a "outrider\t''
rancher\t''"
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -l interval -d 'Time between two refreshes, as Rancher\'s settings eks-refresh, aks-refresh and gke-refresh have it' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -l at -d 'Judge as of this time (RFC 3339) instead of now, for an object that was saved earlier' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -l confirm -d 'Plan as if this field or pool were confirmed, such as tags or nodeGroups/n2; may be repeated' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -s o -l output -d 'How the plan is printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from plan" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from simulate" -s f -l file -d 'The cluster it happens to, as for `explain`; the timeline then says only what differs' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from simulate" -s o -l output -d 'How the writes are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from simulate" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from simulate" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from simulate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand sync; and __fish_seen_subcommand_from simulate" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -f -a "lint" -d 'Find what cloud-init would ignore, drop or misread, with its place and the cure'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -f -a "merge" -d 'Add ours to theirs: one cloud-config, with everything that was there as it was written'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and not __fish_seen_subcommand_from lint merge render" -f -a "render" -d 'Write userdata that makes a machine a node: guest agent, agent, its configuration and token'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -l platform -d 'Who takes it: its limits and habits are held against the document' -r -f -a "harvester\t''
rancher-machine\t''
kubevirt\t''
aws\t''
azure\t''
gce\t''
openstack\t''
digitalocean\t''
hetzner\t''
vmware\t''
nocloud\t''"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -l field -d 'Where it lies in a VM\'s spec; base64 is decoded, and what counts is what it decodes to' -r -f -a "plain\t'userData: plain text'
base64\t'userDataBase64: encoded once'
secret\t'A Secret that the spec refers to'"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -l cloud-init -d 'The image\'s release of cloud-init, such as 22.4.2: what does not concern it is left out' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -s o -l output -d 'How the findings are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -l verify -d 'Ask `cloud-init schema` as well, where it is installed, and tell where the two differ'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -l strict -d 'End with 1 for a warning too'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from lint" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l profile -d 'Add what `render` makes for this profile' -r -f -a "harvester-vm\t''
rancher-ha-server\t''
rancher-ha-agent\t''
k3s-server\t''
eksa-node\t''
eksa-admin\t''"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l coordinator -d 'Coordinator, https://host[:port]; may be repeated, the first one is tried first' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l token -d 'Enrolment token, as `outrider token create` printed it; every process sees a command line, --token-file does not show it' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l token-file -d 'File with the enrolment token; - reads standard input' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l cluster -d 'Cluster that the node says it is of; a token that names one decides' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l load-balancer -d 'Load balancer in front of Rancher that the node watches (profiles rancher-ha-server, rancher-ha-agent, k3s-server)' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l agent -d 'Where the agent comes from: image (installed there), package or package:NAME (of a repository the image knows, or --repo), coordinator or coordinator:tar|deb|rpm (the first coordinator serves it, and is asked now for its SHA-256), the path of a .tar.gz, .deb or .rpm in the image, or the https URL of one, in which {arch} is what `uname -m` says. At the coordinator\'s own host and port the CA is the one that the token pins, and the token is shown [default: image]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l sha256 -d 'SHA-256 of what is downloaded; of several architectures each as x86_64=HEX. With --agent coordinator nobody is asked then' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l repo -d 'Signed repository that `--agent package` comes from, as packaging/repository makes it (below the URL deb/ for apt, rpm/ for zypper and dnf): the document sets it up, for every family, and installs from it' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l repo-key -d 'Its public key in ASCII armour: a file, which goes into the document, or a URL and the SHA-256 of what lies there' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l guest-agent -d 'Where the QEMU guest agent comes from: package, image, the path of a .deb or .rpm in the image, or none [default: package; none for eksa-node and eksa-admin]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l format -d 'Form of the output' -r -f -a "userdata\t'The document itself'
base64\t'For a field that is decoded once, such as userDataBase64'
secret\t'A Kubernetes Secret with the keys userdata and networkdata'
rancher-machine-pool\t'userData and networkData of a Rancher machine pool on Harvester (HarvesterConfig)'
terraform\t'Terraform: a local and a harvester_cloudinit_secret'
network\t'Network data alone, for what --mac or --interface names'"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l name -d 'Name of the object that secret, rancher-machine-pool and terraform make' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l namespace -d 'Its namespace [default: default; fleet-default for rancher-machine-pool]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l mac -d 'MAC address of the interface that network data sets up; the same outside and inside the guest' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l interface -d 'Its name in the guest instead, which differs between images (eth0, enp1s0)' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l address -d 'Address with its prefix, such as 192.0.2.10/24; may be repeated [default: DHCP]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l gateway -d 'Gateway; one a family' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l nameserver -d 'Name server; may be repeated' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l search -d 'Search domain; may be repeated' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l out -d 'Write to this file (mode 0600) instead of standard output' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from merge" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l profile -d 'What the machine is; only --format network does without' -r -f -a "harvester-vm\t''
rancher-ha-server\t''
rancher-ha-agent\t''
k3s-server\t''
eksa-node\t''
eksa-admin\t''"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l coordinator -d 'Coordinator, https://host[:port]; may be repeated, the first one is tried first' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l token -d 'Enrolment token, as `outrider token create` printed it; every process sees a command line, --token-file does not show it' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l token-file -d 'File with the enrolment token; - reads standard input' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l cluster -d 'Cluster that the node says it is of; a token that names one decides' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l load-balancer -d 'Load balancer in front of Rancher that the node watches (profiles rancher-ha-server, rancher-ha-agent, k3s-server)' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l agent -d 'Where the agent comes from: image (installed there), package or package:NAME (of a repository the image knows, or --repo), coordinator or coordinator:tar|deb|rpm (the first coordinator serves it, and is asked now for its SHA-256), the path of a .tar.gz, .deb or .rpm in the image, or the https URL of one, in which {arch} is what `uname -m` says. At the coordinator\'s own host and port the CA is the one that the token pins, and the token is shown [default: image]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l sha256 -d 'SHA-256 of what is downloaded; of several architectures each as x86_64=HEX. With --agent coordinator nobody is asked then' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l repo -d 'Signed repository that `--agent package` comes from, as packaging/repository makes it (below the URL deb/ for apt, rpm/ for zypper and dnf): the document sets it up, for every family, and installs from it' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l repo-key -d 'Its public key in ASCII armour: a file, which goes into the document, or a URL and the SHA-256 of what lies there' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l guest-agent -d 'Where the QEMU guest agent comes from: package, image, the path of a .deb or .rpm in the image, or none [default: package; none for eksa-node and eksa-admin]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l format -d 'Form of the output' -r -f -a "userdata\t'The document itself'
base64\t'For a field that is decoded once, such as userDataBase64'
secret\t'A Kubernetes Secret with the keys userdata and networkdata'
rancher-machine-pool\t'userData and networkData of a Rancher machine pool on Harvester (HarvesterConfig)'
terraform\t'Terraform: a local and a harvester_cloudinit_secret'
network\t'Network data alone, for what --mac or --interface names'"
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l name -d 'Name of the object that secret, rancher-machine-pool and terraform make' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l namespace -d 'Its namespace [default: default; fleet-default for rancher-machine-pool]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l mac -d 'MAC address of the interface that network data sets up; the same outside and inside the guest' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l interface -d 'Its name in the guest instead, which differs between images (eth0, enp1s0)' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l address -d 'Address with its prefix, such as 192.0.2.10/24; may be repeated [default: DHCP]' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l gateway -d 'Gateway; one a family' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l nameserver -d 'Name server; may be repeated' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l search -d 'Search domain; may be repeated' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l out -d 'Write to this file (mode 0600) instead of standard output' -r -F
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand userdata; and __fish_seen_subcommand_from render" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand login" -l token -d 'Operator token; without it $OUTRIDER_TOKEN or one line of standard input is used, which no process list shows' -r
complete -c outrider -n "__fish_outrider_using_subcommand login" -l ca-checksum -d 'SHA-256 of the coordinator\'s root certificate (DER), in hex, to hold against the one that the token pins' -r
complete -c outrider -n "__fish_outrider_using_subcommand login" -l name -d 'Name to remember it by [default: its host]' -r
complete -c outrider -n "__fish_outrider_using_subcommand login" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand login" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand login" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c outrider -n "__fish_outrider_using_subcommand login" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -f -a "list" -d 'List the coordinators logged in to; * marks the one in use'
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -f -a "use" -d 'Use this one from now on'
complete -c outrider -n "__fish_outrider_using_subcommand context; and not __fish_seen_subcommand_from list use remove" -f -a "remove" -d 'Forget this one and its token'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from list" -s o -l output -d 'How they are printed' -r -f -a "table\t''
wide\t''
json\t''
yaml\t''
name\t''"
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from list" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from use" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from use" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from use" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from use" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from remove" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from remove" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand context; and __fish_seen_subcommand_from remove" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand completions" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand completions" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand completions" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand completions" -s V -l version -d 'Print version'
complete -c outrider -n "__fish_outrider_using_subcommand man" -l context -d 'Coordinator to talk to, by the name it was logged in under' -r
complete -c outrider -n "__fish_outrider_using_subcommand man" -s v -l verbose -d 'Say on standard error what goes on; twice for more'
complete -c outrider -n "__fish_outrider_using_subcommand man" -s h -l help -d 'Print help'
complete -c outrider -n "__fish_outrider_using_subcommand man" -s V -l version -d 'Print version'
