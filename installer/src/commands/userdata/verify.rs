//! `cloud-init schema` as a second judge, where it is installed.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use outrider_cloud_init::{Finding, Severity, Versions};
use serde::Serialize;
use tokio::process::Command;

/// It starts Python and reads one file.
const LIMIT: Duration = Duration::from_secs(30);
/// Most lines of it that are passed on.
const MAX_LINES: usize = 20;

/// What `cloud-init schema` said.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    /// `valid`, `invalid`, or `unknown` where it could not be asked.
    pub(crate) verdict: &'static str,
    /// Its release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Its words, or why it could not be asked.
    pub(crate) messages: Vec<String>,
}

impl Verdict {
    fn unknown(why: impl Into<String>) -> Self {
        Self { verdict: "unknown", version: None, messages: vec![why.into()] }
    }

    /// What it objects to and we did not.
    pub(crate) fn differs(&self, ours: Severity) -> Option<Finding> {
        (self.verdict == "invalid" && ours < Severity::Warn).then(|| Finding {
            severity: Severity::Warn,
            code: "SchemaRefuses",
            line: 0,
            column: 0,
            message: "cloud-init schema objects to what we find nothing wrong with; its words stand below"
                .to_owned(),
            cure: "follow the schema of the release that the image has".to_owned(),
            versions: Versions::All,
        })
    }
}

/// Asks the `cloud-init` of this machine about the document.
pub(super) async fn ask(userdata: &[u8]) -> Verdict {
    let version = match output(Command::new("cloud-init").arg("--version")).await {
        Ok((_, text)) => text.split_whitespace().last().map(str::to_owned),
        Err(why) => return Verdict::unknown(why),
    };
    let file = tempfile::NamedTempFile::new().and_then(|mut file| file.write_all(userdata).map(|()| file));
    let file = match file {
        Ok(file) => file,
        Err(e) => return Verdict::unknown(format!("cannot write a file for it: {e}")),
    };
    let path = file.path().display().to_string();
    match output(Command::new("cloud-init").args(["schema", "--config-file", &path])).await {
        Ok((valid, text)) => {
            let lines =
                text.lines().map(|line| line.replace(&path, "the document")).filter(|l| !l.trim().is_empty());
            Verdict {
                verdict: if valid { "valid" } else { "invalid" },
                version,
                messages: lines.take(MAX_LINES).collect(),
            }
        }
        Err(why) => Verdict { version, ..Verdict::unknown(why) },
    }
}

/// Whether the program ended well, and all it printed.
async fn output(command: &mut Command) -> Result<(bool, String), String> {
    let child = command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").kill_on_drop(true).output();
    match tokio::time::timeout(LIMIT, child).await {
        Ok(Ok(output)) => {
            let text = [output.stdout, output.stderr].concat();
            Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
        }
        Ok(Err(e)) if e.kind() == std::io::ErrorKind::NotFound => {
            Err("cloud-init is not installed here, so nothing was compared".to_owned())
        }
        Ok(Err(e)) => Err(format!("cannot start cloud-init: {e}")),
        Err(_) => Err(format!("cloud-init did not answer within {} s", LIMIT.as_secs())),
    }
}
