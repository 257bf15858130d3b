//! First stage: the files as they are written, each value with the place it stands at.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigSource, Problem};
use crate::sense::file;

/// Files longer than this are no configuration.
const FILE_LIMIT: u64 = 1 << 20;

/// Characters of a problem's text.
const QUOTED: usize = 400;

/// Where something stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) file: Rc<Path>,
    pub(super) line: usize,
}

impl Place {
    pub(super) fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        let (mut path, mut message) = (path.to_owned(), message.into());
        // What is repeated of the file may be as long as the file.
        for text in [&mut path, &mut message] {
            if let Some((end, _)) = text.char_indices().nth(QUOTED) {
                text.truncate(end);
                text.push('…');
            }
        }
        Problem { file: self.file.to_path_buf(), line: self.line, path, message }
    }
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// A table, by key; each key has a place of its own.
pub(super) type Table = BTreeMap<String, (Place, Node)>;

/// A value as TOML has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Table(Table),
    Array(Vec<Node>),
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A date or time, or a number beyond 64 bits: valid TOML that no key of ours takes.
    Unused(&'static str),
}

impl Value {
    /// The type in words.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Table(_) => "a table",
            Value::Array(_) => "an array",
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Boolean(_) => "a boolean",
            Value::Unused(name) => name,
        }
    }
}

/// One file as written.
pub(super) struct Document {
    pub(super) file: Rc<Path>,
    pub(super) table: Table,
}

/// Reads the files of `source` in the order they are merged.
pub(super) fn read(source: &ConfigSource, problems: &mut Vec<Problem>) -> Vec<Document> {
    let files = match source {
        ConfigSource::File(file) => vec![file.clone()],
        ConfigSource::Folders(folders) => find(folders, problems),
    };
    files.into_iter().filter_map(|file| read_file(&file, problems)).collect()
}

/// The files that are not shadowed: `agent.toml`, then drop-ins by name.
fn find(folders: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let main = folders.iter().rev().map(|folder| folder.join("agent.toml")).find(|file| exists(file));
    let mut drop_ins = BTreeMap::new();
    for folder in folders {
        let folder = folder.join("agent.toml.d");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound) => continue,
            Err(e) => {
                problems.push(whole_file(&folder, format!("the folder cannot be read: {e}")));
                continue;
            }
        };
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            if path.extension().is_some_and(|e| e == "toml") && !name.as_encoded_bytes().starts_with(b".") {
                drop_ins.insert(name, path);
            }
        }
    }
    main.into_iter().chain(drop_ins.into_values()).collect()
}

/// True also for a file that is there and may not be looked at: reading it gives the error.
fn exists(file: &Path) -> bool {
    !matches!(fs::symlink_metadata(file), Err(e) if e.kind() == ErrorKind::NotFound)
}

fn whole_file(file: &Path, message: String) -> Problem {
    Problem { file: file.to_path_buf(), line: 0, path: String::new(), message }
}

fn read_file(file: &Path, problems: &mut Vec<Problem>) -> Option<Document> {
    match read_text(file) {
        Ok(text) => Some(parse(file, &text, problems)),
        Err(e) => {
            problems.push(whole_file(file, format!("the file cannot be read: {e}")));
            None
        }
    }
}

/// A pipe or a device in the place of a file would hold up the start of the daemon for ever.
fn read_text(path: &Path) -> io::Result<String> {
    let file = file::open_regular(path)?;
    if file.metadata()?.len() > FILE_LIMIT {
        return Err(file::invalid("it is longer than 1 MiB"));
    }
    let bytes = file::read_bounded(file, FILE_LIMIT)?;
    if bytes.contains(&0) {
        return Err(file::invalid("it has NUL bytes: it is binary, or UTF-16; save the file as UTF-8"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let (at, bytes) = (e.utf8_error().valid_up_to(), e.as_bytes());
        let line = bytes.iter().take(at).filter(|b| **b == b'\n').count() + 1;
        file::invalid(format!("byte {at}, in line {line}, is not UTF-8; save the file as UTF-8"))
    })
}

/// Parses one file; what can be read beside a syntax error is kept, so that one slip hides no other.
pub(super) fn parse(file: &Path, text: &str, problems: &mut Vec<Problem>) -> Document {
    let file: Rc<Path> = Rc::from(file);
    let lines = Lines::new(text);
    let place = |offset: usize| Place { file: file.clone(), line: lines.line(offset) };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or_default();
        let message = in_words(error.message().trim(), text.get(span.clone()).unwrap_or_default());
        problems.push(place(span.start).problem("", message));
    }
    let table = convert_table(table.into_inner(), &place);
    Document { file, table }
}

/// What the parser says of a syntax error, in the words of somebody who writes the file and not the parser.
fn in_words(message: &str, at: &str) -> String {
    match message {
        "duplicate key" => format!("the key or table {at:?} is written twice; keep one of them"),
        m if m.starts_with("string values must be quoted") => {
            "the value is neither a number nor true or false; put a text in quotes: key = \"value\""
                .to_owned()
        }
        m if m.starts_with("invalid basic string, expected `\"`") => {
            "a text begins with \" and does not end in this line; close it with \"".to_owned()
        }
        m if m.starts_with("key with no value") => {
            format!(
                "{m}; TOML is written key = value, with tables headed [name] (it is neither YAML nor JSON)"
            )
        }
        m if m.starts_with("invalid key-value pair") => {
            format!(
                "{m}; TOML is written key = value, with tables headed [name] (it is neither YAML nor JSON)"
            )
        }
        m => m.to_owned(),
    }
}

fn convert_table(table: DeTable<'_>, place: &impl Fn(usize) -> Place) -> Table {
    table
        .into_iter()
        .map(|(key, value)| {
            let at = place(key.span().start);
            (key.into_inner().into_owned(), (at, convert(value, place)))
        })
        .collect()
}

fn convert(value: Spanned<DeValue<'_>>, place: &impl Fn(usize) -> Place) -> Node {
    let at = place(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(s) => Value::String(s.into_owned()),
        DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix())
            .map_or(Value::Unused("an integer beyond 64 bits"), Value::Integer),
        DeValue::Float(f) => f.as_str().parse().map_or(Value::Unused("a float out of range"), Value::Float),
        DeValue::Boolean(b) => Value::Boolean(b),
        DeValue::Datetime(_) => Value::Unused("a date or time"),
        DeValue::Array(items) => Value::Array(items.into_iter().map(|item| convert(item, place)).collect()),
        DeValue::Table(table) => Value::Table(convert_table(table, place)),
    };
    Node { value, place: at }
}

/// Byte offsets to lines.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect())
    }

    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|newline| *newline < offset) + 1
    }
}
