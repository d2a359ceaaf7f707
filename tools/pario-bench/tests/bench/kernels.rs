//! Every kernel end to end, tiny: real servers, real processes, every side verified byte by byte; checks that the published
//! figures are present and well-formed, and that invalid options are refused in one line.

use std::path::Path;

use super::{bench, check_figures, check_nothing_left, figures};

/// Runs a kernel with one repetition and returns its JSON.
fn kernel(arguments: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &[arguments, &["--pairs", "1"]].concat());
    check_nothing_left(dir.path());
    said
}

/// Figures that may be 0, such as counts.
#[track_caller]
fn check_counts(said: &serde_json::Value, names: &[&str]) {
    for name in names {
        assert!(said["figures"][name]["value"].as_f64().is_some_and(|value| 0.0 <= value), "{name}: {said}");
        assert!(said["settings"]["comparisons"][name].is_string(), "{name} does not say what it compares");
    }
}

/// Figures that must be 0.
#[track_caller]
fn check_none(said: &serde_json::Value, names: &[&str]) {
    check_counts(said, names);
    for name in names {
        assert_eq!(said["figures"][name]["max"], 0.0, "{name}: {said}");
    }
}

#[track_caller]
fn check_scene(said: &serde_json::Value, index: usize, data_bytes: u64) {
    let scene = &said["settings"]["scenes"][index];
    assert_eq!(scene["data_bytes"], data_bytes, "{scene}");
    for size in ["outbox_bytes", "server_cache_bytes", "stripe_bytes"] {
        assert!(scene[size].as_u64().is_some_and(|bytes| 0 < bytes), "{size}: {scene}");
    }
}

#[test]
fn btio_shows_its_figures_for_every_scene() {
    let said = kernel(&["btio", "--class", "S", "--dumps", "3"]);
    let promised = [
        "write_vs_memory",
        "total_vs_pwrite",
        "total_vs_pwrite_240",
        "total_vs_two_phase",
        "total_vs_two_phase_objects",
        "two_phase_vs_plain",
        "read_vs_pread",
        "reread_vs_two_phase",
        "write_vs_two_phase",
        "limited_write_vs_two_phase",
        "compute_slowdown",
        "atomic_vs_non_atomic",
    ];
    check_figures(&said, &promised);
    check_figures(&said, &["write_vs_memory_cold", "total_vs_pwrite_warm", "read_vs_pread_warm"]);
    let sides = [
        "memory",
        "pwrite",
        "plain_whole",
        "two_phase",
        "two_phase_objects",
        "client_directed",
        "server_directed",
    ];
    for side in sides {
        for kind in ["write", "read", "total"] {
            check_figures(&said, &[&format!("{kind}_mib_s_{side}"), &format!("{kind}_mib_s_{side}_warm")]);
        }
    }
    check_counts(&said, &["messages_per_collective", "messages_between_nodes"]);
    check_none(&said, &["list_bytes_after_set_view"]);
    assert!(said["figures"]["staging_hidden"]["value"].is_number(), "{said}");
    check_scene(&said, 0, 12 * 12 * 12 * 40 * 3);
    check_scene(&said, 2, 12 * 12 * 12 * 40 * 3);
    assert_eq!(said["settings"]["scenes"][3]["compute_ms"], 8.0);
    let limited = &said["settings"]["scenes"][4];
    assert_eq!(
        (&limited["store_limit_bytes_per_s"], &limited["outbox_bytes"]),
        (&500_000_000.into(), &(64 << 20).into())
    );
}

#[test]
fn slow_stores_slow_every_side() {
    let arguments = ["tile", "--size", "2MiB", "--procs", "2", "--servers", "2", "--store-limit", "8MiB/s"];
    let said = kernel(&arguments);
    // A quarter of a second for what a side moves; memory is no store.
    for side in
        ["pwrite", "plain_whole", "two_phase", "two_phase_objects", "client_directed", "server_directed"]
    {
        for kind in ["total", "read"] {
            let name = format!("{kind}_mib_s_{side}");
            let speed = said["figures"][&name]["value"].as_f64().expect("a speed");
            assert!(speed <= 8.5, "{name}: {speed} MiB/s get through a limit of 8");
        }
    }
}

#[test]
fn btio_runs_what_was_asked_for_only() {
    let said = kernel(&["btio", "--class", "w", "--dumps", "2", "--procs", "9", "--run-bytes", "240"]);
    check_figures(&said, &["total_vs_pwrite_240", "write_vs_memory"]);
    let scenes = said["settings"]["scenes"].as_array().expect("scenes");
    assert_eq!((scenes.len(), &scenes[0]["procs"]), (1, &serde_json::json!(9)));
    assert!(said["figures"]["total_vs_pwrite"].is_null(), "runs are short in this run");
    let said = kernel(&["btio", "--class", "S", "--dumps", "2", "--compute", "1", "--outbox", "16MiB"]);
    let scene = &said["settings"]["scenes"][0];
    assert_eq!((&scene["compute_ms"], &scene["outbox_bytes"]), (&1.0.into(), &(16 << 20).into()));
    check_figures(&said, &["write_vs_two_phase", "compute_write_mib_s_server_directed"]);
}

#[test]
fn tile_flash_and_subarray_compare_all_methods() {
    let usual = [
        "total_vs_pwrite",
        "total_vs_two_phase",
        "total_vs_two_phase_objects",
        "two_phase_vs_plain",
        "write_vs_memory",
        "write_vs_two_phase",
        "read_vs_pread",
        "reread_vs_two_phase",
    ];
    let said = kernel(&["tile", "--size", "1MiB", "--procs", "6", "--run-bytes", "1000", "--dumps", "2"]);
    check_figures(&said, &usual);
    check_scene(&said, 0, 2 * 6 * 174 * 1000);
    let said = kernel(&["flash", "--blocks", "2", "--procs", "3"]);
    check_figures(&said, &usual);
    check_scene(&said, 0, 3 * 2 * 8 * 8 * 8 * 8 * 24);
    let said = kernel(&["subarray", "--edge", "10", "--procs", "4", "--servers", "2"]);
    for word in ["three", "four"] {
        check_figures(&said, &usual.map(|name| format!("{word}_{name}")).each_ref().map(String::as_str));
    }
}

#[test]
fn strided_compares_independent_calls() {
    let said = kernel(&["strided", "--size", "8MiB", "--procs", "2"]);
    check_figures(&said, &["independent_total_vs_pwrite", "contiguous_total_vs_pwrite"]);
    check_figures(&said, &["independent_collective_total_vs_pwrite", "contiguous_read_vs_pread"]);
}

#[test]
fn irregular_tells_how_large_views_are() {
    let said = kernel(&["irregular", "--extents", "500", "--steps", "2", "--seed", "7"]);
    check_figures(&said, &["vector4_view_bytes", "gaps_view_bytes_per_extent", "gaps_total_vs_pwrite"]);
    check_figures(&said, &["vector4_write_vs_two_phase", "gaps_write_vs_two_phase"]);
    check_figures(&said, &["vector4_views_sent", "gaps_views_sent"]);
    let bytes = |name: &str| said["figures"][name]["value"].as_f64().expect("a number");
    assert!(bytes("vector4_view_bytes") < 200.0 && bytes("gaps_view_bytes_per_extent") <= 2.0);
    assert!(bytes("vector4_views_sent") <= 1.0 && bytes("gaps_views_sent") <= 1.0, "{said}");
    check_none(&said, &["vector4_list_bytes_after_set_view", "gaps_list_bytes_after_set_view"]);
    assert_eq!(said["settings"]["scenes"][1]["shape"]["irregular"]["pattern"]["gaps"]["seed"], 7);
}

#[test]
fn scale_goes_from_one_server_on() {
    let said = kernel(&["scale", "--servers-max", "2", "--size", "1MiB", "--procs", "3"]);
    for name in ["n1", "n2", "many_n1", "many_n2"] {
        check_figures(
            &said,
            &[&format!("{name}_total_vs_pwrite"), &format!("{name}_read_mib_s_independent")],
        );
    }
}

#[test]
fn a_plot_is_drawn_where_it_was_wanted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("plot.svg");
    let output = bench(dir.path(), &["tile", "--size", "64KiB", "--pairs", "1", "--procs", "2", "--plot"])
        .arg(&path)
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&path).expect("the plot is there");
    assert!(text.starts_with("<svg ") && text.contains("server-directed"), "{text}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("to close MiB/s") && table.contains("total_vs_pwrite"), "{table}");
}

#[track_caller]
fn check_refused(dir: &Path, arguments: &[&str], naming: &str) {
    let output = bench(dir, arguments).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(naming), "{arguments:?}: {said}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cases: [(&[&str], &str); 11] = [
        (&["btio", "--procs", "3"], "square number of processes, such as 1 or 4"),
        (&["btio", "--run-bytes", "100"], "multiple of a cell's 40 bytes"),
        (&["btio", "--class", "D"], "'D'"),
        (&["tile", "--grid", "3x2"], "--grid 3x2"),
        (&["flash", "--block", "9"], "--block 9"),
        (&["subarray", "--dimensions", "5"], "--dimensions 5"),
        (&["irregular", "--extents", "1"], "--extents 1"),
        (&["strided", "--servers", "0"], "--servers 0"),
        (&["scale", "--store-limit", "fast"], "fast"),
        (&["tile", "--store-limit", "1MB/s"], "each of 4 servers must get 1MiB a second"),
        (&["btio", "--link", "1Gbit"], "--link: on one host there is none; add --hosts 2"),
    ];
    for (arguments, naming) in cases {
        check_refused(dir.path(), arguments, naming);
    }
    check_nothing_left(dir.path());
}

#[test]
fn the_cache_on_a_plain_file_is_compared_with_the_plain_file_alone() {
    let promised = ["cache_total_vs_pwrite", "cache_total_vs_two_phase", "cache_read_vs_pread"];
    let speeds = ["cache_total_mib_s_cooperative_cache", "cache_total_mib_s_pwrite"];
    for arguments in
        [&["btio", "--class", "S", "--dumps", "2", "--cache"][..], &["flash", "--blocks", "2", "--cache"]]
    {
        let said = kernel(arguments);
        check_figures(&said, &promised);
        check_figures(&said, &speeds);
        assert_eq!(said["settings"]["scenes"].as_array().map(Vec::len), Some(1), "only that: {said}");
    }
}

#[test]
fn btio_in_atomic_mode_waits_for_no_lock() {
    let said = kernel(&["btio", "--class", "S", "--dumps", "2", "--atomic"]);
    check_figures(&said, &["atomic_vs_non_atomic", "atomic_read_vs_non_atomic"]);
    check_none(&said, &["lock_waits"]);
}

#[test]
fn btio_within_outboxes_is_compared_with_memory_alone() {
    let said = kernel(&["btio", "--class", "S", "--dumps", "3", "--within-outboxes"]);
    check_figures(&said, &["write_vs_memory"]);
    assert!(said["figures"]["total_vs_pwrite"].is_null(), "{said}");
}

#[test]
fn sides_that_were_not_asked_for_are_not_played() {
    let said =
        kernel(&["subarray", "--dimensions", "3", "--edge", "16", "--sides", "two-phase,server-directed"]);
    check_figures(&said, &["three_total_vs_two_phase"]);
    assert!(said["figures"]["three_total_vs_pwrite"].is_null(), "{said}");
    assert_eq!(said["settings"]["scenes"][0]["sides"].as_array().map(Vec::len), Some(2));
    assert_eq!(said["settings"]["backed_memory"], true, "{said}");
}

/// Without a pair of sides the output states that nothing is compared, and how memory was prepared.
#[test]
fn a_side_without_its_yardstick_says_that_nothing_is_compared() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shape = ["subarray", "--dimensions", "3", "--edge", "8", "--pairs", "1", "--no-warm-memory"];
    let mut command = bench(dir.path(), &[&shape[..], &["--sides", "server-directed"]].concat());
    let output = command.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("nothing to compare: no figure has both of its sides among --sides server-directed"),
        "{said}"
    );
    assert!(said.contains("memory: as the host left it"), "{said}");
}

/// All processes on one host, all servers on another: where hosts can be had.
#[test]
fn btio_between_hosts_compares_methods_over_the_link() {
    let skip = std::env::var_os("PARIO_TEST_SKIP_NETNS").is_some();
    if skip || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, no hosts: not root, or PARIO_TEST_SKIP_NETNS is set");
        return;
    }
    let said = kernel(&["btio", "--class", "S", "--dumps", "2", "--hosts", "2", "--link", "200Mbit"]);
    check_figures(&said, &["write_vs_two_phase", "total_vs_two_phase", "client_directed_total_vs_two_phase"]);
}
