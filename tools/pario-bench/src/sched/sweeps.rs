//! The experiments for every policy, with the first seed: tables, from which the plots are drawn.

use super::model::{App, RunResult};
use super::runs::{ModelJob, all};
use super::table::ResultTable;
use super::workloads::{self as work, paper};
use crate::progress::BenchProgress;

/// Tables by their names.
pub(crate) type Tables = Vec<(&'static str, ResultTable)>;

/// One experiment: a column per variant, a row per policy.
struct Sweep<'a> {
    policies: &'a [String],
    columns: Vec<String>,
    /// For each policy, the result of each variant.
    results: Vec<Vec<RunResult>>,
}

impl Sweep<'_> {
    /// Runs every variant under every policy.
    fn run<'a>(
        what: &str,
        policies: &'a [String],
        variants: &[(String, Vec<App>)],
        seed: u64,
        progress: &BenchProgress,
    ) -> Sweep<'a> {
        let of = |policy: &String| {
            variants
                .iter()
                .map(move |(_, apps)| ModelJob::new(policy, apps.clone(), seed))
                .collect::<Vec<_>>()
        };
        let runs: Vec<ModelJob> = policies.iter().flat_map(of).collect();
        let results = all(what, &runs, progress);
        let results = results.chunks(variants.len()).map(<[RunResult]>::to_vec).collect();
        let columns = variants.iter().map(|(name, _)| name.clone()).collect();
        Sweep { policies, columns, results }
    }

    /// A table of `value` of each run.
    fn table(&self, title: &str, unit: &'static str, value: impl Fn(&RunResult) -> f64) -> ResultTable {
        let mut table = ResultTable::new(title, unit, self.columns.clone());
        for (policy, results) in self.policies.iter().zip(&self.results) {
            table.row(policy, results.iter().map(&value).collect());
        }
        table
    }
}

fn by_granularity(apps: impl Fn(u64) -> Vec<App>) -> Vec<(String, Vec<App>)> {
    work::GRANULARITIES.iter().map(|size| (work::short(*size), apps(*size))).collect()
}

/// Runs them all.
pub(crate) fn all_tables(policies: &[String], seed: u64, progress: &BenchProgress) -> Tables {
    let mut tables = Vec::new();
    let one = Sweep::run("one reader", policies, &by_granularity(work::one), seed, progress);
    let title = "one application, 4 GiB dealt to 32 clients, by granularity";
    tables.push(("one_reader_mb_s", one.table(title, "MB/s", RunResult::megabytes_per_second)));
    two(&mut tables, policies, seed, progress);
    cat(&mut tables, policies, seed, progress);
    ten(&mut tables, policies, seed, progress);
    let numbers = work::CLIENT_NUMBERS.iter().map(|number| (number.to_string(), work::scaled(*number)));
    let scaled = Sweep::run("scaling", policies, &numbers.collect::<Vec<_>>(), seed, progress);
    let title = "one application, 1 GiB at 32 KiB, by clients";
    tables.push(("scaling_mb_s", scaled.table(title, "MB/s", RunResult::megabytes_per_second)));
    let lone = Sweep::run("lone stream", policies, &[("lone".into(), work::lone())], seed, progress);
    let title = "a lone sequential stream, 1 GiB in requests of 32 KiB";
    tables.push(("lone_stream_mb_s", lone.table(title, "MB/s", RunResult::megabytes_per_second)));
    tables
}

fn two(tables: &mut Tables, policies: &[String], seed: u64, progress: &BenchProgress) {
    let two = Sweep::run("two readers", policies, &by_granularity(work::two), seed, progress);
    let title = "two applications at once, 4 GiB and 32 clients each, until both are done";
    tables.push(("two_readers_s", two.table(title, "s", RunResult::seconds)));
    let title = "the same: how much earlier the first is done";
    tables.push(("two_readers_finish_gap", two.table(title, "share", RunResult::finish_gap)));
}

fn cat(tables: &mut Tables, policies: &[String], seed: u64, progress: &BenchProgress) {
    let cat = Sweep::run("cat beside a reader", policies, &by_granularity(work::beside_cat), seed, progress);
    let title = "cat of 16 MiB beside a large reader, by the granularity of that one";
    tables.push(("cat_s", cat.table(title, "s", |run| run.apps[1].seconds())));
    let title = "the same: mean response time of cat";
    tables.push(("cat_response_ms", cat.table(title, "ms", |run| run.apps[1].response_ms())));
    let title = "the same: the large reader";
    tables.push(("large_beside_cat_s", cat.table(title, "s", |run| run.apps[0].seconds())));
}

/// Table 2 of the paper: a row per application, a column per policy, the paper's beside them.
fn ten(tables: &mut Tables, policies: &[String], seed: u64, progress: &BenchProgress) {
    let apps = work::ten();
    let alone = |app: &App| vec![app.clone()];
    let mut variants = vec![("all".to_owned(), apps.clone())];
    variants.extend(apps.iter().map(|app| (app.name.clone(), alone(app))));
    let sweep = Sweep::run("ten applications", policies, &variants, seed, progress);
    let columns = policies.to_vec();
    let mut with_paper = columns.clone();
    with_paper.extend(["NFS".to_owned(), "aIOLi".to_owned()]);
    let mut times =
        ResultTable::new("ten applications at once; NFS and aIOLi are the paper's", "s", with_paper);
    let mut responses = ResultTable::new("the same: mean response time", "ms", columns.clone());
    for (at, app) in apps.iter().enumerate() {
        let of = |value: fn(&super::model::AppResult) -> f64| {
            sweep.results.iter().map(move |runs| value(&runs[0].apps[at])).collect::<Vec<f64>>()
        };
        let mut seconds = of(super::model::AppResult::seconds);
        seconds.extend([paper::TEN_NFS_S[at], paper::TEN_AIOLI_S[at]]);
        times.row(&app.name, seconds);
        responses.row(&app.name, of(super::model::AppResult::response_ms));
    }
    let mut ends: Vec<f64> = sweep.results.iter().map(|runs| runs[0].seconds()).collect();
    ends.extend([595.5, 143.5]);
    times.row("until the last is done", ends);
    let fairness = fairness(&sweep, columns);
    tables.extend([
        ("ten_apps_s", times),
        ("ten_apps_response_ms", responses),
        ("ten_apps_fairness", fairness),
    ]);
}

/// Fairness of the ten slowdowns: each application's time by its time alone.
fn fairness(sweep: &Sweep<'_>, columns: Vec<String>) -> ResultTable {
    let mut table =
        ResultTable::new("the same: fairness of the slow-downs against being alone", "ratio", columns);
    let slowed = |runs: &Vec<RunResult>| -> Vec<f64> {
        let together = runs[0].apps.iter().map(super::model::AppResult::seconds);
        together.zip(&runs[1..]).map(|(seconds, alone)| seconds / alone.seconds()).collect()
    };
    let slowed: Vec<Vec<f64>> = sweep.results.iter().map(slowed).collect();
    table.row("Jain's index", slowed.iter().map(|slow| jain(slow)).collect());
    let spread = |slow: &Vec<f64>| {
        let most = slow.iter().copied().fold(0.0, f64::max);
        most / slow.iter().copied().fold(f64::INFINITY, f64::min)
    };
    table.row("most to least slowed", slowed.iter().map(spread).collect());
    let mean = |slow: &Vec<f64>| slow.iter().sum::<f64>() / count(slow.len());
    table.row("mean slow-down", slowed.iter().map(mean).collect());
    table
}

/// Jain's index of fairness: 1 if all values are equal, `1/n` if one has everything.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (count(values.len()) * squares) }
}

#[expect(clippy::cast_precision_loss, reason = "a handful of applications")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_knows_its_ends() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }
}
