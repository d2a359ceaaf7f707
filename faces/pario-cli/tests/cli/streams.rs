//! Streams: standard input and output, pipes, devices.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{CliFixture, RunningCommand, kill, noise, said, until};

/// Runs `pario` with these bytes at its standard input.
#[track_caller]
fn fed(world: &CliFixture, words: &[&str], bytes: Vec<u8>) {
    let mut child = world
        .command()
        .args(words)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pario starts");
    let mut input = child.stdin.take().expect("a pipe");
    let feeder = std::thread::spawn(move || input.write_all(&bytes));
    let said = said(&child.wait_with_output().expect("it ends"));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    feeder.join().expect("the feeder ends").expect("all was taken");
}

#[test]
fn bytes_stream_in_and_out() {
    let world = CliFixture::new();
    world.up("s", 3);
    // More than a piece, and no multiple of anything.
    let data = noise(9_000_001);
    fed(&world, &["cp", "-", "pario://s/f"], data.clone());
    for target in ["-", "/dev/stdout"] {
        let output = world.command().args(["cp", "pario://s/f", target]).output().unwrap();
        assert!(output.status.success() && output.stdout == data, "{target}: {:?}", output.stderr);
    }
    fed(&world, &["cp", "-", "copy"], data.clone());
    assert!(fs::read(world.path("copy")).unwrap() == data);
    fed(&world, &["cp", "/dev/stdin", "pario://s/f"], Vec::new());
    assert_eq!(world.json(&["stat", "pario://s/f"])[0]["size"], 0);
    world.ok(&["cp", "copy", "/dev/null"]);
    assert_eq!(world.ok(&["ls", "-a", "pario://s/"]), "f\n", "no temporary file is left");
}

#[test]
fn standard_output_is_appended_to_where_it_is_a_file() {
    let world = CliFixture::new();
    world.up("s", 1);
    fs::write(world.path("f"), "second\n").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    fs::write(world.path("log"), "first\n").unwrap();
    let log = fs::File::options().append(true).open(world.path("log")).unwrap();
    let status = world.command().args(["cp", "pario://s/f", "/dev/stdout"]).stdout(log).status().unwrap();
    assert!(status.success());
    assert_eq!(fs::read_to_string(world.path("log")).unwrap(), "first\nsecond\n");
}

#[test]
fn pipes_with_names_are_read_and_written() {
    let world = CliFixture::new();
    world.up("s", 2);
    let pipe = world.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let data = noise(5_000_000);
    let writing = RunningCommand::start(world.command().args(["cp", "pipe", "pario://s/f"]));
    fs::write(&pipe, &data).unwrap();
    assert_eq!(writing.said().code, 0);
    let reading = RunningCommand::start(world.command().args(["cp", "pario://s/f", "pipe"]));
    assert!(fs::read(&pipe).unwrap() == data);
    assert_eq!(reading.said().code, 0);
}

#[test]
fn a_stream_that_is_interrupted_leaves_nothing() {
    let world = CliFixture::new();
    world.up("s", 1);
    let mut command = world.command();
    command.args(["cp", "-", "pario://s/f"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The temporary file is made, and no more data arrives.
    assert!(until(|| world.ok(&["ls", "-a", "pario://s/"]).contains(".f.pario-")));
    let input = child.stdin.take();
    kill(i32::try_from(child.id()).unwrap(), Signal::INT);
    let said = said(&child.wait_with_output().unwrap());
    drop(input);
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!(world.ok(&["ls", "-a", "pario://s/"]), "");
}
