//! How systemd starts them: the command line and the environment of their units, read as systemd reads them
//! (systemd.unit(5), systemd.service(5), systemd.exec(5)).
//!
//! Both put what their installer was given there: `--data-dir` and the like behind `ExecStart`, `K3S_DATASTORE_ENDPOINT`
//! and the like into an environment file that only root may read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use outrider_protocol::UnknownCause;

use super::{Files, Program, Told};
use crate::net::Failure;
use crate::sense::environment_file::assignments;

/// Where units lie, the first found counts.
pub(crate) const UNIT_FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Links to the units that are started at boot.
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants";
/// Most drop-ins of one unit.
const MAX_DROP_INS: usize = 32;

/// How one is started.
#[derive(Debug, Default)]
pub(super) struct Launch {
    /// Its arguments after `server` or `agent`.
    pub(super) words: Vec<String>,
    /// Its environment, as far as it may be known.
    pub(super) environment: BTreeMap<String, String>,
}

impl Launch {
    /// The configuration file it was given; the environment counts first (`findConfigFileFlag`).
    pub(super) fn config_file(&self, program: &Program) -> Option<&str> {
        let variable = self.environment.get(&format!("{}CONFIG_FILE", program.prefix)).map(String::as_str);
        let mut words = self.words.iter().map(String::as_str);
        let flag = || loop {
            let word = words.next()?;
            match word.split_once('=') {
                Some(("--config" | "-c", value)) => return Some(value),
                None if word == "--config" || word == "-c" => return words.next(),
                _ => {}
            }
        };
        variable.filter(|value| !value.is_empty()).or_else(flag).filter(|value| !value.is_empty())
    }
}

/// How this program is started here; nothing where no unit of its lies here.
pub(super) fn launch(files: &dyn Files, program: &Program, told: &mut Told) -> Launch {
    let Some((unit, file)) = unit(files, program) else { return Launch::default() };
    let mut command = String::new();
    let (mut variables, mut environment_files) = (Vec::new(), Vec::new());
    for path in std::iter::once(file).chain(drop_ins(files, unit)) {
        let text = match files.read(&path) {
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(None) => continue,
            // A link to /dev/null masks the unit; what is not allowed is told by the data folder.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => continue,
            Err(e) => {
                told.note(&e, &path);
                continue;
            }
        };
        for (key, value) in service_lines(&text) {
            match key.as_str() {
                "ExecStart" => command = value,
                // Nothing begins the list anew.
                "Environment" if value.is_empty() => variables.clear(),
                "Environment" => variables.extend(split(&value)),
                "EnvironmentFile" if value.is_empty() => environment_files.clear(),
                "EnvironmentFile" => environment_files.push(value),
                _ => {}
            }
        }
    }
    let mut launch = Launch::default();
    let pair = |word: String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    launch.environment.extend(variables.into_iter().filter_map(pair));
    for file in environment_files {
        let path = file.trim_start_matches('-').trim().replace("%N", unit).replace("%n", unit);
        let path = PathBuf::from(path);
        if !path.is_absolute() || path.to_string_lossy().contains(['*', '?', '[', '%']) {
            continue;
        }
        match files.read(&path) {
            Ok(Some(bytes)) => {
                launch.environment.extend(assignments(&String::from_utf8_lossy(&bytes)));
            }
            Ok(None) => {}
            Err(e) => told.note(&e, &path),
        }
        told.environment.push(path);
    }
    launch.words = arguments(&command, &launch.environment).unwrap_or_else(|why| {
        let failure = Failure::new(UnknownCause::Unsupported, format!("{unit}.service: {why}"));
        told.problem.get_or_insert(failure);
        Vec::new()
    });
    launch
}

/// The unit that starts it, and its file: the server's, unless only the agent's is there or is started at boot. The
/// package of RKE2 brings both.
fn unit(files: &dyn Files, program: &Program) -> Option<(&'static str, PathBuf)> {
    let wanted = files.list(Path::new(WANTED)).ok().flatten().unwrap_or_default();
    let is_wanted = |unit: &str| wanted.iter().any(|name| *name == format!("{unit}.service"));
    // What cannot be read is there.
    let find = |unit: &'static str| {
        let mut paths = UNIT_FOLDERS.iter().map(|folder| Path::new(folder).join(format!("{unit}.service")));
        Some((unit, paths.find(|path| !matches!(files.read(path), Ok(None)))?))
    };
    let [server, agent] = program.units;
    match (find(server), find(agent)) {
        (Some(_), Some(found)) if is_wanted(agent) && !is_wanted(server) => Some(found),
        (found, other) => found.or(other),
    }
}

/// The unit's drop-ins by name; of those of one name the one in the first folder counts.
fn drop_ins(files: &dyn Files, unit: &str) -> impl Iterator<Item = PathBuf> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in UNIT_FOLDERS {
        let folder = Path::new(folder).join(format!("{unit}.service.d"));
        let names = files.list(&folder).ok().flatten().unwrap_or_default();
        for name in names.into_iter().filter(|name| name.ends_with(".conf")) {
            let path = folder.join(&name);
            found.entry(name).or_insert(path);
        }
    }
    found.into_values().take(MAX_DROP_INS)
}

/// What stands in the section `[Service]`: keys and values, lines that go on put together.
pub(crate) fn service_lines(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut in_service, mut line) = (false, String::new());
    // A line may go on at the end, too.
    for raw in text.lines().chain([""]) {
        let trimmed = raw.trim();
        // Also in the middle of a line that goes on.
        if trimmed.starts_with('#') || trimmed.starts_with(';') {
            continue;
        }
        if let Some(begun) = trimmed.strip_suffix('\\') {
            line.push_str(begun);
            line.push(' ');
            continue;
        }
        line.push_str(trimmed);
        let whole = std::mem::take(&mut line);
        if whole.starts_with('[') {
            in_service = whole.trim_end() == "[Service]";
        } else if let (true, Some((key, value))) = (in_service, whole.split_once('=')) {
            found.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

/// Words as systemd sets them apart: quotes, and escapes as in C.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => {
                begun = true;
                match chars.next() {
                    Some('n') => word.push('\n'),
                    Some('t') => word.push('\t'),
                    Some('s') => word.push(' '),
                    Some('x') => {
                        let digits: String = [chars.next(), chars.next()].into_iter().flatten().collect();
                        word.extend(u8::from_str_radix(&digits, 16).ok().map(char::from));
                    }
                    Some(c @ ('\\' | '"' | '\'')) => word.push(c),
                    Some(c) => word.extend(['\\', c]),
                    None => {}
                }
            }
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => (quote, begun) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (c, _) => {
                begun = true;
                word.push(c);
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// The arguments after `server` or `agent` in a command line. An error says what keeps them from being known.
fn arguments(command: &str, environment: &BTreeMap<String, String>) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    for word in split(command.trim_start_matches(['@', '-', ':', '+', '!', '|'])) {
        match word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$'])) {
            // As a word of its own it is as many words as its value has.
            Some(name) => words.extend(split(environment.get(name).ok_or(VARIABLE)?)),
            None if word.contains("${") => words.push(expanded(&word, environment).ok_or(VARIABLE)?),
            None => words.push(word),
        }
    }
    if words.is_empty() {
        return Ok(words);
    }
    match words.iter().position(|word| word == "server" || word == "agent") {
        Some(at) => Ok(words.split_off(at + 1)),
        None => {
            Err("ExecStart runs something that is neither a server nor an agent, whose flags are not known")
        }
    }
}

/// Not set, or not to be known.
const VARIABLE: &str = "ExecStart takes flags from a variable whose value is not known";

/// `${NAME}` replaced by its value.
fn expanded(word: &str, environment: &BTreeMap<String, String>) -> Option<String> {
    let mut parts = word.split("${");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}')?;
        whole.push_str(environment.get(name)?);
        whole.push_str(rest);
    }
    Some(whole)
}
