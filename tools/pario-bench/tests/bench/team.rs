//! `pario bench team` end to end, tiny: every kernel verifies its sides and shows its figures; wrong options are refused in one line.

use super::{bench, check_figures, check_nothing_left, figures};

/// Runs a kernel with one pair and returns its JSON.
fn team(arguments: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &[&["team"], arguments, &["--pairs", "1"]].concat());
    check_nothing_left(dir.path());
    said
}

#[test]
fn micro_shows_every_promised_figure_and_every_side() {
    let said = team(&["micro", "--size", "1MiB"]);
    let promised = [
        "partition_write_vs_separate",
        "partition_write_vs_separate_4",
        "partition_write_vs_merged",
        "partition_write_vs_ordered",
        "partition_write_vs_ordered_4",
        "partition_small_vs_ordered",
        "partition_small_vs_separate",
        "plain_write_vs_best_single",
        "plain_small_vs_ordered",
        "common_write_vs_serial",
        "partition_read_vs_separate",
        "plain_read_vs_separate",
        "log_write_vs_separate",
        "log_read_vs_plain",
        "log_flattened_read_vs_plain",
    ];
    check_figures(&said, &promised);
    for side in [
        "serial",
        "one_file",
        "ordered",
        "separate",
        "separate_merged",
        "team_plain",
        "team_partition",
        "team_log",
    ] {
        check_figures(&said, &[&format!("2x1MiB_write_mib_s_{side}"), &format!("4x64KiB_read_mib_s_{side}")]);
    }
}

#[test]
fn micro_measures_what_is_asked_for_and_draws_it() {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let plot = plots.path().join("team.svg");
    let drawn = plot.to_str().expect("plain names");
    let asked = [
        "micro",
        "--threads",
        "1,3",
        "--parts",
        "10000B",
        "--sides",
        "ordered,team-plain",
        "--sync",
        "--plot",
        drawn,
    ];
    let said = team(&[&asked[..], &["--size", "1MiB"]].concat());
    check_figures(&said, &["1x10000B_write_mib_s_ordered", "3x10000B_read_mib_s_team_plain"]);
    assert_eq!(said["settings"]["sync"], true);
    assert!(said["figures"]["1x10000B_write_mib_s_serial"].is_null(), "{said}");
    let svg = std::fs::read_to_string(&plot).expect("it was drawn");
    assert_eq!(svg.matches("class=\"bar\"").count(), 8, "two sides, two numbers of threads, two directions");
}

#[test]
fn btio_images_and_strided_show_their_figures() {
    let said = team(&["btio", "--class", "S", "--dumps", "3"]);
    check_figures(
        &said,
        &[
            "threads_vs_processes",
            "plain_threads_vs_processes",
            "log_threads_vs_processes",
            "log_index_bytes",
        ],
    );
    let said = team(&["images", "--size", "1MiB"]);
    check_figures(&said, &["threads_vs_serial", "plain_threads_vs_serial", "threads_vs_serial_total"]);
    let said = team(&["strided", "--size", "1MiB", "--entries", "1000"]);
    check_figures(&said, &["log_strided_vs_pwrite", "partition_strided_vs_pwrite", "log_open_s"]);
}

#[test]
fn tuned_and_meeting_show_their_figures() {
    let said = team(&["tuned", "--size", "1MiB", "--quick"]);
    check_figures(&said, &["tuned_vs_best_disk", "tuned_vs_best_limited"]);
    let share = said["figures"]["inactive_share"]["value"].as_f64();
    assert!(share.is_some_and(|share| (0.0..=1.0).contains(&share)), "{said}");
    let said = team(&["meeting", "--quick"]);
    check_figures(&said, &["meeting_us", "meeting_us_8"]);
    let is_compared = said["figures"]["meeting_vs_barrier"].is_object();
    let notes = said["settings"]["notes"].to_string();
    assert!(is_compared != notes.contains("no C compiler"), "compared, or said why not: {said}");
}

#[test]
fn wrong_options_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (words, told) in [
        (&["team", "micro", "--threads", "0"][..], "--threads 0: from 1 to 256"),
        (&["team", "micro", "--parts", "1GiB,4B"], "--parts 4B: from 8B"),
        (&["team", "micro", "--sides", "alone"], "team-partition"),
        (&["team", "btio", "--sweep"], "options of micro"),
        (&["team", "images", "--size", "4KiB"], "--size 4KiB: at least 1MiB"),
        (&["team", "frob"], "micro, btio, images, strided, tuned, meeting"),
    ] {
        let output = bench(dir.path(), words).output().expect("the command runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(told) && error.lines().count() == 1, "{words:?}: {error}");
    }
    check_nothing_left(dir.path());
}
