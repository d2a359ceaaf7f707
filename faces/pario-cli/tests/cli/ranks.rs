//! `pario run -n N`: ranks as processes, their output, signals and ends. What they say to each other is tested with the library.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

use crate::support::{CliFixture, RunningCommand, kill, until};

/// Words for ranks of a shell with this script.
fn ranks<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run", "--servers", "1"], options, &["--", "sh", "-c", script]].concat()
}

#[test]
fn every_rank_knows_its_place_and_lines_stay_whole() {
    let world = CliFixture::new();
    let script = "for i in 1 2 3 4 5; do printf 'a %s' $PARIO_RANK; printf ' of %s\\n' $PARIO_SIZE; done";
    let out = world.ok(&ranks(&["-n", "4", "--tag-output"], script));
    assert_eq!(out.lines().count(), 20, "{out}");
    let found: BTreeSet<&str> = out.lines().collect();
    let wanted: Vec<String> = (0..4).map(|rank| format!("[{rank}] a {rank} of 4")).collect();
    assert_eq!(found, wanted.iter().map(String::as_str).collect());
    assert_eq!(world.ok(&ranks(&["-n", "1"], "echo $PARIO_RANK$PARIO_SIZE; printf end")), "01\nend\n");
    world.assert_nothing_left();
}

#[test]
fn the_exit_code_is_that_of_the_first_rank_that_failed() {
    let world = CliFixture::new();
    // The others end when the process of rank 1 is not only over but collected.
    let script = "if test $PARIO_RANK = 1; then echo $$ > pid.new; mv pid.new pid; exit 5; fi; \
                  until test -e pid; do sleep 0.01; done; while kill -0 $(cat pid) 2> none; do sleep 0.01; done; exit 9";
    let said = world.pario(&ranks(&["-n", "3"], script));
    assert_eq!((said.code, said.err.lines().count()), (5, 1), "{said:?}");
    let said = world.pario(&ranks(&["-n", "3"], "test $PARIO_RANK != 1 || exit 5"));
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.err.starts_with("pario: rank 1 (process ") && said.err.contains("exit code 5"), "{said:?}");
    let line = world.fails(127, &["run", "--servers", "1", "-n", "2", "--", "no-such-program"]);
    assert!(line.contains("no-such-program"), "{line}");
    world.assert_nothing_left();
}

#[test]
fn a_signal_reaches_all_ranks() {
    let world = CliFixture::new();
    let script =
        "trap 'echo told $PARIO_RANK; exit 0' TERM; touch ready-$PARIO_RANK; while :; do sleep 0.02; done";
    let running = RunningCommand::start(world.command().args(ranks(&["-n", "3"], script)));
    assert!(until(|| (0..3).all(|rank| world.path(format!("ready-{rank}")).exists())));
    kill(running.pid(), Signal::TERM);
    let said = running.said();
    assert_eq!(said.code, 0, "{said:?}");
    let told: BTreeSet<&str> = said.out.lines().collect();
    assert_eq!(told, BTreeSet::from(["told 0", "told 1", "told 2"]));
    world.assert_nothing_left();
}

#[test]
fn ranks_that_go_on_after_a_death_are_terminated() {
    let world = CliFixture::new();
    let script = "test $PARIO_RANK != 2 || kill -KILL $$; trap 'echo ended; exit 3' TERM; while :; do sleep 0.02; done";
    let said = world.pario(&ranks(&["-n", "3"], script));
    assert_eq!((said.code, said.out.as_str()), (137, "ended\nended\n"), "{said:?}");
    // Shells print messages of their own.
    let lines: Vec<&str> = said.err.lines().filter(|line| line.starts_with("pario: ")).collect();
    assert_eq!(lines.len(), 2, "{said:?}");
    assert!(lines[0].contains("rank 2") && lines[0].contains("signal 9"), "{said:?}");
    assert!(lines[1].contains("2 ranks did not end within 5 s"), "{said:?}");
    world.assert_nothing_left();
}

#[test]
fn nodes_label_ranks_and_servers_in_blocks() {
    let world = CliFixture::new();
    let script = "echo $PARIO_RANK $PARIO_NODE; test $PARIO_RANK != 0 || grep '^node = ' $PARIO_REGISTRY";
    let words = ["run", "--servers", "3", "-n", "5", "--nodes", "2", "--", "sh", "-c", script];
    let out = world.ok(&words);
    for line in ["0 node0", "1 node0", "2 node0", "3 node1", "4 node1"] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    let servers: Vec<&str> = out.lines().filter(|line| line.starts_with("node = ")).collect();
    assert_eq!(servers, ["node = \"node0\"", "node = \"node0\"", "node = \"node1\""]);
    world.assert_nothing_left();
}

#[test]
fn a_label_is_the_servers_and_others_use_tcp() {
    let world = CliFixture::new();
    fs::write(world.path("x"), "over tcp").unwrap();
    let up = |transport: &str| {
        let data = world.text("data");
        let words = ["up", "--name", "far", "--servers", "2", "--dir", &data, "--transport", transport];
        world.command().env("PARIO_NODE", "a").args(words).output().unwrap()
    };
    assert!(up("auto").status.success());
    world.ok(&["cp", "x", "pario://far/x"]);
    let near = world.command().env("PARIO_NODE", "a").args(["cat", "pario://far/x"]).output().unwrap();
    assert_eq!(near.stdout, b"over tcp");
    let forced =
        world.command().env("PARIO_TRANSPORT", "unix").args(["cat", "pario://far/x"]).output().unwrap();
    let complaint = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert!(!forced.status.success() && complaint.contains("on another machine or node"), "{complaint}");
    world.ok(&["down", "far", "--destroy"]);
    world.assert_nothing_left();
}

#[test]
fn a_partition_that_is_up_is_used_and_stays_up() {
    let world = CliFixture::new();
    world.up("kept", 2);
    let out = world.ok(&["run", "-n", "2", "--partition", "kept", "--", "sh", "-c", "echo $PARIO_PARTITION"]);
    assert_eq!(out, "kept\nkept\n");
    world.ok(&["ls", "pario://kept/"]);
    assert!(world.fails(1, &["run", "--partition", "none", "--", "true"]).contains("none"));
    world.ok(&["down", "kept", "--destroy"]);
    world.assert_nothing_left();
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let world = CliFixture::new();
    for (words, part) in [
        (&["run", "-n", "0", "--", "true"][..], "1 to 512"),
        (&["run", "-n", "1000", "--", "true"], "1 to 512"),
        (&["run", "-n", "2", "--nodes", "3", "--", "true"], "1 to 2 nodes"),
        (&["run", "-n", "2"], "COMMAND"),
        (&["run", "--nodes", "2", "--", "true"], "--ranks"),
        (&["run", "--partition", "x", "--stripe", "64KiB", "--", "true"], "--stripe"),
    ] {
        let line = world.fails(2, words);
        assert!(line.contains(part), "{words:?}: {line}");
    }
    let words = ["run", "-n", "2", "--nodes", "2", "--transport", "unix", "--", "true"];
    assert!(world.pario(&words).err.contains("does not reach another node"));
    world.assert_nothing_left();
}
