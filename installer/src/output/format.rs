//! `-o`: the formats a command offers.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::jsonpath::Template;

/// How a result is printed.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// More columns.
    Wide,
    /// The document, indented.
    Json,
    /// The document as YAML.
    Yaml,
    /// `node/NAME`, one a line.
    Name,
    /// One line and performance data, as monitoring systems read it.
    Nagios,
    /// What a kubectl-style template picks.
    JsonPath(Template),
}

/// Reads the formats of one command; the others are refused with the list of those it has.
#[derive(Clone, Copy)]
pub(crate) struct FormatParser {
    words: &'static [&'static str],
}

impl FormatParser {
    /// One result, local to this machine.
    pub(crate) const CHECK: Self = Self { words: &["table", "wide", "json", "yaml", "name", "nagios"] };
    /// Objects of the fleet.
    pub(crate) const LIST: Self =
        Self { words: &["table", "wide", "json", "yaml", "name", "jsonpath=TEMPLATE"] };
    /// Anything that is shown.
    pub(crate) const SHOW: Self = Self { words: &["table", "wide", "json", "yaml", "name"] };
    /// What became of something that was changed.
    pub(crate) const ACT: Self = Self { words: &["table", "json", "yaml", "name"] };
    /// Documents that have no table.
    pub(crate) const DOCUMENT: Self = Self { words: &["json", "yaml"] };
    /// A text for people, or the document.
    pub(crate) const DESCRIBE: Self = Self { words: &["table", "json", "yaml"] };
}

impl TypedValueParser for FormatParser {
    type Value = Format;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Format, clap::Error> {
        let word = value.to_string_lossy();
        let known = self.words.contains(&word.as_ref());
        match word.as_ref() {
            "table" if known => return Ok(Format::Table),
            "wide" if known => return Ok(Format::Wide),
            "json" if known => return Ok(Format::Json),
            "yaml" if known => return Ok(Format::Yaml),
            "name" if known => return Ok(Format::Name),
            "nagios" if known => return Ok(Format::Nagios),
            other => {
                let template =
                    other.strip_prefix("jsonpath=").filter(|_| self.words.contains(&"jsonpath=TEMPLATE"));
                if let Some(template) = template {
                    return Template::parse(template).map(Format::JsonPath).map_err(|problem| {
                        clap::Error::raw(ErrorKind::ValueValidation, format!("-o jsonpath: {problem}\n"))
                            .with_cmd(command)
                    });
                }
            }
        }
        let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        if let Some(arg) = arg {
            error.insert(ContextKind::InvalidArg, ContextValue::String(arg.to_string()));
        }
        error.insert(ContextKind::InvalidValue, ContextValue::String(word.into_owned()));
        let words = self.words.iter().map(|w| (*w).to_owned()).collect();
        error.insert(ContextKind::ValidValue, ContextValue::Strings(words));
        Err(error)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(|word| PossibleValue::new(*word))))
    }
}
