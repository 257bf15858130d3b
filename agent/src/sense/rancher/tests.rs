//! Prepared machines, told in every way there is.

use proptest::prelude::*;

use super::*;
use crate::sense::prepared::Machine;

const UNIT: &str = "/etc/systemd/system/k3s.service";

/// As K3s' installer writes it: the file ends with a line that goes on.
fn installed(arguments: &[&str]) -> String {
    let words: String = arguments.iter().map(|word| format!("\t'{word}' \\\n")).collect();
    format!(
        "[Unit]\nDescription=Lightweight Kubernetes\nWants=network-online.target\n\n[Install]\nWantedBy=multi-user.target\n\n\
         [Service]\nType=notify\nEnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/sysconfig/%N\n\
         EnvironmentFile=-/etc/systemd/system/k3s.service.env\nKillMode=process\n\
         ExecStartPre=-/sbin/modprobe br_netfilter\nExecStart=/usr/local/bin/k3s \\\n    server \\\n{words}\n"
    )
}

fn told(machine: &Machine, program: &Program) -> Told {
    read(&Opened(&*machine.cx().opener), program)
}

fn options(machine: &Machine) -> Options {
    let told = told(machine, &K3S);
    assert_eq!(told.problem, None);
    told.options
}

fn merged(files: &[&str]) -> Options {
    let mut options = Options::default();
    files.iter().for_each(|file| options.merge(file.as_bytes()).unwrap());
    options
}

fn ips(options: &Options) -> Vec<String> {
    options.node_ips().iter().map(ToString::to_string).collect()
}

#[test]
fn a_later_file_replaces_and_a_plus_adds() {
    let first = "data-dir: /data/one\nnode-ip: [10.0.0.1, 'fd00::1']\n";
    let of = |more: &[&str]| merged(&[&[first][..], more].concat());
    assert_eq!(ips(&of(&[])), ["10.0.0.1", "fd00::1"]);
    assert_eq!(ips(&of(&["node-ip: 'fd00::2,10.0.0.2'"])), ["fd00::2", "10.0.0.2"]);
    // What is added comes last: the family of the first stays.
    assert_eq!(ips(&of(&["node-ip+: ['fd00::2']"])), ["10.0.0.1", "fd00::1", "fd00::2"]);
    assert_eq!(ips(&merged(&["node-ip+: 'fd00::2'"])), ["fd00::2"]);
    // Of a flag that takes one value the last counts, however it came.
    assert_eq!(of(&["data-dir+: /data/two"]).data_dir(), Some("/data/two"));
    assert_eq!(merged(&["data-dir: [/data/a, /data/b]"]).data_dir(), Some("/data/b"));
    // An empty one unsets it.
    assert_eq!(of(&["data-dir: ''"]).data_dir(), None);
    assert_eq!(of(&["data-dir:"]).data_dir(), None);
    assert_eq!(of(&["data-dir: []"]).data_dir(), None);
}

#[test]
fn files_of_comments_and_keys_given_twice_are_understood() {
    assert_eq!(merged(&["# nothing yet\n", "---\n", "~", "", "\n"]), Options::default());
    assert_eq!(merged(&["data-dir: /a\ndata-dir: /b\n"]).data_dir(), Some("/b"));
    let json = merged(&[r#"{ "disable-etcd": true, "etcd-s3": "1", "node-ip": "fd00::2,10.0.0.1" }"#]);
    assert!(json.disable_etcd() && json.object_storage() && json.node_ips()[0].is_ipv6());
    for (text, expected) in
        [("'true'", true), ("yes", true), ("T", true), ("false", false), ("''", false), ("2", false)]
    {
        assert_eq!(
            merged(&[&format!("etcd-disable-snapshots: {text}")]).snapshots_disabled(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_broken_file_is_named_without_its_content() {
    let error = Options::default().merge(b"token: s3cret\n- x").unwrap_err();
    assert!(!error.contains("s3cret"));
    let machine = Machine::new();
    machine.write("/etc/rancher/k3s/config.yaml", "token: [s3cret");
    machine.write("/etc/rancher/k3s/config.yaml.d/a.yaml", "data-dir: /data");
    let told = told(&machine, &K3S);
    let problem = told.problem.unwrap().to_string();
    assert!(problem.contains("/etc/rancher/k3s/config.yaml") && !problem.contains("s3cret"), "{problem}");
    assert_eq!(told.options.data_dir(), Some("/data"), "what can be read is in force");
}

#[test]
fn drop_ins_count_by_name_with_either_ending() {
    let machine = Machine::new();
    for (name, folder) in
        [("50-rancher.yaml", "/b"), ("10-first.yml", "/a"), ("60.YML", "/c"), ("90.conf", "/d")]
    {
        machine.write(&format!("/etc/rancher/k3s/config.yaml.d/{name}"), &format!("data-dir: {folder}"));
    }
    assert_eq!(options(&machine).data_dir(), Some("/c"));
}

#[test]
fn the_command_line_is_the_units_and_comes_after_the_configuration() {
    let machine = Machine::new();
    machine.write("/etc/rancher/k3s/config.yaml", "data-dir: /data/config\nnode-ip: 10.0.0.1\n");
    let flags =
        ["--data-dir", "/data/k3s", "--cluster-init", "--node-ip=fd00::1", "--etcd-snapshot-dir=/mnt/backup"];
    machine.write(
        UNIT,
        &installed(&[&flags[..], &["--token", "s3cret", "--kubelet-arg", "--data-dir=/no"]].concat()),
    );
    // What the process shows of itself is not its command line.
    machine.write("/proc/77/comm", "k3s-server\n");
    machine.write("/proc/77/cmdline", "/usr/local/bin/k3s server\0");
    let options = options(&machine);
    assert!(options.cluster_init());
    assert_eq!(options.snapshot_dir(), Some("/mnt/backup"));
    assert_eq!(ips(&options), ["10.0.0.1", "fd00::1"]);
    assert!(!format!("{options:?}").contains("s3cret"));
}

#[test]
fn flags_in_every_form_that_is_taken() {
    for (arguments, data, begins) in [
        (&["-d", "/data"][..], Some("/data"), false),
        (&["--data-dir=/data", "--cluster-init=false"], Some("/data"), false),
        (&["-data-dir=/data", "--cluster-init"], Some("/data"), true),
        (&["--data-dir"], None, false),
        (&["--data-dir", "/one", "--data-dir=/two"], Some("/two"), false),
        (&["data-dir=/data"], None, false),
    ] {
        let machine = Machine::new();
        machine.write(UNIT, &installed(arguments));
        let options = options(&machine);
        assert_eq!((options.data_dir(), options.cluster_init()), (data, begins), "{arguments:?}");
    }
}

#[test]
fn the_environment_stands_in_for_what_is_given_nowhere() {
    let machine = Machine::new();
    machine.write(UNIT, &installed(&[]));
    machine.write(
        "/etc/systemd/system/k3s.service.env",
        "K3S_TOKEN='s3cret'\nK3S_DATASTORE_ENDPOINT='mysql://u:s3cret@tcp(db:3306)/k3s'\nK3S_DATA_DIR=/data/env\n",
    );
    machine.write("/etc/default/k3s", "K3S_CLUSTER_INIT=true\nK3S_DATA_DIR=/data/default\n");
    let found = options(&machine);
    assert_eq!(found.datastore_endpoint().and_then(scheme), Some("mysql"));
    assert_eq!((found.data_dir(), found.cluster_init()), (Some("/data/env"), true), "the later file counts");
    machine.write("/etc/rancher/k3s/config.yaml", "data-dir: /data/config\n");
    assert_eq!(options(&machine).data_dir(), Some("/data/config"));
    // Empty is given all the same.
    machine.write("/etc/rancher/k3s/config.yaml", "datastore-endpoint: ''\n");
    assert_eq!(options(&machine).datastore_endpoint(), None);
}

#[test]
fn drop_ins_of_the_unit_begin_anew_or_add() {
    let machine = Machine::new();
    let folder = "/usr/lib/systemd/system";
    machine.write(
        &format!("{folder}/rke2-server.service"),
        "[Service]\nEnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/usr/local/lib/systemd/system/%N.env\n\
         ExecStart=/usr/local/bin/rke2 server\n",
    );
    machine
        .write(&format!("{folder}/rke2-agent.service"), "[Service]\nExecStart=/usr/local/bin/rke2 agent\n");
    let rke2 = || told(&machine, &RKE2);
    assert_eq!((rke2().options, rke2().problem), (Options::default(), None));
    machine.write(
        "/etc/systemd/system/rke2-server.service.d/override.conf",
        "[Service]\n# ExecStart=/no server --data-dir=/no\nEnvironment=\"RKE2_DATA_DIR=/data/a b\" RKE2_TOKEN=s3cret\n",
    );
    assert_eq!(rke2().options.data_dir(), Some("/data/a b"));
    machine.write("/etc/default/rke2-server", "RKE2_DATA_DIR=\"/data/file\"\n");
    assert_eq!(rke2().options.data_dir(), Some("/data/file"));
    // A drop-in that comes later by name begins the command line anew, wherever it lies.
    machine.write(
        "/run/systemd/system/rke2-server.service.d/z.conf",
        "[Unit]\nExecStart=/no server --data-dir=/no\n[Service]\nExecStart=\n\
         ExecStart=-/opt/rke2/bin/rke2 server --data-dir=${RKE2_DATA_DIR}/sub $RKE2_CONFIG_FILE\n",
    );
    machine.write("/etc/default/rke2-server", "RKE2_DATA_DIR=/data\nRKE2_CONFIG_FILE=/etc/rke2.yaml\n");
    let told = rke2();
    assert_eq!(told.options.data_dir(), Some("/data/sub"));
    assert_eq!(told.config.as_deref(), Some(Path::new("/etc/rke2.yaml")));
    assert!(told.environment.iter().any(|path| path == Path::new("/etc/default/rke2-server")));
    // An agent's unit counts where it is the one that is started.
    machine.write("/etc/systemd/system/multi-user.target.wants/rke2-agent.service", "");
    assert_eq!(rke2().options, Options::default());
}

#[test]
fn another_configuration_file_is_read_instead() {
    let machine = Machine::new();
    machine.write("/etc/rancher/k3s/config.yaml", "data-dir: /no\n");
    machine.write("/opt/k3s.yaml", "data-dir: /data\n");
    machine.write("/opt/k3s.yaml.d/x.yaml", "etcd-s3: true\n");
    for flag in [&["--config=/opt/k3s.yaml"][..], &["-c", "/opt/k3s.yaml"], &["--config", "/opt/k3s.yaml"]] {
        machine.write(UNIT, &installed(flag));
        let options = options(&machine);
        assert_eq!((options.data_dir(), options.object_storage()), (Some("/data"), true), "{flag:?}");
    }
    machine.write(UNIT, &installed(&["--config=https://config.example/k3s.yaml"]));
    let told = told(&machine, &K3S);
    assert!(told.problem.is_some_and(|p| p.to_string().contains("over the network")));
    assert_eq!((told.options.data_dir(), told.config), (None, None));
}

#[test]
fn the_variable_that_names_the_configuration_is_followed_for_both() {
    for (program, variable, unit) in [
        (&K3S, "K3S_CONFIG_FILE", "k3s"),
        (&RKE2, "RKE2_CONFIG_FILE", "rke2-server"),
        (&RKE2, "RKE2_CONFIG_FILE", "rke2-agent"),
    ] {
        let (binary, role) = unit.split_once('-').unwrap_or((unit, "server"));
        let command = format!("ExecStart=/usr/local/bin/{binary} {role}");
        for (name, service) in [
            ("inline", format!("[Service]\nEnvironment={variable}=/opt/own.yaml\n{command}\n")),
            ("file", format!("[Service]\nEnvironmentFile=-/etc/default/%N\n{command}\n")),
        ] {
            let machine = Machine::new();
            machine.write(program.config, "data-dir: /no\n");
            machine.write(&format!("{}.d/50-rancher.yaml", program.config), r#"{"data-dir": "/no"}"#);
            machine.write("/opt/own.yaml", "data-dir: /data\n");
            // The drop-ins of the file that is read, and not those of the usual one.
            machine.write("/opt/own.yaml.d/50-rancher.yaml", r#"{"etcd-s3": true}"#);
            machine.write(&format!("/etc/systemd/system/{unit}.service"), &service);
            if name == "file" {
                machine.write(&format!("/etc/default/{unit}"), &format!("{variable}=/opt/own.yaml\n"));
            }
            let told = told(&machine, program);
            assert_eq!(told.problem, None, "{unit} {name}");
            assert_eq!(told.config.as_deref(), Some(Path::new("/opt/own.yaml")), "{unit} {name}");
            let options = told.options;
            assert_eq!(
                (options.data_dir(), options.object_storage()),
                (Some("/data"), true),
                "{unit} {name}"
            );
        }
    }
}

#[test]
fn ranchers_own_file_is_json_and_comes_after_the_users() {
    let machine = Machine::new();
    machine.write(
        "/etc/rancher/k3s/config.yaml",
        "node-ip: 10.0.0.1\ndata-dir: /data/user\ntls-san: [a.example]\n",
    );
    machine.write(
        "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
        r#"{
  "agent-token": "s3cret", "cni": "calico", "data-dir": "/data/rancher", "etcd-disable-snapshots": false,
  "node-ip": ["fd00::1", "10.0.0.1"], "node-label": ["rke.cattle.io/machine=x"], "tls-san": ["b.example"], "token": "s3cret"
}"#,
    );
    let options = options(&machine);
    assert_eq!(options.data_dir(), Some("/data/rancher"));
    assert_eq!(ips(&options), ["fd00::1", "10.0.0.1"]);
    assert_eq!(options.wanted_names(), ["b.example"]);
    assert!(!options.snapshots_disabled() && !format!("{options:?}").contains("s3cret"));
}

#[test]
fn what_cannot_be_known_of_a_command_line_is_a_problem() {
    for (command, words) in [
        ("/bin/sh -c 'exec k3s server'", "neither a server nor an agent"),
        ("/usr/local/bin/k3s server $K3S_MORE", "a variable"),
        ("/usr/local/bin/k3s server --data-dir=${WHERE}", "a variable"),
    ] {
        let machine = Machine::new();
        machine.write(UNIT, &format!("[Service]\nExecStart={command}\n"));
        let problem = told(&machine, &K3S).problem.unwrap_or_else(|| panic!("{command}"));
        assert!(problem.to_string().contains(words), "{problem}");
    }
    // A unit that is masked starts nothing.
    let machine = Machine::new();
    machine.link(UNIT, "/dev/null");
    assert_eq!(told(&machine, &K3S).problem, None);
}

#[test]
fn the_table_of_traps_names_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = std::fs::read_to_string(root.join("docs/on-disk.md")).unwrap();
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && line.contains(".rs`")) {
        let held = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let mut words = held.split('`').map(str::trim).filter(|word| !word.is_empty());
        let file = words.next().unwrap();
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        for test in words {
            assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}

proptest! {
    #[test]
    fn no_file_of_any_kind_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "[-=$\\\\{}'\"\\[\\]A-Za-z/ \\n]{0,200}") {
        let _ = Options::default().merge(&bytes);
        for text in [text.as_str(), &String::from_utf8_lossy(&bytes)] {
            let machine = Machine::new();
            machine.write(UNIT, &format!("[Service]\nExecStart=k3s server {text}"));
            machine.write("/etc/systemd/system/k3s.service.d/x.conf", text);
            machine.write("/etc/default/k3s", text);
            let _ = told(&machine, &K3S);
        }
    }

    #[test]
    fn words_survive_their_quotes(words in proptest::collection::vec("[ -~\\n\\t]{0,12}", 0..6)) {
        let quoted: Vec<String> = words.iter().map(|w| {
            format!("\"{}\"", w.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
        }).collect();
        prop_assert_eq!(split(&quoted.join(" ")), words);
    }
}
