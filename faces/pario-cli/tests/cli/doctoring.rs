//! `pario doctor`: finds misplaced objects, moves orphans to lost+found, cuts leftovers.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::support::{CliFixture, kill, noise, until};

/// A partition with a file on both servers; the file's objects.
fn with_file() -> (CliFixture, Vec<PathBuf>) {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::write(world.path("f"), noise(3_000_000)).expect("room for a file");
    world.ok(&["cp", "f", "pario://s/f"]);
    let objects = (0..2).flat_map(|server| objects(&world, server)).collect();
    (world, objects)
}

fn objects(world: &CliFixture, server: u16) -> Vec<PathBuf> {
    let dirs =
        fs::read_dir(world.server_dir("s", server).join("objects")).expect("a store has objects").flatten();
    dirs.flat_map(|dir| fs::read_dir(dir.path()).expect("a directory").flatten())
        .map(|entry| entry.path())
        .collect()
}

/// Exit code and kinds of the problems.
fn problems(world: &CliFixture, words: &[&str]) -> (i32, Vec<String>) {
    let said = world.pario(&[&["doctor", "s", "--json"], words].concat());
    let facts: serde_json::Value = serde_json::from_str(&said.out).expect("--json prints JSON");
    let kinds = facts["problems"].as_array().expect("a list of problems").iter();
    (said.code, kinds.map(|problem| problem["problem"].as_str().expect("a kind").to_owned()).collect())
}

#[test]
fn a_healthy_partition_is_well() {
    let (world, objects) = with_file();
    assert_eq!(objects.len(), 2);
    world.ok(&["mkdir", "pario://s/dir"]);
    world.ok(&["truncate", "-s", "10", "pario://s/f"]);
    assert_eq!(problems(&world, &[]), (0, vec![]));
    assert!(world.ok(&["doctor", "s"]).contains("all is well"));
}

#[test]
fn a_missing_object_is_warned_of_and_no_error() {
    let (world, objects) = with_file();
    world.ok(&["mkdir", "pario://s/dir"]);
    world.ok(&["mv", "pario://s/f", "pario://s/dir/f"]);
    // The servers must not know better from memory.
    world.ok(&["down", "s"]);
    fs::remove_file(&objects[1]).unwrap();
    world.ok(&["up", "s"]);
    let text = world.ok(&["doctor", "s"]);
    assert!(text.contains("warning: 1 file has no object on a server where its length has blocks"), "{text}");
    assert!(text.contains("a hole, or a lost object: /dir/f (server "), "{text}");
    assert!(text.contains("no errors, 1 warning") && !text.contains("all is well"), "{text}");
    // A hole looks the same.
    world.ok(&["truncate", "-s", "1GiB", "pario://s/hole"]);
    let facts = world.json(&["doctor", "s"]);
    assert_eq!(facts["warnings"].as_array().unwrap().len(), 3, "{facts}");
    assert_eq!(facts["problems"], serde_json::json!([]));
    assert!(world.ok(&["doctor", "s"]).contains("2 files have no object"));
}

#[test]
fn orphans_are_found_and_moved_when_asked() {
    let (world, objects) = with_file();
    let nobody = objects[1].with_file_name("0000000000fff0ab-00000000");
    let place = objects[1].parent().unwrap().with_file_name("ab");
    fs::create_dir_all(&place).unwrap();
    let orphan = place.join(nobody.file_name().unwrap());
    fs::copy(&objects[1], &orphan).unwrap();
    assert_eq!(problems(&world, &[]), (3, vec!["orphan".to_owned()]));
    let said = world.pario(&["doctor", "s"]);
    assert!(said.out.contains("0000000000fff0ab-00000000") && said.out.contains("--repair"), "{said:?}");
    let would = world.pario(&["doctor", "s", "--dry-run"]);
    assert!(would.out.contains("would: server 1: object 0000000000fff0ab-00000000"), "{would:?}");
    assert!(world.fails(1, &["doctor", "s", "--repair", "-q"]).contains("1 of 3 objects"));
    assert!(orphan.exists() && !world.server_dir("s", 1).join("lost+found").exists(), "nothing was changed");
    let bytes = fs::read(&orphan).unwrap();
    // A link that was planted in place of the directory is not followed.
    let (planted, outside) = (world.server_dir("s", 1).join("lost+found"), world.path("outside"));
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, &planted).unwrap();
    let refused = world.pario(&["doctor", "s", "--repair", "--force"]);
    assert!(refused.code != 0 && refused.err.contains("a symbolic link is there"), "{refused:?}");
    assert!(orphan.exists() && fs::read_dir(&outside).unwrap().next().is_none());
    fs::remove_file(&planted).unwrap();
    assert_eq!(problems(&world, &["--repair", "--force"]), (0, vec![]));
    assert!(!orphan.exists());
    let found = world.server_dir("s", 1).join("lost+found/0000000000fff0ab-00000000");
    assert!(fs::read(found).unwrap() == bytes);
    assert_eq!(problems(&world, &[]), (0, vec![]));
    assert_eq!(world.pario(&["cat", "pario://s/f"]).code, 0);
}

/// After a kill of a writer each such object was called a problem, and nothing cured it.
#[test]
fn a_leftover_of_an_unfinished_write_is_called_that_and_cut() {
    let (world, objects) = with_file();
    let length = fs::metadata(&objects[0]).unwrap().len();
    let file = fs::File::options().write(true).open(&objects[0]).unwrap();
    file.set_len(50 << 20).unwrap();
    let text = world.ok(&["doctor", "s"]);
    assert!(
        text.contains("leftover of an unfinished write") && text.contains("no errors, 1 leftover"),
        "{text}"
    );
    assert!(world.ok(&["doctor", "s", "--dry-run"]).contains("would: "));
    assert_eq!(fs::metadata(&objects[0]).unwrap().len(), 50 << 20, "a dry run does nothing");
    assert!(world.ok(&["doctor", "s", "--repair"]).contains("1 leftover cut: all is well"));
    assert_eq!(fs::metadata(&objects[0]).unwrap().len(), length);
    world.ok(&["cp", "pario://s/f", "back"]);
    assert!(fs::read(world.path("back")).unwrap() == noise(3_000_000));
}

#[test]
fn a_server_that_is_gone_is_named() {
    let (world, _) = with_file();
    kill(world.server_pids("s")[1], Signal::KILL);
    assert!(until(|| world.processes().len() == 1));
    let said = world.pario(&["doctor", "s"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("server 1 is unreachable"), "{said:?}");
}
