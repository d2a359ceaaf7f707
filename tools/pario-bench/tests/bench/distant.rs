//! `bench distant` and `bench shared-files`, tiny.

use super::{bench, check_figures, check_nothing_left, figures};

#[test]
fn distant_shows_every_promised_figure_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &["distant", "--size", "64MiB", "--quick", "--pairs", "1"]);
    let mut promised = Vec::new();
    for word in ["read", "write"] {
        for size in [4, 8, 16, 32] {
            promised.push(format!("own_{word}_vs_p{word}_{size}k"));
            promised.push(format!("near_{word}_vs_own_{size}k"));
        }
        promised.push(format!("far_{word}_vs_own_32k"));
        promised.extend([4, 32, 64, 256, 1024, 4096].map(|size| format!("far_{word}_mb_s_{size}k")));
    }
    promised
        .extend(["far_read_vs_own_4k_disk", "far_read_vs_own_32k_disk", "home_slowdown"].map(str::to_owned));
    check_figures(&said, &promised.iter().map(String::as_str).collect::<Vec<_>>());
    for name in ["overlap_read_1m", "overlap_write_1m"] {
        assert!(said["figures"][name]["value"].is_number(), "{said}");
    }
    check_nothing_left(dir.path());
}

#[test]
fn shared_files_shows_every_promised_figure_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let said = figures(dir.path(), &["shared-files", "--records", "40", "-n", "2", "--pairs", "1"]);
    check_figures(&said, &["shared_vs_plain", "shared_vs_partition", "shared_mb_s", "create_destroy_ms"]);
    assert_eq!(said["settings"]["seed"], 1998);
    check_nothing_left(dir.path());
}

#[test]
fn impossible_options_are_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (arguments, said) in [
        (&["distant", "--size", "1MiB"][..], "--size 1MiB: a multiple of 4MiB, at least 64MiB"),
        (&["shared-files", "--records", "2"], "--records 2: at least one for each process"),
        (&["shared-files", "-n", "0"], "--processes 0: from 1 to 256"),
    ] {
        let output = bench(dir.path(), arguments).output().expect("the command runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && text.contains(said) && text.lines().count() == 1,
            "{text}"
        );
    }
}
