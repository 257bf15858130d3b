//! Where output goes and how it may look: terminals, colours, formats, closed pipes.

pub(crate) mod document;
pub(crate) mod format;
pub(crate) mod jsonpath;
mod screen;
pub(crate) mod table;
pub(crate) mod text;

pub(crate) use format::{Format, FormatParser};
pub(crate) use screen::{Screen, UsageError};
pub(crate) use table::{Cell, Column, Table, Tone};
