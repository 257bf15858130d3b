//! Which coordinator a command talks to, and with what token.
//!
//! In this order: `--context`; `OUTRIDER_URL` with `OUTRIDER_TOKEN`; the context in use, from `contexts.toml` in the
//! user's configuration folder; an `outrider up` that runs on this machine. `OUTRIDER_TOKEN` alone replaces the
//! context's token. Tokens lie in a file that its owner alone can read, and are never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use outrider_agent::net::Url;
use outrider_agent::report::Token;
use serde::{Deserialize, Serialize};

use crate::cli::Global;
use crate::output::{Screen, UsageError};
use crate::{folders, up};

/// The name under which a running `outrider up` can be chosen.
const LOCAL: &str = "up";

/// An operator token. It has no `Display` and no telling `Debug`: it goes into a header and into a file, nowhere else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    /// Takes the text that a person, a file or the environment gave; blanks around it are no part of it.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The text, for a header.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it has the form that every operator token has; what is wrong otherwise, without repeating it.
    pub(crate) fn check_form(&self, from: &str) -> anyhow::Result<()> {
        Token::parse(&self.0).map(drop).map_err(|problem| {
            UsageError(format!(
                "{from} holds no operator token: {problem}. A token looks like OR1<hash>::<id>:<secret>; the first one is \
                 in operator.token in the coordinator's state folder"
            ))
            .into()
        })
    }

    /// The SHA-256 that a token of the form `OR1<hex>::<id>:<secret>` pins the root certificate by.
    pub(crate) fn pin(&self) -> Option<String> {
        let (pin, _) = self.0.strip_prefix("OR1")?.split_once("::")?;
        checksum(pin).ok().map(|_| pin.to_lowercase())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a SHA-256 in hex; colons and upper case are what other tools print.
pub(crate) fn checksum(text: &str) -> Result<[u8; 32], String> {
    if let Some((i, c)) = text.chars().enumerate().find(|(_, c)| *c != ':' && !c.is_ascii_hexdigit()) {
        return Err(format!("{text:?} is no SHA-256: character {} is {c:?}, no hex digit", i + 1));
    }
    let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|d| d as u8).collect();
    let wrong = || format!("{text:?} is no SHA-256: it takes 64 hex digits, and this has {}", digits.len());
    let mut out = [0; 32];
    if digits.len() != 64 {
        return Err(wrong());
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Ok(out)
}

/// Everything needed to talk to one coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Where it is.
    pub(crate) url: Url,
    /// Who we are.
    pub(crate) token: Secret,
    /// SHA-256 of its root certificate; `None` trusts the system's roots.
    pub(crate) pin: Option<[u8; 32]>,
    /// How it was chosen, for error texts.
    pub(crate) chosen_by: String,
}

impl Endpoint {
    /// An endpoint; the pin is the one given, else the token's own.
    pub(crate) fn new(
        url: &str,
        token: Secret,
        pin: Option<&str>,
        chosen_by: String,
    ) -> anyhow::Result<Self> {
        let url = coordinator_url(url)?;
        let pin = pin.map(str::to_owned).or_else(|| token.pin());
        let pin = pin.map(|pin| checksum(&pin)).transpose().map_err(UsageError)?;
        Ok(Self { url, token, pin, chosen_by })
    }
}

impl Endpoint {
    /// What to add to an error when a remembered coordinator cannot be reached and an `up` of this machine can.
    pub(crate) fn instead(&self) -> String {
        let running = folders::state().ok().and_then(|folder| up::running(&folder).ok().flatten());
        match running {
            Some(up)
                if self.chosen_by.starts_with("context ") && !self.url.to_string().starts_with(&up.url) =>
            {
                format!("; `outrider up` runs on this machine (pid {}): use --context {LOCAL}", up.pid)
            }
            _ => String::new(),
        }
    }
}

/// A coordinator's address: https, and nothing behind the port.
pub(crate) fn coordinator_url(text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text).map_err(|e| UsageError(e.to_string()))?;
    if !url.tls {
        bail!(UsageError(format!("{text:?} is not https; a coordinator speaks nothing else")));
    }
    if url.path != "/" {
        bail!(UsageError(format!("{text:?} has a path; give only https://host[:port]")));
    }
    Ok(url)
}

/// One remembered coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saved {
    /// `https://host[:port]`.
    pub(crate) url: String,
    /// SHA-256 of its root certificate, hex; absent where the system's roots are trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_checksum: Option<String>,
    /// Operator token.
    pub(crate) token: Secret,
}

/// `contexts.toml`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// Name of the one in use; empty when none is.
    #[serde(default)]
    pub(crate) current: String,
    /// By name.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Saved>,
}

impl Contexts {
    /// Where the file lies.
    pub(crate) fn path() -> anyhow::Result<PathBuf> {
        Ok(folders::config()?.join("contexts.toml"))
    }

    /// Reads the file; without one, nothing is remembered. Its text is never repeated in an error: tokens are in it.
    pub(crate) fn load(path: &Path, screen: &mut Screen) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        if fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
            let path = path.display();
            screen
                .note(&format!("warning: {path} holds tokens and others may read it; run: chmod 600 {path}"));
        }
        toml::from_str(&text).map_err(|e: toml::de::Error| {
            let line =
                e.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            anyhow::anyhow!(
                "{}:{line}: {}; correct it, or remove the file and log in again",
                path.display(),
                e.message()
            )
        })
    }

    /// Writes the file, mode 0600, in one step: a crash leaves the old one or the new one.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = toml::to_string(self).context("cannot write contexts as TOML")?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let write = || {
            fs::create_dir_all(folder)?;
            let draft = path.with_extension(format!("toml.{}", std::process::id()));
            let _ = fs::remove_file(&draft);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// The names, for an error text.
    pub(crate) fn names(&self) -> String {
        match self.contexts.is_empty() {
            true => "none is remembered".to_owned(),
            false => self.contexts.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        }
    }
}

/// The coordinator this command is to talk to.
pub(crate) fn choose(global: &Global, screen: &mut Screen) -> anyhow::Result<Endpoint> {
    let token_set = variable("OUTRIDER_TOKEN")?.map(|token| Secret::new(&token));
    // Before anything is sent: without its pin, a token cut short would be blamed on TLS.
    token_set.as_ref().map_or(Ok(()), |token| token.check_form("OUTRIDER_TOKEN"))?;
    if let Some(name) = &global.context {
        return by_name(name, token_set, screen);
    }
    if let Some(url) = variable("OUTRIDER_URL")? {
        let saved = Contexts::load(&Contexts::path()?, screen)?;
        let wanted = coordinator_url(&url).context("OUTRIDER_URL")?;
        let same =
            saved.contexts.values().find(|one| coordinator_url(&one.url).is_ok_and(|url| url == wanted));
        let token = token_set.clone().or_else(|| same.map(|one| one.token.clone()));
        let token = token.with_context(|| {
            format!("OUTRIDER_URL is set to {url} and OUTRIDER_TOKEN is not; set both, or run: outrider login {url}")
        })?;
        // A token of its own speaks for its own CA; one that pins nothing keeps what was verified at login.
        let pin = same.and_then(|one| one.ca_checksum.as_deref()).filter(|_| token.pin().is_none());
        return Endpoint::new(&url, token, pin, "OUTRIDER_URL".to_owned());
    }
    let current = Contexts::load(&Contexts::path()?, screen)?.current;
    if !current.is_empty() {
        return by_name(&current, token_set, screen);
    }
    if up::running(&folders::state()?)?.is_some() {
        return by_name(LOCAL, token_set, screen);
    }
    bail!(
        "no coordinator is known: run `outrider login URL`, or set OUTRIDER_URL and OUTRIDER_TOKEN, or start one with \
         `outrider up`"
    )
}

fn by_name(name: &str, token_set: Option<Secret>, screen: &mut Screen) -> anyhow::Result<Endpoint> {
    let path = Contexts::path()?;
    let saved = Contexts::load(&path, screen)?;
    if let Some(one) = saved.contexts.get(name) {
        let own = token_set.is_none();
        let token = token_set.unwrap_or_else(|| one.token.clone());
        let pin = one.ca_checksum.as_deref().filter(|_| own || token.pin().is_none());
        return Endpoint::new(&one.url, token, pin, format!("context {name:?}"));
    }
    if name == LOCAL {
        let running =
            up::running(&folders::state()?)?.context("no `outrider up` of yours runs on this machine")?;
        let token = match token_set {
            Some(token) => token,
            None => up::operator_token(&folders::state()?)?,
        };
        return Endpoint::new(&running.url, token, None, format!("`outrider up`, pid {}", running.pid));
    }
    bail!("there is no context {name:?} in {}; known: {}", path.display(), saved.names())
}

/// An environment variable that is set and not empty; what is no text is refused rather than ignored.
pub(crate) fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => bail!(UsageError(format!("{name} is not valid UTF-8"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_comes_out_of_a_token_of_our_form_only() {
        let pin = "ab".repeat(32);
        assert_eq!(Secret::new(&format!(" OR1{pin}::id:secret\n")).pin(), Some(pin.clone()));
        assert_eq!(Secret::new(&format!("{pin}::id:secret")).pin(), None);
        assert_eq!(Secret::new("OR1abc::id:secret").pin(), None);
        assert_eq!(format!("{:?}", Secret::new("hush")), "Secret(…)");
    }

    #[test]
    fn checksums_are_read_as_other_tools_print_them() {
        assert_eq!(checksum(&"AB:".repeat(32)), Ok([0xab; 32]));
        assert!(checksum("abc").unwrap_err().contains("this has 3"));
        assert!(checksum(&"zz".repeat(32)).unwrap_err().contains("character 1 is 'z'"));
        assert!(checksum(&"ü".repeat(32)).is_err());
    }

    #[test]
    fn only_https_without_a_path_is_a_coordinator() {
        assert!(coordinator_url("https://c.example:7443").is_ok());
        for (url, word) in
            [("http://c.example", "not https"), ("https://c.example/v1", "path"), ("c.example", "start")]
        {
            let error = coordinator_url(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
