//! The machine, as the requirements of Rancher, RKE2 and K3s ask of it. Whether its disk is an SSD and what it bears in
//! IOPS cannot be read here: the check `etcd` measures what matters of that.

use outrider_protocol::{Fact, MachineFacts, UnitFacts};

use crate::sense::{SenseContext, file, host};

/// Sockets of container runtimes. RKE2 and K3s bring containerd with its socket below `/run/k3s`.
const SOCKETS: [(&str, &str); 4] = [
    ("/run/k3s/containerd/containerd.sock", "containerd of RKE2 or K3s"),
    ("/run/containerd/containerd.sock", "containerd"),
    ("/run/crio/crio.sock", "CRI-O"),
    ("/var/run/docker.sock", "Docker"),
];

/// Reads it. Blocking.
pub(super) fn read(cx: &SenseContext, units: Fact<Vec<UnitFacts>>) -> MachineFacts {
    MachineFacts {
        cpus: host::cpus(cx),
        memory_bytes: host::memory(cx).map(|m| m.total_bytes),
        architecture: host::architecture(cx),
        os: host::os_release(cx).map(|os| {
            if os.pretty_name.is_empty() { format!("{} {}", os.id, os.version_id) } else { os.pretty_name }
        }),
        runtimes: runtimes(cx),
        cgroup_v2: cgroup_v2(cx),
        forwarding: forwarding(cx),
        confinement: confinement(cx),
        units,
    }
}

fn runtimes(cx: &SenseContext) -> Fact<Vec<String>> {
    let there = SOCKETS.iter().filter(|(path, _)| std::fs::symlink_metadata(cx.path(path)).is_ok());
    let names: Vec<String> = there.map(|(path, name)| format!("{name} ({path})")).collect();
    if names.is_empty() { Fact::absent("/run", cx.now()) } else { Fact::known(names, "/run", cx.now()) }
}

/// The unified hierarchy has this file in its root (cgroups(7)).
fn cgroup_v2(cx: &SenseContext) -> Fact<bool> {
    let (folder, mark) = ("/sys/fs/cgroup", "/sys/fs/cgroup/cgroup.controllers");
    if !cx.path(folder).is_dir() {
        return Fact::absent(folder, cx.now());
    }
    Fact::known(cx.path(mark).exists(), mark, cx.now())
}

fn forwarding(cx: &SenseContext) -> Fact<bool> {
    file::fact(cx, "/proc/sys/net/ipv4/conf/all/forwarding", file::SMALL, |text| match text.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("{} is neither 0 nor 1", file::excerpt(text))),
    })
}

/// SELinux and AppArmor as the kernel has them. Neither is ever to be switched off for Kubernetes' sake.
fn confinement(cx: &SenseContext) -> Fact<String> {
    let word = |path: &str| file::read_text(&cx.path(path), file::SMALL).ok().map(|t| t.trim().to_owned());
    let selinux = match word("/sys/fs/selinux/enforce").as_deref() {
        Some("1") => Some("SELinux enforcing"),
        Some("0") => Some("SELinux permissive"),
        _ => None,
    };
    let apparmor =
        (word("/sys/module/apparmor/parameters/enabled").as_deref() == Some("Y")).then_some("AppArmor on");
    let words: Vec<&str> = selinux.into_iter().chain(apparmor).collect();
    match words.is_empty() {
        true => Fact::absent("/sys/fs/selinux, /sys/module/apparmor", cx.now()),
        false => Fact::known(words.join(", "), "/sys", cx.now()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    #[test]
    fn an_empty_machine_yields_absent_values() {
        let facts = read(&Machine::new().cx(), Fact::absent("systemd", Machine::new().cx().now()));
        assert!(matches!(facts.runtimes, Fact::Absent { .. }));
        assert!(matches!(facts.cgroup_v2, Fact::Absent { .. }));
        assert!(matches!(facts.forwarding, Fact::Absent { .. }));
        assert!(matches!(facts.confinement, Fact::Absent { .. }));
    }

    #[test]
    fn the_kernels_words_are_read() {
        let machine = Machine::new();
        machine.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        machine.write("/sys/fs/selinux/enforce", "1");
        machine.write("/sys/module/apparmor/parameters/enabled", "N\n");
        machine.write("/run/k3s/containerd/containerd.sock", "");
        machine.write("/proc/sys/net/ipv4/conf/all/forwarding", "0\n");
        let cx = machine.cx();
        assert_eq!(cgroup_v2(&cx).value(), Some(&true));
        assert_eq!(confinement(&cx).value().map(String::as_str), Some("SELinux enforcing"));
        assert_eq!(forwarding(&cx).value(), Some(&false));
        assert!(runtimes(&cx).value().is_some_and(|r| r.len() == 1 && r[0].contains("/run/k3s")));
        machine.write("/proc/sys/net/ipv4/conf/all/forwarding", "yes\n");
        assert!(matches!(forwarding(&cx), Fact::Unknown { .. }));
    }
}
