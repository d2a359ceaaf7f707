//! `pario bench mpi`: every promised figure, by both MPIs, with plots and a page.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::{bench, check_nothing_left, wait_for};

#[test]
fn mpi_shows_every_promised_figure_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plots = tempfile::tempdir().expect("a temporary directory");
    let mut command =
        bench(dir.path(), &["mpi", "--size", "32MB", "--ranks", "2", "--kernels", "btio,contiguous"]);
    command.args(["--passes", "1"]).arg("--plots").arg(plots.path().join("made"));
    let output = command.arg("--json").output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let names = [
        "btio_write_vs_best_native_2",
        "btio_total_vs_best_native_2",
        "btio_read_vs_best_native_2",
        "btio_total_vs_romio_2",
        "btio_total_vs_ompio_2",
        "btio_limited_write_vs_best_native_2",
        "contiguous_total_vs_best_native_2",
        "contiguous_independent_total_vs_best_native_2",
        "open_close_ms_2",
    ];
    for name in names {
        let figure = &said["figures"][name];
        assert!(figure["value"].as_f64().is_some_and(|value| 0.0 < value), "{name}: {}", said["figures"]);
    }
    // Whether anything is hidden is a matter of speed; that it was measured is not.
    assert!(said["figures"]["iwrite_overlap_2"]["value"].is_number(), "{}", said["figures"]);
    check_limited(&said["cases"]);
    let page = std::fs::read_to_string(plots.path().join("made/figures.md")).expect("the page is there");
    assert!(names.iter().all(|name| page.contains(name)), "{page}");
    for plot in ["write_2", "total_2", "read_2", "limited_write_2"] {
        let svg = std::fs::read_to_string(plots.path().join(format!("made/{plot}.svg"))).expect("a plot");
        assert!(svg.contains("class=\"bar\""), "{plot}: {svg}");
    }
    check_nothing_left(dir.path());
}

/// Processes that run one of the benchmark's programs in `dir`.
fn ranks_in(dir: &Path) -> Vec<Pid> {
    let wanted = dir.to_str().expect("a plain name");
    let runs = |pid: &Pid| {
        let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let program = String::from_utf8_lossy(line.split(|byte| *byte == 0).next().unwrap_or_default());
        program.starts_with(wanted) && program.contains("/kernels-")
    };
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(runs).collect()
}

/// Ends what a failed test leaves.
struct Sweeper<'a>(&'a Path);

impl Drop for Sweeper<'_> {
    fn drop(&mut self) {
        for pid in ranks_in(self.0) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn mpi_that_is_killed_leaves_no_rank_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command =
        bench(dir.path(), &["mpi", "--size", "64MB", "--ranks", "2", "--kernels", "contiguous"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().expect("the command runs");
    let _sweeper = Sweeper(dir.path());
    wait_for("a rank", || !ranks_in(dir.path()).is_empty());
    // A stopped rank would keep the others waiting for ever.
    let stopped = ranks_in(dir.path()).first().map(|pid| kill_process(*pid, Signal::STOP));
    assert!(matches!(stopped, Some(Ok(()))), "a rank is stopped: {stopped:?}");
    running.kill().expect("it can be killed");
    running.wait().expect("it ends");
    wait_for("the end of all ranks", || ranks_in(dir.path()).is_empty());
    let is_empty = || std::fs::read_dir(dir.path()).expect("the directory is there").next().is_none();
    wait_for("the janitor", is_empty);
}

/// The preloaded pace holds: computing apart, a rank of an MPI library has paid at least for what it wrote itself.
fn check_limited(cases: &serde_json::Value) {
    let limited = cases.as_array().expect("runs").iter();
    let limited: Vec<_> =
        limited.filter(|case| case["limited"] == true && case["side"] == "native").collect();
    assert_eq!(limited.len(), 4, "two MPIs, collective and independent: {cases}");
    for case in limited {
        let (bytes, rounds) =
            (case["bytes"].as_f64().expect("a number"), case["seconds"]["total_s"].as_array());
        for seconds in rounds.expect("rounds").iter().filter_map(serde_json::Value::as_f64) {
            // The limit's debt after each of eight dumps, at most 0.2 ms, may be paid while the ranks compute; and the first
            // rank pays less than the following ones.
            let speed = bytes / 2.0 / (seconds + 0.0017);
            assert!(speed <= 500e6, "{speed} bytes a second by each rank: {case}");
        }
    }
}
