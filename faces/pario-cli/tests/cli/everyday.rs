//! The commands that a shell user expects: find, head, tail, touch, chmod, rmdir, orders of ls, mv between trees.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::process::Signal;

use crate::support::{CliFixture, kill, noise};

fn put(world: &CliFixture, name: &str, text: &str) {
    fs::write(world.path("put"), text).expect("a file of the test's own");
    world.ok(&["cp", "put", &format!("pario://s/{name}")]);
}

#[test]
fn find_tells_what_fits() {
    let world = CliFixture::new();
    world.up("s", 2);
    world.ok(&["mkdir", "-p", "pario://s/a/b", "pario://s/empty"]);
    put(&world, "a/one.dat", "1");
    put(&world, "a/b/two.dat", &"2".repeat(5000));
    put(&world, "a/b/none", "");
    let all = world.ok(&["find", "pario://s/a"]);
    assert_eq!(
        all,
        "pario://s/a\npario://s/a/b\npario://s/a/b/none\npario://s/a/b/two.dat\npario://s/a/one.dat\n"
    );
    let check = |tests: &[&str], expected: &str| {
        assert_eq!(world.ok(&[&["find", "pario://s/"], tests].concat()), expected, "{tests:?}");
    };
    check(&["-name", "*.dat", "-size", "+1KiB"], "pario://s/a/b/two.dat\n");
    check(&["-type", "d", "-empty"], "pario://s/empty\n");
    check(&["-type", "f", "-empty", "-print0"], "pario://s/a/b/none\0");
    check(&["-maxdepth", "1", "-mindepth", "1"], "pario://s/a\npario://s/empty\n");
    check(&["-name", "*.dat", "-mmin", "+60"], "");
    check(&["-path", "/a/b/*", "-mmin", "-60"], "pario://s/a/b/none\npario://s/a/b/two.dat\n");
    assert!(world.fails(2, &["find", "pario://s/", "-delete", "x"]).contains("-delete is not known"));
    assert!(world.fails(1, &["find", "pario://s/nothing"]).contains("no such file"));
}

#[test]
fn head_and_tail_cut_at_lines_and_bytes() {
    let world = CliFixture::new();
    world.up("s", 2);
    let lines: Vec<String> =
        (1..=30_000).map(|line| format!("line {line} {}", "x".repeat(line % 50))).collect();
    put(&world, "log", &(lines.join("\n") + "\n"));
    put(&world, "unfinished", "a\nb\nc");
    assert_eq!(world.ok(&["head", "-n", "2", "pario://s/log"]), format!("{}\n{}\n", lines[0], lines[1]));
    assert_eq!(world.ok(&["head", "pario://s/log"]), lines[..10].join("\n") + "\n");
    assert_eq!(world.ok(&["tail", "-n", "20000", "pario://s/log"]), lines[10_000..].join("\n") + "\n");
    assert_eq!(world.ok(&["tail", "-n", "2", "pario://s/unfinished"]), "b\nc");
    assert_eq!(world.ok(&["tail", "-n", "9", "pario://s/unfinished"]), "a\nb\nc");
    assert_eq!(world.ok(&["head", "-c", "3", "pario://s/unfinished"]), "a\nb");
    assert_eq!(world.ok(&["tail", "-c", "3", "pario://s/unfinished"]), "b\nc");
    assert_eq!(world.ok(&["tail", "-n", "0", "pario://s/unfinished"]), "");
    let both = world.ok(&["head", "-n", "1", "pario://s/unfinished", "pario://s/log"]);
    assert_eq!(both, format!("==> pario://s/unfinished <==\na\n\n==> pario://s/log <==\n{}\n", lines[0]));
    assert!(world.fails(1, &["head", "pario://s/nothing"]).contains("no such file"));
}

#[test]
fn tail_follows_what_is_appended() {
    let world = CliFixture::new();
    world.up("s", 1);
    put(&world, "log", "first\n");
    let mut follower = world.command();
    let follower = follower.args(["tail", "-f", "pario://s/log"]).stdout(std::process::Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    let registry = pario::partition::Registry::open(&world.registry());
    let partition = pario::Partition::mount_from(&registry, "s").unwrap();
    let file = partition.options().write(true).open("log").unwrap();
    file.write_at(6, b"second\n").unwrap();
    file.close().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    kill(i32::try_from(follower.id()).unwrap(), Signal::INT);
    assert!(!follower.wait().unwrap().success());
}

#[test]
fn touch_chmod_and_rmdir_do_what_their_names_say() {
    let world = CliFixture::new();
    world.up("s", 1);
    world.ok(&["touch", "pario://s/new"]);
    world.ok(&["touch", "-c", "pario://s/not-made"]);
    assert_eq!(world.ok(&["ls", "pario://s/"]), "new\n");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::write(world.path("old"), "").unwrap();
    fs::File::open(world.path("old")).unwrap().set_modified(old).unwrap();
    let old = world.path("old");
    world.ok(&["touch", "-m", "-r", old.to_str().unwrap(), "pario://s/new"]);
    assert_eq!(world.json(&["stat", "pario://s/new"])[0]["modified_ns"], 1_000_000_000_000_000_000_u64);
    world.ok(&["touch", "pario://s/new"]);
    let now = world.json(&["stat", "pario://s/new"])[0]["modified_ns"].as_u64().unwrap();
    assert!(1_700_000_000_000_000_000 < now, "{now}");
    world.ok(&["mkdir", "-p", "pario://s/d/e"]);
    world.ok(&["touch", "pario://s/d/e/f"]);
    world.ok(&["chmod", "-R", "u=rwX,go=", "pario://s/d"]);
    for (place, mode) in [("pario://s/d", 0o700), ("pario://s/d/e/f", 0o600)] {
        assert_eq!(world.json(&["stat", place])[0]["mode"], mode, "{place}");
    }
    world.ok(&["chmod", "4755", "pario://s/d/e/f"]);
    assert!(world.ok(&["ls", "-l", "pario://s/d/e"]).starts_with("-rwsr-xr-x"));
    assert!(world.fails(2, &["chmod", "u+q", "pario://s/d"]).contains("u+q"));
    assert!(world.fails(1, &["rmdir", "pario://s/d/e"]).contains("not empty"));
    world.ok(&["rm", "pario://s/d/e/f"]);
    world.ok(&["rmdir", "-p", "pario://s/d/e"]);
    assert_eq!(world.ok(&["ls", "pario://s/"]), "new\n");
    assert!(world.fails(1, &["rmdir", "pario://s/"]).contains("stays"));
}

#[test]
fn ls_sorts_and_keeps_odd_names_byte_for_byte() {
    let world = CliFixture::new();
    world.up("s", 1);
    for (name, length) in [("b", 3), ("a", 1), ("c", 2)] {
        put(&world, name, &"x".repeat(length));
    }
    assert_eq!(world.ok(&["ls", "-1t", "pario://s/"]), "c\na\nb\n");
    assert_eq!(world.ok(&["ls", "-S", "pario://s/"]), "b\nc\na\n");
    assert_eq!(world.ok(&["ls", "-Sr", "pario://s/"]), "a\nc\nb\n");
    assert_eq!(world.ok(&["ls", "-d", "pario://s/"]), "pario://s/\n");
    let odd = std::ffi::OsStr::from_bytes(b"n\xff\ne");
    fs::create_dir(world.path("all")).unwrap();
    fs::write(world.path("all").join(odd), "odd").unwrap();
    world.ok(&["cp", "-r", "all", "pario://s/all"]);
    let listed = world.command().args(["ls", "-0", "pario://s/all"]).output().unwrap().stdout;
    assert!(listed.split(|byte| *byte == 0).any(|name| name == odd.as_bytes()), "{listed:?}");
    let facts = world.json(&["ls", "pario://s/all"]);
    let bytes: Vec<u64> = odd.as_bytes().iter().map(|byte| u64::from(*byte)).collect();
    let named =
        facts.as_array().unwrap().iter().filter(|fact| fact["name_bytes"] == serde_json::json!(bytes));
    assert_eq!(named.count(), 1, "{facts}");
}

#[test]
fn mv_moves_between_a_partition_and_this_machine() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::create_dir_all(world.path("in/sub")).unwrap();
    fs::write(world.path("in/sub/data"), noise(3_000_000)).unwrap();
    fs::set_permissions(world.path("in/sub/data"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("sub/data", world.path("in/link")).unwrap();
    world.ok(&["mv", "in", "pario://s/moved"]);
    assert!(!world.path("in").exists());
    world.ok(&["mv", "pario://s/moved", "back"]);
    assert_eq!(world.ok(&["ls", "pario://s/"]), "");
    assert!(fs::read(world.path("back/sub/data")).unwrap() == noise(3_000_000));
    assert_eq!(fs::metadata(world.path("back/sub/data")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::read_link(world.path("back/link")).unwrap().to_str(), Some("sub/data"));
    world.ok(&["mkdir", "-p", "pario://s/dir/back"]);
    assert!(world.fails(1, &["mv", "back", "pario://s/dir"]).contains("trees are not merged"));
    assert!(world.path("back/sub/data").exists(), "the source stays");
    let what = world.fails(1, &["mv", "back", "back2"]);
    assert!(what.contains("`mv` renames files of this machine"), "{what}");
    fs::write(world.path("x"), "x").unwrap();
    put(&world, "x", "there");
    assert!(world.fails(1, &["mv", "-n", "x", "pario://s/x"]).contains("already exists"));
    assert!(world.path("x").exists(), "the source stays");
}
