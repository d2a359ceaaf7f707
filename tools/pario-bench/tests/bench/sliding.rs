//! `pario bench sliding`, tiny: on one node, and on hosts that are network namespaces where they can be had.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use super::{bench, check_figures, check_nothing_left, figures, wait_for};

const SPEEDS: [&str; 3] = ["mib_s_cache", "mib_s_range_locks", "mib_s_unlocked"];
const SMALL: [&str; 9] =
    ["sliding", "--processes", "3", "--bytes", "200KiB", "--page", "8KiB", "--pairs", "1"];

/// Whether hosts can be created; prints a message if not.
fn has_hosts() -> bool {
    let skip = std::env::var_os("PARIO_TEST_SKIP_NETNS").is_some() || !Path::new("/dev/fuse").exists();
    if skip || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, no hosts: not root, no /dev/fuse, or PARIO_TEST_SKIP_NETNS is set");
        return false;
    }
    true
}

/// Processes with a directory on their command line.
fn processes_of(dir: &Path) -> usize {
    let name = dir.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let says = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    entries.filter_map(says).filter(|line| String::from_utf8_lossy(line).contains(&name)).count()
}

#[test]
fn one_node_shows_every_promised_figure_and_a_plot_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plots = tempfile::tempdir().expect("a temporary directory");
    let plot = plots.path().join("sliding.svg");
    let more = ["--rounds", "2", "--plot", plot.to_str().expect("a path of letters")];
    let said = figures(dir.path(), &[&SMALL[..], &more].concat());
    check_figures(&said, &["cache_vs_range_locks_node", "cache_vs_unlocked_node"]);
    check_figures(&said, &SPEEDS);
    assert_eq!(said["settings"]["hosts"], 1);
    // 8 segments of 3 windows of 2 pages, gone through twice by 3 processes, read and written.
    assert_eq!(said["settings"]["moved_bytes"][0], 8 * 2 * 3 * 3 * 2 * 2 * 8192);
    let drawn = std::fs::read_to_string(plot).expect("a plot");
    assert!(drawn.starts_with("<svg ") && drawn.contains("range-locks"), "{drawn}");
    check_nothing_left(dir.path());
}

#[test]
fn sides_that_are_not_asked_for_do_not_run() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &[&SMALL[..], &["--sides", "cache,unlocked"]].concat());
    check_figures(&said, &["cache_vs_unlocked_node", "mib_s_cache", "mib_s_unlocked"]);
    let shown = said["figures"].as_object().expect("figures by name");
    assert!(!shown.keys().any(|name| name.contains("range_locks") || name.contains("home")), "{said}");
}

#[test]
fn several_sizes_are_compared_by_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let arguments = ["sliding", "-n", "2,3", "--bytes", "64KiB,128KiB", "--page", "4KiB", "--pairs", "1"];
    let said = figures(dir.path(), &arguments);
    for processes in [2, 3] {
        for bytes in ["64KiB", "128KiB"] {
            let name = format!("cache_vs_range_locks_node_p{processes}_{bytes}");
            check_figures(&said, &[&name]);
        }
    }
    check_nothing_left(dir.path());
}

#[test]
fn netns_hosts_show_the_figures_of_the_network_and_leave_nothing() {
    if !has_hosts() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &[&SMALL[..], &["--hosts", "3", "--link", "100Mbit"]].concat());
    check_figures(&said, &["cache_vs_range_locks", "cache_vs_unlocked", "cache_vs_range_locks_home"]);
    check_figures(&said, &SPEEDS);
    assert_eq!(said["settings"]["link_bits_per_s"], 100_000_000);
    // All processes reach the underlying file over the network, and the cache reads each of its bytes once.
    assert!(said["settings"]["below"].as_str().is_some_and(|below| below.contains("another host")), "{said}");
    assert_eq!(said["figures"]["cache_file_read"]["value"], 1.0, "{said}");
    check_nothing_left(dir.path());
    assert_eq!(processes_of(dir.path()), 0);
}

#[test]
fn netns_hosts_of_a_benchmark_that_is_killed_are_gone() {
    if !has_hosts() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let long = ["sliding", "--hosts", "2", "--bytes", "64MB", "--link", "10Mbit"];
    let mut child = bench(dir.path(), &long).stdout(Stdio::null()).spawn().expect("it starts");
    // The benchmark, its janitor, a switch, a file server and two hosts name it.
    wait_for("hosts", || 6 <= processes_of(dir.path()));
    child.kill().expect("it is killed");
    child.wait().expect("it is gone");
    wait_for("the end of its hosts", || processes_of(dir.path()) == 0);
    check_nothing_left(dir.path());
}

#[test]
fn who_cannot_have_hosts_is_told_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, not root: cannot act as another user");
        return;
    }
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().expect("a temporary directory");
    match bench(dir.path(), &["sliding", "--hosts", "2"]).uid(NOBODY).output() {
        Err(error) => eprintln!("SKIPPED, another user cannot run the command: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("run it as root, or with --hosts 1"), "{said}");
        }
    }
    check_nothing_left(dir.path());
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cases = [
        (&["--processes", "1"][..], "--processes 1: from 2 to 16"),
        (&["--processes", "17"], "--processes 17"),
        (&["--hosts", "0"], "--hosts 0"),
        (&["--hosts", "8"], "--processes 4: at least one on each of 8 hosts"),
        (&["--bytes", "1KiB"], "--bytes 1KiB"),
        (&["--page", "1000"], "a multiple of 4KiB"),
        (&["--link", "fast"], "1Gbit"),
        (&["--rounds", "0"], "--rounds 0"),
    ];
    for (arguments, text) in cases {
        let output =
            bench(dir.path(), &[&["sliding"], arguments].concat()).output().expect("the command runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
    check_nothing_left(dir.path());
}
