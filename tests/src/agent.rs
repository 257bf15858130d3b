//! `outrider-agent run` as a process, with folders of its own and a machine of its own below a root folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use uuid::Uuid;

use crate::programs::{Process, program};

/// An agent's folders: `root` (the machine it reads), `state`, `run`, and its configuration.
#[derive(Clone, Debug)]
pub struct AgentHome {
    folder: PathBuf,
}

impl AgentHome {
    /// Makes the folders and a machine called `name` with an identity of its own.
    pub fn new(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let home = Self { folder: folder.to_owned() };
        for part in ["root", "state", "run"] {
            fs::create_dir_all(folder.join(part))?;
        }
        home.set_identity(name, &Uuid::new_v4())?;
        home.put("proc/sys/kernel/hostname", name)?;
        home.put("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian 12\"\n")?;
        home.put("proc/uptime", "90000.00 90000.00\n")?;
        home.put("proc/loadavg", "0.10 0.10 0.10 1/100 1000\n")?;
        home.set_memory(8 << 20, 6 << 20)?;
        Ok(home)
    }

    /// Folders that were made before.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Machine-id, system UUID and boot id, all from `seed`: the same seed makes a clone.
    pub fn set_identity(&self, name: &str, seed: &Uuid) -> anyhow::Result<()> {
        self.put("etc/machine-id", &format!("{}\n", seed.simple()))?;
        self.put("sys/class/dmi/id/product_uuid", &format!("{seed}\n"))?;
        self.put("etc/hostname", &format!("{name}\n"))?;
        self.boot()
    }

    /// A new boot id: the machine was started again.
    pub fn boot(&self) -> anyhow::Result<()> {
        self.put("proc/sys/kernel/random/boot_id", &format!("{}\n", Uuid::new_v4()))
    }

    /// Memory in KiB.
    pub fn set_memory(&self, total: u64, available: u64) -> anyhow::Result<()> {
        let text = format!(
            "MemTotal: {total} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        );
        self.put("proc/meminfo", &text)
    }

    /// cloud-init's result files, as it leaves them when it is done: without or with an error.
    pub fn set_cloud_init(&self, error: Option<&str>) -> anyhow::Result<()> {
        let errors: Vec<&str> = error.into_iter().collect();
        let stage = json!({ "errors": [], "start": 1.0, "finished": 2.0 });
        let last = json!({ "errors": errors, "start": 3.0, "finished": 4.0 });
        let status = json!({ "v1": {
            "datasource": "DataSourceNoCloud", "stage": null,
            "init-local": stage, "init": stage, "modules-config": stage, "modules-final": last,
        }});
        let result = json!({ "v1": { "datasource": "DataSourceNoCloud", "errors": errors } });
        self.put("run/cloud-init/status.json", &status.to_string())?;
        self.put("run/cloud-init/result.json", &result.to_string())
    }

    /// Writes a file of the machine, whole or not at all.
    pub fn put(&self, path: &str, content: &str) -> anyhow::Result<()> {
        let place = self.root().join(path);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        let fresh = place.with_extension("new");
        fs::write(&fresh, content)?;
        fs::rename(&fresh, &place)?;
        Ok(())
    }

    /// Writes its configuration.
    pub fn configure(&self, toml: &str) -> anyhow::Result<()> {
        Ok(fs::write(self.config(), toml)?)
    }

    /// The machine it reads.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Its state: key, certificate, spool.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("agent.toml")
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// A command of the agent's program on these folders.
    pub fn command(&self, subcommand: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(program("outrider-agent")?);
        command.arg(subcommand).arg("--config").arg(self.config()).arg("--root").arg(self.root());
        command.arg("--state-dir").arg(self.state()).arg("--runtime-dir").arg(self.folder.join("run"));
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").stdin(Stdio::null());
        Ok(command)
    }

    /// Starts the daemon; what it says goes to a log in its folder.
    pub fn start(&self) -> anyhow::Result<Process> {
        let mut command = self.command("run")?;
        self.logged(&mut command)?;
        Ok(Process::spawn(&mut command)?)
    }

    /// Appends what `command` says to the log.
    pub fn logged(&self, command: &mut Command) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        Ok(())
    }
}
