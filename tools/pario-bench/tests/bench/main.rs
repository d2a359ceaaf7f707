//! `pario bench` as a user runs it, with transfers too small to measure speed: checks that every published figure is present
//! and well-formed, and that nothing is left behind, also after a kill.

mod distant;
mod kernels;
mod mpi;
mod sliding;
mod team;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// The command that benchmarks start partitions with; it is of another package, which `cargo test` does not build.
fn pario() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_pario-bench")).with_file_name("pario");
    let pario = std::env::var_os("PARIO_BIN").map_or(beside, PathBuf::from);
    assert!(pario.is_file(), "{} is missing: run `cargo build` before these tests", pario.display());
    pario
}

fn bench(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pario-bench"));
    command.env("PARIO_BIN", pario());
    command.args([arguments[0], "--dir"]).arg(dir).args(&arguments[1..]);
    // A registry of its own: changes to the user's registry would be seen here.
    command.env("PARIO_REGISTRY", dir.join("registry-of-the-user"));
    command
}

fn figures(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = bench(dir, arguments).arg("--json").output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[track_caller]
fn check_figures(said: &serde_json::Value, names: &[&str]) {
    for name in names {
        let figure = &said["figures"][name];
        let number =
            |key: &str| figure[key].as_f64().unwrap_or_else(|| panic!("{name} without {key}: {said}"));
        assert!(number("min") <= number("value") && number("value") <= number("max"), "{name}: {figure}");
        assert!(0.0 < number("value") && 1.0 <= number("runs"), "{name}: {figure}");
        assert!(figure["unit"].is_string(), "{name}: {figure}");
    }
    assert!(said["machine"]["cpus"].is_number() && said["machine"]["file_system"].is_string(), "{said}");
    assert_eq!(said["settings"]["pairs"], 1);
}

#[track_caller]
fn check_nothing_left(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).expect("the directory is there").flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn io_shows_every_promised_figure_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &["io", "--size", "4MiB", "--pairs", "1"]);
    let ratios = [
        "write_vs_plain",
        "read_vs_plain",
        "write_vs_plain_1",
        "read_vs_plain_1",
        "small_write_vs_plain",
        "tcp_write_vs_plain",
        "tcp_read_vs_plain",
        "tcp_protected_vs_tcp",
        "tcp_protected_write_vs_tcp",
        "tcp_protected_read_vs_tcp",
        "write_vs_plain_warm",
        "read_vs_plain_warm",
    ];
    check_figures(&said, &ratios);
    check_figures(&said, &["up_s", "memory_idle_mib", "memory_load_mib", "ls_ms", "stat_ms", "status_ms"]);
    check_nothing_left(dir.path());
}

#[test]
fn meta_shows_every_promised_figure_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &["meta", "--files", "40", "--pairs", "1"]);
    let one = ["creates_per_s", "stats_per_s", "unlinks_per_s"];
    check_figures(&said, &one);
    check_figures(&said, &one.map(|name| format!("{name}_four")).each_ref().map(String::as_str));
    check_nothing_left(dir.path());
}

#[test]
fn full_shows_every_promised_figure_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &["full", "--size", "2MiB", "--pairs", "1"]);
    let ratios =
        ["neighbour_beside_full", "neighbour_beside_full_vs_alone", "neighbour_beside_roomy_vs_alone"];
    check_figures(&said, &ratios);
    // Both were hammered, the one in vain.
    check_figures(&said, &["full_refusals_per_s", "roomy_writes_per_s"]);
    assert_eq!(said["settings"]["store"], "memory", "how a server was made full is said");
    check_nothing_left(dir.path());
}

#[test]
fn a_benchmark_that_is_killed_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut child =
        bench(dir.path(), &["io", "--size", "64MiB"]).stdout(Stdio::null()).spawn().expect("it starts");
    let some = || std::fs::read_dir(dir.path()).expect("the directory is there").flatten().next();
    // In the middle of things: a partition is up.
    wait_for("a partition", || some().is_some_and(|ground| ground.path().join("four/0/socket").exists()));
    child.kill().expect("it is killed");
    child.wait().expect("it is gone");
    wait_for("the janitor", || some().is_none());
}

/// Its options before and behind `bench`, its exit codes.
#[test]
fn the_command_becomes_the_benchmark() {
    for (arguments, code, said) in [
        (&["bench", "io", "--pairs", "0"][..], 2, "pario: --pairs 0: "),
        (&["-v", "bench", "--json", "frob"], 2, "(see `pario bench --help`)"),
        (&["bench", "io", "--help"], 0, "Usage: pario bench io"),
    ] {
        let output = Command::new(pario()).args(arguments).output().expect("the command runs");
        let both = [output.stdout, output.stderr].concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(
            String::from_utf8_lossy(&both).contains(said),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&both)
        );
    }
}

#[track_caller]
fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let began = SystemTime::now();
    while !is_there() {
        assert!(began.elapsed().unwrap_or_default() < Duration::from_secs(60), "{what} did not come");
        std::thread::yield_now();
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for arguments in [&["io", "--pairs", "0"][..], &["io", "--size", "1MiB"], &["meta", "--files", "3"]] {
        let output = bench(dir.path(), arguments).output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(arguments[1]), "{output:?}");
    }
    check_nothing_left(dir.path());
}

/// Real servers and processes; what is asserted is counted by the servers.
#[test]
fn sched_merges_what_real_readers_ask_for_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &["sched", "--ground", "real", "--pairs", "1"]);
    let names = ["real_two_readers_mlf_vs_fifo", "store_operations_saved", "real_lone_stream_mlf_vs_none"];
    check_figures(&said, &names);
    let saved = said["figures"]["store_operations_saved"]["value"].as_f64().unwrap_or(0.0);
    assert!(1.5 <= saved, "{saved} calls of the stores under fifo for each under mlf");
    check_nothing_left(dir.path());
}

/// The figures themselves are tested next to the model; runs of minutes of virtual time are too long for here.
#[test]
fn sched_refuses_what_makes_no_sense() {
    let cases = [
        (&["--seeds", "0"][..], "--seeds 0"),
        (&["--seeds", "100000"], "--seeds 100000"),
        (&["--policies", "fast"], "--policies fast: there are none, fifo, mlf"),
        (&["--quick", "--plots", "somewhere"], "--plots somewhere"),
        (&["--pairs", "0"], "--pairs 0"),
    ];
    for (arguments, said) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pario-bench"));
        let output = command.arg("sched").args(arguments).output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{arguments:?}: {output:?}");
    }
}
