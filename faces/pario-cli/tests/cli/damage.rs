//! Damage at rest: `pario doctor` names it, reads refuse it, and a kill is none.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{CliFixture, RunningCommand, kill, noise, until};

const BYTES: usize = 3_000_000;

fn up(world: &CliFixture, checksums: &str) {
    let data = world.text("data");
    world.ok(&["up", "--name", "s", "--servers", "2", "--dir", &data, "--checksums", checksums]);
}

/// A partition with a file `f` on both servers; the file's objects.
fn with_file(checksums: &str) -> (CliFixture, Vec<PathBuf>) {
    let world = CliFixture::new();
    up(&world, checksums);
    fs::write(world.path("f"), noise(BYTES)).expect("room for a file");
    world.ok(&["cp", "f", "pario://s/f"]);
    // `down` writes all data to the store.
    world.ok(&["down", "s"]);
    let objects = (0..2u16).map(|server| {
        let objects = world.server_dir("s", server).join("objects");
        let dir = fs::read_dir(objects).expect("a store has objects").flatten().next().expect("one").path();
        fs::read_dir(dir).expect("a directory").flatten().next().expect("an object").path()
    });
    let objects = objects.collect();
    (world, objects)
}

fn flip(object: &PathBuf, bit: u64) {
    let file = fs::File::options().read(true).write(true).open(object).expect("an object");
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).expect("a byte");
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).expect("a byte");
}

#[test]
fn a_cut_object_is_told_with_server_and_range() {
    let (world, objects) = with_file("off");
    world.ok(&["up", "s"]);
    let text = world.ok(&["doctor", "s"]);
    assert!(
        text.contains("all is well") && text.contains("checked: names against objects, lengths of 2"),
        "{text}"
    );
    assert!(text.contains("not checked: stored bytes (--deep"), "{text}");
    let text = world.ok(&["doctor", "s", "--deep"]);
    assert!(text.contains("not checked: stored bytes (checksums = \"off\")"), "{text}");
    world.ok(&["down", "s"]);
    let file = fs::File::options().write(true).open(&objects[1]).expect("an object");
    file.set_len(1_000_000).expect("a cut");
    world.ok(&["up", "s"]);
    let told = world.pario(&["cat", "pario://s/f"]);
    assert_ne!(told.code, 0, "{told:?}");
    assert!(told.err.contains("server 1") && told.err.contains("cut short"), "{told:?}");
    let said = world.pario(&["doctor", "s"]);
    assert_eq!(said.code, 3, "{said:?}");
    let (text, at) = (said.out + &said.err, "/f: server 1, object ");
    assert!(text.contains(at) && text.contains("bytes 1000000..") && text.contains("are lost"), "{text}");
    assert!(text.contains("1 problem") && !text.contains("all is well"), "{text}");
}

#[test]
fn flipped_bits_are_found_by_deep_and_by_reads() {
    let (world, objects) = with_file("on");
    world.ok(&["up", "s"]);
    let facts = world.json(&["doctor", "s", "--deep"]);
    let deep = &facts["at_rest"]["deep"];
    assert_eq!((&deep["blocks_wrong"], &deep["blocks_unknown"]), (&json!(0), &json!(0)), "{facts}");
    assert_eq!(deep["bytes"], json!(BYTES), "{facts}");
    for (round, bit) in [(0usize, 5u64), (1, 8 * 800_000 + 3), (0, 8 * 409_600)] {
        let server = round % 2;
        flip(&objects[server], bit);
        let said = world.pario(&["doctor", "s", "--deep", "--json"]);
        assert_eq!(said.code, 3, "{said:?}");
        let facts: serde_json::Value = serde_json::from_str(&said.out).expect("--json prints JSON");
        let damage = &facts["at_rest"]["damage"];
        assert_eq!(damage.as_array().map(Vec::len), Some(1), "{facts}");
        let start = bit / 8 / 16384 * 16384;
        assert_eq!(damage[0]["start"], json!(start), "{facts}");
        assert_eq!((&damage[0]["server"], &damage[0]["path"]), (&json!(server), &json!("/f")), "{facts}");
        assert_eq!(facts["at_rest"]["deep"]["blocks_wrong"], json!(1), "{facts}");
        let told = world.pario(&["cp", "pario://s/f", "back"]);
        assert_ne!(told.code, 0, "{told:?}");
        assert!(told.err.contains(&format!("server {server}")), "{told:?}");
        assert!(told.err.contains("do not match their checksum"), "{told:?}");
        flip(&objects[server], bit);
    }
    world.ok(&["cp", "pario://s/f", "back"]);
    assert!(fs::read(world.path("back")).expect("it") == fs::read(world.path("f")).expect("it"));
}

/// Servers and a writer are killed while they write; nothing that is left is called wrong.
#[test]
fn a_kill_is_no_damage() {
    let world = CliFixture::new();
    up(&world, "on");
    fs::write(world.path("f"), noise(8_000_000)).expect("room for a file");
    for round in 0..3 {
        let to = format!("pario://s/f{}", round % 2);
        let writer = RunningCommand::start(world.command().args(["cp", "f", &to]));
        let pids = world.server_pids("s");
        let objects = world.server_dir("s", 1).join("objects");
        assert!(
            until(|| fs::read_dir(&objects).is_ok_and(|mut dirs| dirs.next().is_some())),
            "nothing written"
        );
        if round == 1 {
            kill(writer.pid(), Signal::KILL);
        }
        pids.iter().for_each(|pid| kill(*pid, Signal::KILL));
        let _ = writer.said();
        world.ok(&["up", "s"]);
        let said = world.pario(&["doctor", "s", "--deep", "--json"]);
        let facts: serde_json::Value = serde_json::from_str(&said.out).expect("--json prints JSON");
        assert_eq!(facts["at_rest"]["deep"]["blocks_wrong"], json!(0), "round {round}: {facts}");
        assert_eq!(facts["at_rest"]["damage"], json!([]), "round {round}: {facts}");
    }
}

#[test]
fn memory_keeps_no_checksums() {
    let world = CliFixture::new();
    let said =
        world.pario(&["up", "--name", "m", "--servers", "1", "--store", "memory", "--checksums", "on"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains("must be \"off\" with store = \"memory\""), "{said:?}");
}
