//! `pario run`: a partition for the life of a command.

use std::fs;

use rustix::process::Signal;

use crate::support::{CliFixture, RunningCommand, kill, noise, until};

/// Words for a job: `run`, options, `--`, a shell with this script.
fn job<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"], options, &["--", "sh", "-c", script]].concat()
}

/// A script that puts standard input, or a text, into the partition needs the command itself.
fn script(text: &str) -> String {
    text.replace("pario ", &format!("{} ", env!("CARGO_BIN_EXE_pario")))
}

#[test]
fn the_command_gets_a_partition_and_nothing_is_left() {
    let world = CliFixture::new();
    let script = script(
        "test \"$PARIO_REGISTRY\" = \"$1\" || exit 9; echo hello > x; pario cp x pario://$PARIO_PARTITION/; \
         pario cat pario://$PARIO_PARTITION/x; test -x \"$PARIO_BIN\" || exit 8",
    );
    let registry = world.registry();
    let mut words = job(&[], &script);
    let registry = registry.to_str().unwrap();
    words.extend(["sh", registry]);
    assert_eq!(world.ok(&words), "hello\n");
    world.assert_nothing_left();
}

#[test]
fn the_exit_code_is_the_commands() {
    let world = CliFixture::new();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let said = world.pario(&job(&["--servers", "1"], script));
        assert_eq!((said.code, said.err.as_str()), (code, ""), "{script}");
    }
    let line = world.fails(127, &["run", "--servers", "1", "--", "no-such-program"]);
    assert!(line.contains("no-such-program"), "{line}");
    fs::write(world.path("text"), "no program").unwrap();
    assert!(world.fails(126, &["run", "--servers", "1", "--", "./text"]).contains("./text"));
    world.assert_nothing_left();
}

#[test]
fn data_is_staged_in_and_out_also_when_the_command_fails() {
    let world = CliFixture::new();
    fs::create_dir_all(world.path("in/sub")).unwrap();
    fs::write(world.path("in/sub/big"), noise(5_000_000)).unwrap();
    fs::write(world.path("in/old"), "old").unwrap();
    let script = script(
        "echo new > n; pario cp n pario://$PARIO_PARTITION/made/ && pario rm pario://$PARIO_PARTITION/old; exit 5",
    );
    let said = world.pario(&job(&["--stage-in", "in", "--stage-out", "out"], &script));
    assert_eq!((said.code, said.err.as_str()), (5, "pario: staged out 2 files, 4.77 MiB, verified\n"));
    assert_eq!(world.tree("out"), ["made", "made/n", "sub", "sub/big"]);
    assert!(fs::read(world.path("out/sub/big")).unwrap() == noise(5_000_000));
    world.assert_nothing_left();
}

#[test]
fn a_signal_is_passed_on_and_the_data_comes_out() {
    let world = CliFixture::new();
    let script = script(
        "trap 'echo told > t; pario cp t pario://$PARIO_PARTITION/; exit 11' TERM; touch ready; \
         while :; do sleep 0.02; done",
    );
    let running =
        RunningCommand::start(world.command().args(job(&["--servers", "2", "--stage-out", "out"], &script)));
    assert!(until(|| world.path("ready").exists()));
    kill(running.pid(), Signal::TERM);
    let said = running.said();
    assert_eq!(said.code, 11, "{said:?}");
    assert_eq!(fs::read_to_string(world.path("out/t")).unwrap(), "told\n");
    world.assert_nothing_left();
}

#[test]
fn a_command_that_a_signal_ends_is_told_by_the_code() {
    let world = CliFixture::new();
    let script = script("echo x > f; pario cp f pario://$PARIO_PARTITION/; touch ready; exec sleep 600");
    let running = RunningCommand::start(world.command().args(job(&["--stage-out", "out"], &script)));
    assert!(until(|| world.path("ready").exists()));
    kill(running.pid(), Signal::INT);
    assert_eq!(running.said().code, 130);
    assert_eq!(world.tree("out"), ["f"]);
    world.assert_nothing_left();
}

#[test]
fn a_stage_out_that_fails_keeps_the_partition_and_says_how_to_reach_it() {
    let world = CliFixture::new();
    // The target is blocked while the command runs, so that only staging out fails.
    let script = script("echo precious > p; pario cp p pario://$PARIO_PARTITION/; rmdir out; echo > out");
    let said = world.pario(&job(&["--name", "job", "--stage-out", "out"], &script));
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("staging out to out failed"), "{said:?}");
    assert!(said.err.contains("`pario cp -rp pario://job/ ANOTHER-DIR` copies them"), "{said:?}");
    assert!(
        said.err.contains("pario ls pario://job/") && said.err.contains("pario down job --destroy"),
        "{said:?}"
    );
    assert_eq!(world.ok(&["ls", "pario://job/"]), "p\n");
    world.ok(&["cp", "-rp", "pario://job/", "rescued"]);
    assert_eq!(fs::read_to_string(world.path("rescued/p")).unwrap(), "precious\n");
    world.ok(&["down", "job", "--destroy"]);
    world.assert_nothing_left();
}

#[test]
fn a_stage_out_that_is_blocked_from_the_start_is_said_before_the_command_runs() {
    let world = CliFixture::new();
    fs::write(world.path("out"), "in the way").unwrap();
    let line = world.fails(2, &job(&["--stage-out", "out"], "touch ran"));
    assert!(line.contains("--stage-out out: is not a directory") && !world.path("ran").exists(), "{line}");
    let said = world.pario(&job(&["--name", "job", "--stage-out", "out/dir"], "touch ran; exit 6"));
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.lines().next().unwrap().contains("--stage-out out/dir"), "{said:?}");
    assert!(world.path("ran").exists());
    world.ok(&["ls", "pario://job/"]);
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let world = CliFixture::new();
    let script = script("touch ready; while ! test -e go; do sleep 0.02; done; exit 4");
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_pario")).args(job(&["--servers", "1"], &script));
    nohup
        .env("PARIO_REGISTRY", world.registry())
        .env("TMPDIR", world.path("tmp"))
        .current_dir(world.path(""));
    nohup.stdin(std::process::Stdio::null());
    let running = RunningCommand::start(&mut nohup);
    assert!(until(|| world.path("ready").exists()));
    kill(running.pid(), Signal::HUP);
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(running.said().code, 4);
    world.assert_nothing_left();
}

#[test]
fn two_at_once_do_not_meet() {
    let world = CliFixture::new();
    let script = script(
        "echo $PARIO_PARTITION > $1; pario cp $1 pario://$PARIO_PARTITION/; touch ready-$1; \
         while ! test -e ready-a -a -e ready-b; do sleep 0.02; done; pario ls pario://$PARIO_PARTITION/",
    );
    let start = |name: &'static str| {
        let mut words = job(&["--servers", "2"], &script);
        words.extend(["sh", name]);
        RunningCommand::start(world.command().args(words))
    };
    let (a, b) = (start("a"), start("b"));
    let (a, b) = (a.said(), b.said());
    assert_eq!((a.code, a.out.as_str()), (0, "a\n"), "{a:?}");
    assert_eq!((b.code, b.out.as_str()), (0, "b\n"), "{b:?}");
    world.assert_nothing_left();
}

#[test]
fn a_partition_that_was_there_before_keeps_its_data() {
    let world = CliFixture::new();
    world.up("mine", 1);
    world.ok(&["mkdir", "pario://mine/precious"]);
    assert!(world.fails(1, &["run", "--name", "mine", "--", "true"]).contains("already running"));
    world.ok(&["down", "mine"]);
    let data = world.text("data");
    world.ok(&["run", "--name", "mine", "--servers", "1", "--dir", &data, "--", "true"]);
    world.ok(&["up", "mine"]);
    assert_eq!(world.ok(&["ls", "pario://mine/"]), "precious\n");
}

#[test]
fn keep_leaves_it_running() {
    let world = CliFixture::new();
    let said = world.pario(&["run", "--name", "k", "--keep", "--", "true"]);
    assert_eq!(said.code, 0);
    assert!(said.err.contains("pario down k --destroy"), "{said:?}");
    world.ok(&["ls", "pario://k/"]);
}

#[test]
fn without_a_command_it_demonstrates() {
    let world = CliFixture::new();
    let text = world.ok(&["run"]);
    for part in
        ["write, Pario through views", "read, plain file", "times the speed of the plain file", "verified"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    world.assert_nothing_left();
}

#[test]
fn the_demonstration_tells_both_sides_as_json_and_keeps_its_file_if_told_to() {
    let world = CliFixture::new();
    let text = world.ok(&["run", "--servers", "2", "--stage-out", "out", "--json", "-q"]);
    let facts: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&facts["processes"], &facts["servers"]), (&4.into(), &2.into()), "{facts}");
    assert_eq!((&facts["write"]["calls"], &facts["plain"]["write"]["calls"]), (&4.into(), &65536.into()));
    for key in ["write_vs_plain", "read_vs_plain"] {
        assert!(facts[key].as_f64().is_some_and(|ratio| 0.0 < ratio), "{key}: {facts}");
    }
    assert_eq!(facts["verified_values"], 256 * 256 * 128);
    assert_eq!(world.tree("out"), ["checkpoint"]);
    assert_eq!(fs::metadata(world.path("out/checkpoint")).unwrap().len(), 64 << 20);
    world.assert_nothing_left();
}
