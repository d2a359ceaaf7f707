//! Tables for terminals: columns as wide as their widest cell, two spaces between them.

use std::io::{self, Write};

/// No column is made narrower than this.
const WRAPPED_MIN: usize = 16;

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells.
#[derive(Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// A table without a head.
    pub(crate) fn new(align: &[Align]) -> Table {
        Table { align: align.to_vec(), rows: Vec::new(), indent: 0 }
    }

    /// A table with a head; `<` before a word aligns its column left, otherwise right.
    pub(crate) fn with_head(head: &[&str]) -> Table {
        let align = |word: &&str| if word.starts_with('<') { Align::Left } else { Align::Right };
        let mut table = Table::new(&head.iter().map(align).collect::<Vec<_>>());
        table.row(head.iter().map(|word| word.trim_start_matches('<').to_owned()).collect());
        table
    }

    /// Indents all lines by `spaces` spaces.
    pub(crate) fn indented(mut self, spaces: usize) -> Table {
        self.indent = spaces;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.align.len(), "a row has as many cells as the table has columns");
        self.rows.push(cells);
    }

    /// The same with only the columns of these heads.
    pub(crate) fn with_columns(mut self, heads: &[&str]) -> Table {
        let is_kept: Vec<bool> =
            self.rows.first().into_iter().flatten().map(|head| heads.contains(&head.as_str())).collect();
        let mut at = is_kept.iter();
        self.align.retain(|_| at.next().is_none_or(|kept| *kept));
        for row in &mut self.rows {
            let mut at = is_kept.iter();
            row.retain(|_| at.next().is_none_or(|kept| *kept));
        }
        self
    }

    /// The same in at most `width` characters, as far as possible: the widest text cells continue on further lines.
    pub(crate) fn within(mut self, width: usize) -> Table {
        for _ in 0..self.align.len() {
            let widths = self.widths();
            let total = self.indent + widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            let words = (0..widths.len()).filter(|column| self.align[*column] == Align::Left);
            let Some(column) = words.max_by_key(|column| widths[*column]).filter(|_| width < total) else {
                return self;
            };
            let limit = (widths[column] + width).saturating_sub(total).max(WRAPPED_MIN);
            self.rows = self.rows.iter().flat_map(|row| wrap_row(row, column, limit)).collect();
        }
        self
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.align.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// Prints it.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = match self.align[column] {
                    Align::Left => ("", pad.as_str()),
                    Align::Right => (pad.as_str(), ""),
                };
                let gap = if column == 0 { "" } else { "  " };
                line.push_str(&format!("{gap}{before}{cell}{after}"));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A row with one cell over as many lines as it needs.
fn wrap_row(row: &[String], column: usize, limit: usize) -> Vec<Vec<String>> {
    let lines = wrap(&row[column], limit);
    let line = |(at, text): (usize, String)| {
        let mut cells = if at == 0 { row.to_vec() } else { vec![String::new(); row.len()] };
        cells[column] = text;
        cells
    };
    lines.into_iter().enumerate().map(line).collect()
}

/// Text in lines of at most `limit` characters, cut behind spaces where there are any, else slashes or commas.
fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while limit < rest.len() {
        let last = |good: &[char]| rest[..limit].iter().rposition(|letter| good.contains(letter));
        let good = last(&[' ']).or_else(|| last(&['/', ',']));
        let behind = rest.split_off(good.map_or(limit, |at| at + 1));
        lines.push(rest.into_iter().collect());
        rest = behind;
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// Words in as many columns as fit into `width`, filled downwards.
pub(crate) fn columns(words: &[String], width: usize, out: &mut impl Write) -> io::Result<()> {
    let widest = words.iter().map(|word| word.chars().count()).max().unwrap_or(0) + 2;
    let across = (width / widest).max(1);
    let down = words.len().div_ceil(across);
    for line in 0..down {
        let mut text = String::new();
        for word in words.iter().skip(line).step_by(down) {
            text.push_str(word);
            text.push_str(&" ".repeat(widest - word.chars().count()));
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::with_head(&["<name", "size"]).indented(1);
        table.row(vec!["é".into(), "10 B".into()]);
        table.row(vec!["longer".into(), "1 B".into()]);
        let mut text = Vec::new();
        table.print(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), " name    size\n é       10 B\n longer   1 B\n");
    }

    #[test]
    fn columns_are_chosen_by_their_heads() {
        let mut table = Table::with_head(&["<name", "size", "<note"]);
        table.row(vec!["a".into(), "10".into(), "x".into()]);
        let mut text = Vec::new();
        table.with_columns(&["name", "note"]).print(&mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "name  note\na     x\n");
    }

    #[test]
    fn wide_cells_go_on_below() {
        let mut table = Table::with_head(&["<key", "<value", "size"]);
        table.row(vec!["a".into(), "/one/directory, /another/directory".into(), "7".into()]);
        table.row(vec!["b".into(), "x".repeat(40), "8".into()]);
        let mut text = Vec::new();
        table.within(31).print(&mut text).unwrap();
        let expected = "key  value                 size\n\
            a    /one/directory,          7\n     /another/directory\n\
            b    xxxxxxxxxxxxxxxxxxxx     8\n     xxxxxxxxxxxxxxxxxxxx\n";
        assert_eq!(String::from_utf8(text).unwrap().replace(" \n", "\n"), expected);
    }

    #[test]
    fn words_fill_columns_downwards() {
        let words: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        let mut text = Vec::new();
        columns(&words, 9, &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "a  c  e\nb  d\n");
    }
}
