//! Tables for terminals: columns as wide as their widest cell, two spaces between them.

use std::io::{self, Write};

/// Where a column's text stands.
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

    /// A table with a head; `<` before a word puts its column to the left, anything else to the right.
    pub(crate) fn with_head(head: &[&str]) -> Table {
        let align = |word: &&str| if word.starts_with('<') { Align::Left } else { Align::Right };
        let mut table = Table::new(&head.iter().map(align).collect::<Vec<_>>());
        table.row(head.iter().map(|word| word.trim_start_matches('<').to_owned()).collect());
        table
    }

    /// All lines start with so many spaces.
    pub(crate) fn indented(mut self, spaces: usize) -> Table {
        self.indent = spaces;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.align.len(), "a row has as many cells as the table has columns");
        self.rows.push(cells);
    }

    /// Prints it.
    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut widths = vec![0; self.align.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
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
    fn words_fill_columns_downwards() {
        let words: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        let mut text = Vec::new();
        columns(&words, 9, &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "a  c  e\nb  d\n");
    }
}
