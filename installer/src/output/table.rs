//! Tables as kubectl's users expect them: no borders, one line a row, the last column cut at the terminal's edge.

use comfy_table::{Cell as StyledCell, Color, ColumnConstraint, ContentArrangement, TableStyle, Width};
use outrider_protocol::{Severity, Status};
use unicode_width::UnicodeWidthStr;

use super::text;

/// Blanks between columns.
const GAP: usize = 3;

/// What a cell's colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing.
    Plain,
    /// All is well.
    Good,
    /// Good to know.
    Notice,
    /// To be looked at in working hours.
    Warn,
    /// To be looked at now.
    Bad,
}

impl From<Severity> for Tone {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Ok => Tone::Good,
            Severity::Info => Tone::Notice,
            Severity::Warn => Tone::Warn,
            Severity::Error => Tone::Bad,
        }
    }
}

impl From<Status> for Tone {
    fn from(status: Status) -> Self {
        match status {
            Status::True => Tone::Good,
            Status::False => Tone::Bad,
            Status::Unknown => Tone::Warn,
        }
    }
}

impl Tone {
    fn colour(self) -> Option<Color> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some(Color::Green),
            Tone::Notice => Some(Color::Cyan),
            Tone::Warn => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
        }
    }

    /// `text` in this tone's colour, for output that is no table.
    pub(crate) fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Tone::Good => 32,
            Tone::Notice => 36,
            Tone::Warn => 33,
            Tone::Bad => 31,
            Tone::Plain => return text.to_owned(),
        };
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell in the colour of `tone`.
    pub(crate) fn toned(text: impl AsRef<str>, tone: impl Into<Tone>) -> Self {
        Self { text: text::printable(text::or_dash(text.as_ref())), tone: tone.into() }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::toned(text, Tone::Plain)
    }
}

/// One column of the items of type `T`: its title, whether only `-o wide` shows it, and its cell for an item.
pub(crate) struct Column<T: ?Sized> {
    title: String,
    wide: bool,
    /// A compact table leaves it out where no row says anything in it.
    dispensable: bool,
    cell: Box<dyn Fn(&T) -> Cell + Send + Sync>,
}

impl<T: ?Sized> Column<T> {
    /// A column that is always shown.
    pub(crate) fn new<C: Into<Cell>>(
        title: impl Into<String>,
        cell: impl Fn(&T) -> C + Send + Sync + 'static,
    ) -> Self {
        Self {
            title: title.into(),
            wide: false,
            dispensable: false,
            cell: Box::new(move |item| cell(item).into()),
        }
    }

    /// A column of `-o wide`.
    pub(crate) fn wide<C: Into<Cell>>(
        title: impl Into<String>,
        cell: impl Fn(&T) -> C + Send + Sync + 'static,
    ) -> Self {
        Self { wide: true, ..Self::new(title, cell) }
    }

    /// Left out of a compact table where every row has `-` or `no` in it.
    pub(crate) fn where_told(mut self) -> Self {
        self.dispensable = true;
        self
    }
}

/// A table that can grow: rows added later keep the widths of the earlier ones.
pub(crate) struct Table<T: ?Sized> {
    columns: Vec<Column<T>>,
    widths: Vec<usize>,
    /// Columns of the terminal; `None` cuts nothing.
    pub(crate) limit: Option<usize>,
    /// Colour may be used.
    pub(crate) colour: bool,
}

impl<T: ?Sized> Table<T> {
    /// A table of these columns; `wide` shows all of them.
    pub(crate) fn new(columns: Vec<Column<T>>, wide: bool) -> Self {
        let columns: Vec<_> = columns.into_iter().filter(|column| wide || !column.wide).collect();
        let widths = columns.iter().map(|column| column.title.width()).collect();
        Self { columns, widths, limit: None, colour: false }
    }

    /// Takes over the columns of `other`, made for a later moment, and keeps its own widths.
    pub(crate) fn take_columns_of(&mut self, other: Self) {
        self.columns = other.columns;
        self.limit = other.limit;
    }

    /// Leaves out the columns that tell nothing of `items`. For a table that is printed once: rows that came later could
    /// have something to tell.
    pub(crate) fn compact<'a>(mut self, items: impl IntoIterator<Item = &'a T> + Clone) -> Self
    where
        T: 'a,
    {
        let says = |column: &Column<T>, item: &T| !matches!((column.cell)(item).text.as_str(), "-" | "no");
        self.columns.retain(|c| !c.dispensable || items.clone().into_iter().any(|item| says(c, item)));
        self.widths = self.columns.iter().map(|column| column.title.width()).collect();
        self
    }

    /// How it is to look on this screen.
    pub(crate) fn on(mut self, screen: &super::Screen) -> Self {
        self.limit = screen.width();
        self.colour = screen.colour;
        self
    }

    /// Title row and rows.
    pub(crate) fn render<'a>(&mut self, items: impl IntoIterator<Item = &'a T>) -> String
    where
        T: 'a,
    {
        self.lines(items, true)
    }

    /// Rows only, under a title printed before.
    pub(crate) fn more<'a>(&mut self, items: impl IntoIterator<Item = &'a T>) -> String
    where
        T: 'a,
    {
        self.lines(items, false)
    }

    fn lines<'a>(&mut self, items: impl IntoIterator<Item = &'a T>, title: bool) -> String
    where
        T: 'a,
    {
        let titles = self.columns.iter().map(|column| Cell::from(&column.title)).collect();
        let rows =
            items.into_iter().map(|item| self.columns.iter().map(|column| (column.cell)(item)).collect());
        let rows: Vec<Vec<Cell>> = title.then_some(titles).into_iter().chain(rows).collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let last = self.columns.len().saturating_sub(1);
        let before_last: usize = self.widths.iter().take(last).map(|width| width + GAP).sum();
        // Below a dozen columns for the last one, the terminal's own wrapping says more than a cut would.
        let room = self.limit.map(|limit| limit.saturating_sub(before_last)).filter(|room| *room >= 12);

        let mut table = comfy_table::Table::new();
        table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
        if self.colour {
            table.enforce_styling().style_text_only();
        } else {
            table.force_no_tty();
        }
        for row in rows {
            table.add_row(row.into_iter().enumerate().map(|(i, cell)| {
                let text = match room {
                    Some(room) if i == last => text::cut(&cell.text, room),
                    _ => cell.text,
                };
                match cell.tone.colour() {
                    Some(colour) => StyledCell::new(text).fg(colour),
                    None => StyledCell::new(text),
                }
            }));
        }
        for (i, column) in table.column_iter_mut().enumerate() {
            let gap = if i == last { 0 } else { GAP };
            column.set_padding((0, u16::try_from(gap).unwrap_or(0)));
            if i != last {
                let width = u16::try_from(self.widths[i] + gap).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            }
        }
        // A title or cell that ends early leaves blanks; they are noise to whoever copies a line.
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}
