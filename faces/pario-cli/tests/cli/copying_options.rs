//! `pario cp` with the options that GNU `cp` has: -n, -u, -a, -v, special bits, sources of one name.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::{CliFixture, noise};

fn changed(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::open(path).and_then(|file| file.set_modified(time)).expect("its owner may set times");
}

fn bits(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner may set bits");
}

#[test]
fn what_is_there_is_skipped_if_wished() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::create_dir(world.path("in")).unwrap();
    fs::write(world.path("in/old"), "first").unwrap();
    world.ok(&["cp", "-r", "in", "pario://s/in"]);
    fs::write(world.path("in/old"), "second").unwrap();
    fs::write(world.path("in/new"), "new").unwrap();
    let facts = world.json(&["cp", "-rn", "in", "pario://s/"]);
    assert_eq!((&facts["copied"]["files"], &facts["copied"]["skipped"]), (&1.into(), &1.into()), "{facts}");
    assert_eq!(world.ok(&["cat", "pario://s/in/old", "pario://s/in/new"]), "firstnew");
    assert_eq!(world.ok(&["cp", "-n", "in/old", "pario://s/in/old"]), "", "without -v nothing is said");
    let said = world.ok(&["cp", "-nv", "in/old", "pario://s/in/old"]);
    assert!(said.starts_with("skipped 'pario://s/in/old'\n0 files, "), "{said}");
    let mut from_stream = world.command();
    let input = fs::File::open(world.path("in/new")).unwrap();
    let said = from_stream.args(["cp", "-nv", "-", "pario://s/in/old"]).stdin(input).output().unwrap();
    assert!(said.stdout.starts_with(b"skipped 'pario://s/in/old'\n"), "{said:?}");
    assert_eq!(world.ok(&["cat", "pario://s/in/old"]), "first");
}

#[test]
fn only_what_is_newer_is_copied_if_wished() {
    let world = CliFixture::new();
    world.up("s", 2);
    for name in ["a", "b"] {
        fs::write(world.path(name), "first").unwrap();
        changed(&world.path(name), 1_000_000_000);
    }
    world.ok(&["cp", "-p", "a", "b", "pario://s/d/"]);
    for (name, seconds) in [("a", 1_000_000_000), ("b", 1_000_000_001)] {
        fs::write(world.path(name), "second").unwrap();
        changed(&world.path(name), seconds);
    }
    fs::write(world.path("c"), "missing").unwrap();
    changed(&world.path("c"), 5);
    let facts = world.json(&["cp", "-u", "a", "b", "c", "pario://s/d/"]);
    assert_eq!((&facts["copied"]["files"], &facts["copied"]["skipped"]), (&2.into(), &1.into()), "{facts}");
    assert_eq!(world.ok(&["cat", "pario://s/d/a", "pario://s/d/b", "pario://s/d/c"]), "firstsecondmissing");
}

#[test]
fn each_file_is_named_when_talkative() {
    let world = CliFixture::new();
    world.up("s", 1);
    fs::create_dir(world.path("in")).unwrap();
    fs::write(world.path("in/f"), noise(5000)).unwrap();
    let said = world.ok(&["cp", "-rv", "in", "pario://s/out"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["'in' -> 'pario://s/out'", "'in/f' -> 'pario://s/out/f'"], "{said}");
    assert!(lines.len() == 3 && lines[2].starts_with("1 file, "), "{said}");
}

#[test]
fn special_bits_come_along_with_an_archive() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::create_dir_all(world.path("in/sticky")).unwrap();
    fs::write(world.path("in/setuid"), "x").unwrap();
    changed(&world.path("in/setuid"), 1_000_000_000);
    bits(&world.path("in/setuid"), 0o6755);
    bits(&world.path("in/sticky"), 0o1777);
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().mode() & 0o7777;
    world.ok(&["cp", "-a", "in", "pario://s/kept"]);
    assert_eq!(world.json(&["stat", "pario://s/kept/setuid"])[0]["mode"], 0o6755);
    world.ok(&["cp", "-a", "pario://s/kept", "back"]);
    assert_eq!((mode("back/setuid"), mode("back/sticky")), (0o6755, 0o1777));
    assert_eq!(fs::metadata(world.path("back/setuid")).unwrap().mtime(), 1_000_000_000);
    world.ok(&["cp", "-r", "in", "pario://s/plain"]);
    world.ok(&["cp", "-r", "pario://s/kept", "plain"]);
    assert_eq!(world.json(&["stat", "pario://s/plain/setuid"])[0]["mode"], 0o755);
    assert_eq!(world.json(&["stat", "pario://s/plain/sticky"])[0]["mode"], 0o1777);
    assert_eq!((mode("plain/setuid"), mode("plain/sticky")), (0o755, 0o1777));
}

#[test]
fn two_sources_of_one_name_are_refused() {
    let world = CliFixture::new();
    world.up("s", 1);
    for dir in ["a", "b"] {
        fs::create_dir(world.path(dir)).unwrap();
        fs::write(world.path(dir).join("x"), dir).unwrap();
    }
    let line = world.fails(1, &["cp", "a/x", "b/x", "pario://s/new/"]);
    assert!(line.contains("b/x: will not overwrite just-created x"), "{line}");
    assert_eq!(world.ok(&["ls", "pario://s/"]), "", "nothing was made");
}
