//! The whole benchmark: calibration and lower bounds of the figures, in virtual time, so that machine load has no effect.

use super::headline::{CALIBRATION, MLF};
use super::judged::FIFO;
use super::model::{App, ModelRun, Params, RunResult};
use super::runs::{ModelJob, NONE, all};
use super::table::ResultTable;
use super::{SEED_DEFAULT, SchedReport, judged, policy_names, workloads as work};
use crate::figures::{Figure, Figures, Goal};
use crate::machine::Machine;
use crate::progress::BenchProgress;
use crate::report::BenchReport;

fn run(policy: &str, apps: Vec<App>) -> RunResult {
    all("test", &[ModelJob::new(policy, apps, SEED_DEFAULT)], &BenchProgress::new()).remove(0)
}

#[track_caller]
fn check_calibration(seconds: f64, paper_s: f64) {
    let share = seconds / paper_s;
    assert!((CALIBRATION.0..=CALIBRATION.1).contains(&share), "{seconds} s, the paper {paper_s} s: {share}");
}

#[test]
fn without_a_scheduler_the_model_takes_as_long_as_the_paper_measured() {
    check_calibration(run(NONE, work::two(8 << 10)).seconds(), work::paper::TWO_READERS_S);
    check_calibration(run(NONE, work::ten()).seconds(), work::paper::TEN_APPS_S);
}

#[test]
fn fifo_is_what_a_server_without_a_scheduler_does() {
    assert_eq!(run(FIFO, work::ten()), run(NONE, work::ten()));
}

#[test]
fn every_policy_serves_everything_once() {
    let apps = || {
        vec![
            App::reader("dealt", 16 << 20, 8, 8 << 10),
            App::writer("written", 8 << 20, 4, 64 << 10),
            App::reader("stream", 8 << 20, 1, 1 << 20),
        ]
    };
    for policy in policy_names() {
        let result = run(&policy, apps());
        let requests: Vec<u64> = result.apps.iter().map(|app| app.requests).collect();
        assert_eq!(requests, [2048, 256, 256], "{policy}");
        assert_eq!(run(&policy, apps()), result, "{policy}: the same seed, the same result");
    }
}

#[test]
fn a_policy_that_does_not_exist_is_refused_with_the_list() {
    let error = judged::Judged::new("fast").unwrap_err().to_string();
    assert!(error.contains("fast") && error.contains(MLF), "{error}");
}

#[test]
fn mlf_reaches_its_floor_for_the_ten_applications() {
    let seconds = |policy: &str| -> Vec<f64> {
        let runs: Vec<ModelJob> = (101..110).map(|seed| ModelJob::new(policy, work::ten(), seed)).collect();
        all("test", &runs, &BenchProgress::new()).iter().map(RunResult::seconds).collect()
    };
    let pairs = seconds(NONE).into_iter().zip(seconds(MLF));
    let mut ratios: Vec<f64> = pairs.map(|(none, mlf)| none / mlf).collect();
    ratios.sort_by(f64::total_cmp);
    assert!(4.0 <= ratios[4], "{ratios:?}");
}

#[test]
fn mlf_reaches_its_floors_for_a_cat_beside_a_large_reader() {
    let apps = || work::beside_cat(work::MIDDLE_GRANULARITY);
    let (fifo, mlf) = (run(FIFO, apps()), run(MLF, apps()));
    let ratio = |at: usize| fifo.apps[at].seconds() / mlf.apps[at].seconds();
    assert!(5.0 <= ratio(1), "cat: {}", ratio(1));
    assert!(1.0 <= ratio(0), "beside it: {}", ratio(0));
}

#[test]
fn mlf_reaches_its_floors_for_two_readers() {
    for (granularity, floor) in [(8 << 10, 20.0), (64 << 10, 3.5)] {
        let (fifo, mlf) = (run(NONE, work::two(granularity)), run(MLF, work::two(granularity)));
        let ratio = fifo.seconds() / mlf.seconds();
        assert!(floor <= ratio, "{granularity}: {ratio}");
    }
}

#[test]
fn two_readers_end_together_under_mlf() {
    let granularities = [16 << 10, 64 << 10];
    let runs: Vec<ModelJob> = granularities
        .into_iter()
        .flat_map(|granularity| (101..104).map(move |seed| ModelJob::new(MLF, work::two(granularity), seed)))
        .collect();
    let mut gaps: Vec<f64> =
        all("test", &runs, &BenchProgress::new()).iter().map(RunResult::finish_gap).collect();
    gaps.sort_by(f64::total_cmp);
    assert!(gaps[gaps.len() / 2] <= 0.05, "{gaps:?}");
}

#[test]
fn a_lone_stream_pays_nothing_for_the_scheduler() {
    let ratio = run(NONE, work::lone()).seconds() / run(MLF, work::lone()).seconds();
    assert!(0.98 <= ratio, "{ratio}");
}

#[test]
fn the_report_has_the_form_of_all_benchmarks_and_tables_beside_it() {
    let mut figures = Figures::default();
    figures.add("x", Figure::of(&[1.0], "ratio"), Goal::None, "");
    let machine = Machine::here(&std::env::temp_dir());
    let report =
        BenchReport { title: "t".into(), figures, machine, settings: serde_json::json!({"seeds": 1}) };
    let mut table = ResultTable::new("two", "s", vec!["8k".into()]);
    table.row("mlf", vec![2.5]);
    let mut said = SchedReport { report, tables: vec![("two_readers_s", table)] };
    let read: serde_json::Value = serde_json::from_str(&said.json()).unwrap();
    assert_eq!((&read["figures"]["x"]["runs"], &read["settings"]["seeds"]), (&1.into(), &1.into()));
    assert!(read["machine"]["cpus"].is_number());
    assert_eq!(read["tables"]["two_readers_s"]["rows"][0]["values"][0], 2.5);
    assert!(said.table().contains("mlf"), "{}", said.table());
    said.tables.clear();
    let read: serde_json::Value = serde_json::from_str(&said.json()).unwrap();
    assert_eq!(read.as_object().unwrap().len(), 3, "no tables, no key");
}

#[test]
fn what_a_full_controller_refuses_is_served_later() {
    let mut judged = judged::Judged::with_queue(FIFO, 4).unwrap();
    let apps = [App::reader("many", 4 << 20, 16, 32 << 10)];
    let at_once = Params { start_spread_ns: 0, ..Params::PAPER };
    let result = ModelRun::run(&at_once, &apps, &mut judged, 1);
    assert_eq!(result.apps[0].requests, 128);
    assert!(judged.was_full());
}
