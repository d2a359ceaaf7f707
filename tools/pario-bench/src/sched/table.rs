//! Tables of results: a name per row, a number per column.

use std::fmt::Write as _;

use serde::Serialize;

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct ResultTable {
    #[serde(skip)]
    pub(crate) title: String,
    /// What the numbers are.
    pub(crate) unit: &'static str,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<TableRow>,
}

/// One row.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct TableRow {
    pub(crate) name: String,
    /// One for each column.
    pub(crate) values: Vec<f64>,
}

impl ResultTable {
    /// An empty one.
    pub(crate) fn new(title: impl Into<String>, unit: &'static str, columns: Vec<String>) -> ResultTable {
        ResultTable { title: title.into(), unit, columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, name: impl Into<String>, values: Vec<f64>) {
        assert_eq!(values.len(), self.columns.len(), "a number for each column");
        self.rows.push(TableRow { name: name.into(), values });
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        let name = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let width = self.columns.iter().map(String::len).max().unwrap_or(0).max(7);
        let mut text = format!("\n{}, {}\n{:name$}", self.title, self.unit, "");
        for column in &self.columns {
            let _ = write!(text, " {column:>width$}");
        }
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "{:name$}", row.name);
            for value in &row.values {
                let digits = if value.abs() < 9.995 { 2 } else { usize::from(value.abs() < 99.95) };
                let _ = write!(text, " {value:>width$.digits$}");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let mut table = ResultTable::new("two readers", "s", vec!["8k".into(), "16k".into()]);
        table.row("fifo", vec![5400.4, 0.51]);
        table.row("mlf", vec![25.64, 9.996]);
        let expected = "\ntwo readers, s\n          8k     16k\nfifo    5400    0.51\nmlf     25.6    10.0\n";
        assert_eq!(table.text(), expected);
    }
}
