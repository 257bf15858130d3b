//! The etcd process of this node, where nothing else tells who its member means to be: RKE1, and endpoints that
//! somebody configured. Only command lines are read, which every user may read, never the environment.

use std::path::Path;

use outrider_protocol::UnknownCause;

use super::expected::MemberConfig;
use crate::net::{Failure, Url};
use crate::sense::{SenseContext, file, process};

/// A process of etcd with its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) config: MemberConfig,
}

/// The process that listens at `local`. `last` is the one of the last look: while it lives, no other is looked at.
pub(super) fn find(cx: &SenseContext, local: &Url, last: Option<&Process>) -> Result<Process, Failure> {
    let proc = cx.path("/proc");
    if let Some(last) = last
        && read(&proc, last.pid).as_ref() == Some(last)
    {
        return Ok(last.clone());
    }
    let mut found: Vec<Process> = Vec::new();
    let seen = |pid: i32, name: &[u8], _: &Path| {
        let process =
            if name == b"etcd" { u32::try_from(pid).ok().and_then(|pid| read(&proc, pid)) } else { None };
        found.extend(process.filter(|process| listens_at(&process.config, local)));
    };
    process::each(&proc, seen).map_err(|e| Failure::from(&e).during("/proc"))?;
    match (found.pop(), found.len()) {
        (Some(process), 0) => Ok(process),
        (Some(process), more) => {
            let detail = format!(
                "{} processes of etcd may be the one at {local}, pid {} among them",
                more + 1,
                process.pid
            );
            Err(Failure::new(UnknownCause::InvalidInput, detail))
        }
        // PID 1 always lives, and is root's.
        (None, _) if !proc.join("1").exists() => {
            let detail = "/proc hides the processes of other users (mount option hidepid)";
            Err(Failure::new(UnknownCause::PermissionDenied, detail))
        }
        (None, _) => {
            let detail = format!("no process of etcd on this machine listens at {local}");
            Err(Failure::new(UnknownCause::InvalidInput, detail))
        }
    }
}

fn read(proc: &Path, pid: u32) -> Option<Process> {
    let folder = proc.join(pid.to_string());
    if file::read_text(&folder.join("comm"), file::SMALL).ok()?.trim_end() != "etcd" {
        return None;
    }
    let line = file::read_text(&folder.join("cmdline"), file::SMALL).ok()?;
    let words: Vec<&str> = line.split('\0').collect();
    Some(Process { pid, config: MemberConfig::of_words(words.into_iter()) })
}

/// Whether a member with this command line may be the one at `local`: it says so, or it does not say.
fn listens_at(config: &MemberConfig, local: &Url) -> bool {
    if config.listen_client_urls.is_empty() {
        return config.config_file.is_some() || (is_loopback(local) && local.port == 2379);
    }
    let urls = config.listen_client_urls.iter().filter_map(|text| Url::parse(text).ok());
    let mut urls = urls.filter(|url| url.port == local.port);
    urls.any(|url| {
        let anywhere = url.ip().is_some_and(|ip| ip.is_unspecified());
        url.host == local.host || anywhere || (is_loopback(&url) && is_loopback(local))
    })
}

fn is_loopback(url: &Url) -> bool {
    url.host == "localhost"
        || url.ip().is_some_and(|ip| ip.to_string() == "127.0.0.1" || ip.to_string() == "::1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::prepared::Machine;

    fn machine(processes: &[(u32, &str, &str)]) -> Machine {
        let machine = Machine::new();
        machine.write("/proc/1/comm", "systemd\n");
        for (pid, comm, line) in processes {
            machine.write(&format!("/proc/{pid}/comm"), &format!("{comm}\n"));
            machine.write(&format!("/proc/{pid}/cmdline"), &line.replace(' ', "\0"));
        }
        machine
    }

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn the_process_that_listens_there() {
        let machine = machine(&[
            (7, "bash", "bash --name m0 --listen-client-urls=https://10.0.0.1:2379"),
            (8, "etcd", "etcd --name m1 --listen-client-urls https://10.0.0.1:2379"),
            (9, "etcd", "etcd --name m2 --listen-client-urls=https://10.0.0.2:2379,https://127.0.0.1:2379"),
        ]);
        let find = |text: &str| find(&machine.cx(), &url(text), None);
        assert_eq!(find("https://10.0.0.1:2379").unwrap().pid, 8);
        assert_eq!(find("https://127.0.0.1:2379").unwrap().config.expected().name, "m2");
        assert!(find("https://10.0.0.3:2379").unwrap_err().detail.contains("no process of etcd"));
        assert!(find("https://10.0.0.1:4001").is_err());
    }

    #[test]
    fn two_that_fit_are_none() {
        let line = "etcd --listen-client-urls https://0.0.0.0:2379";
        let machine = machine(&[(8, "etcd", line), (9, "etcd", line)]);
        let failure = find(&machine.cx(), &url("https://10.0.0.1:2379"), None).unwrap_err();
        assert!(failure.detail.starts_with("2 processes"), "{failure}");
    }

    #[test]
    fn the_one_of_the_last_look_is_kept_while_it_lives() {
        let line = "etcd --name m1 --listen-client-urls https://0.0.0.0:2379";
        let machine = machine(&[(8, "etcd", line)]);
        let local = url("https://10.0.0.1:2379");
        let first = find(&machine.cx(), &local, None).unwrap();
        machine.write("/proc/9/comm", "etcd\n");
        machine.write("/proc/9/cmdline", &line.replace(' ', "\0"));
        assert_eq!(find(&machine.cx(), &local, Some(&first)), Ok(first.clone()));
        machine.write("/proc/8/comm", "another\n");
        assert_eq!(find(&machine.cx(), &local, Some(&first)).unwrap().pid, 9);
    }

    #[test]
    fn hidden_processes_are_not_absent() {
        let machine = Machine::new();
        machine.write("/proc/77/comm", "outrider-agent\n");
        let failure = find(&machine.cx(), &url("https://127.0.0.1:2379"), None).unwrap_err();
        assert_eq!(failure.cause, UnknownCause::PermissionDenied);
    }
}
