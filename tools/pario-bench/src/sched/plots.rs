//! Plots of the tables.

use std::fs;
use std::path::Path;

use super::sweeps::Tables;
use super::table::ResultTable;
use super::workloads as work;
use crate::BenchError;
use crate::plot::{BarChart, Labels, LineChart, Scale, Series};

/// Draws every table with a plot into a directory, made if missing.
pub(crate) fn draw(dir: &Path, tables: &Tables) -> Result<(), BenchError> {
    fs::create_dir_all(dir).map_err(BenchError::at("cannot make", dir))?;
    for (name, table) in tables {
        let Some(svg) = picture(name, table) else { continue };
        let path = dir.join(format!("{name}.svg"));
        fs::write(&path, svg).map_err(BenchError::at("cannot write", &path))?;
    }
    Ok(())
}

fn picture(name: &str, table: &ResultTable) -> Option<String> {
    let granularity = "granularity";
    match name {
        "one_reader_mb_s" => Some(lines(table, granularity, Scale::Linear)),
        "two_readers_s" | "cat_s" | "cat_response_ms" | "large_beside_cat_s" => {
            Some(lines(table, granularity, Scale::Log10))
        }
        "scaling_mb_s" => Some(lines(table, "clients", Scale::Linear)),
        "ten_apps_s" => Some(bars(table)),
        _ => None,
    }
}

/// A line per row; columns are sizes or numbers, on a logarithmic axis.
fn lines(table: &ResultTable, x: &str, y: Scale) -> String {
    let places: Vec<f64> = table.columns.iter().map(|column| position(column)).collect();
    let line = |row: &super::table::TableRow| Series {
        name: row.name.clone(),
        values: places.iter().copied().zip(row.values.iter().copied()).collect(),
    };
    let chart = LineChart {
        labels: labels(table, x),
        x: Scale::Log2,
        y,
        marks: places.iter().copied().zip(table.columns.iter().cloned()).collect(),
        series: table.rows.iter().map(line).collect(),
    };
    chart.svg()
}

/// A group of bars per row, a bar per column.
fn bars(table: &ResultTable) -> String {
    let of_column = |(at, name): (usize, &String)| Series {
        name: name.clone(),
        values: table.rows.iter().map(|row| row.values[at]).collect(),
    };
    let number = |(at, _): (usize, &super::table::TableRow)| (at + 1).to_string();
    let last = table.rows.len().saturating_sub(1);
    let mut groups: Vec<String> = table.rows.iter().enumerate().map(number).collect();
    groups.iter_mut().skip(last).for_each(|group| *group = "all".to_owned());
    let chart = BarChart {
        labels: labels(table, "application, in the order of Table 2"),
        y: Scale::Log10,
        groups,
        series: table.columns.iter().enumerate().map(of_column).collect(),
    };
    chart.svg()
}

fn labels(table: &ResultTable, x: &str) -> Labels {
    Labels { title: table.title.clone(), x: x.to_owned(), y: table.unit.to_owned() }
}

/// Coordinate of a column: a granularity in bytes, or its number.
fn position(column: &str) -> f64 {
    let size = work::GRANULARITIES.iter().find(|size| work::short(**size) == column);
    #[expect(clippy::cast_precision_loss, reason = "powers of two")]
    size.map_or_else(|| column.parse().unwrap_or(f64::NAN), |size| *size as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_with_pictures_are_drawn_and_a_directory_is_made() {
        let columns = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let mut sweep = ResultTable::new("two readers", "s", columns(["8k", "4m"]));
        sweep.row("mlf", vec![10.0, 100.0]);
        let mut ten = ResultTable::new("ten", "s", columns(["fifo", "mlf"]));
        ten.row("one", vec![10.0, 5.0]);
        ten.row("until the last is done", vec![20.0, 5.0]);
        let other = ResultTable::new("fairness", "ratio", Vec::new());
        let tables = vec![("two_readers_s", sweep), ("ten_apps_s", ten), ("ten_apps_fairness", other)];
        let dir = tempfile::tempdir().unwrap();
        let plots = dir.path().join("plots");
        draw(&plots, &tables).unwrap();
        let mut names: Vec<_> = fs::read_dir(&plots)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["ten_apps_s.svg", "two_readers_s.svg"]);
        assert!(fs::read_to_string(plots.join("two_readers_s.svg")).unwrap().contains(">4m<"));
        let error = draw(&plots.join("two_readers_s.svg"), &tables).unwrap_err();
        assert!(error.to_string().contains("two_readers_s.svg"), "{error}");
    }
}
