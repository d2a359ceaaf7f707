//! `pario cp`: parallel, with holes and modes, and never half a file.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::{CliFixture, RunningCommand, kill, noise, until};

#[test]
fn a_tree_survives_the_round_trip() {
    let world = CliFixture::new();
    world.up("s", 3);
    fs::create_dir_all(world.path("in/sub/empty")).unwrap();
    fs::write(world.path("in/big"), noise(21_000_003)).unwrap();
    fs::write(world.path("in/sub/nothing"), "").unwrap();
    for number in 0..40 {
        fs::write(world.path(format!("in/sub/file-{number}")), noise(number * 997)).unwrap();
    }
    fs::set_permissions(world.path("in/big"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(world.path("in/sub"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("sub/file-3", world.path("in/link")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(world.path("in/big")).unwrap().set_modified(old).unwrap();
    world.ok(&["cp", "-rp", "in", "pario://s/there"]);
    world.ok(&["cp", "-rp", "pario://s/there", "back"]);
    assert_eq!(world.tree("in"), world.tree("back"));
    for name in world.tree("in") {
        let (from, to) = (world.path("in").join(&name), world.path("back").join(&name));
        let (one, two) = (fs::symlink_metadata(&from).unwrap(), fs::symlink_metadata(&to).unwrap());
        assert_eq!(one.mode(), two.mode(), "{name}");
        assert!(
            !one.is_symlink() || one.modified().unwrap() == two.modified().unwrap(),
            "{name}: the times of a link"
        );
        if one.is_file() {
            assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap(), "{name} differs");
            assert_eq!(one.modified().unwrap(), two.modified().unwrap(), "{name}");
        }
    }
    assert_eq!(fs::read_link(world.path("back/link")).unwrap().to_str(), Some("sub/file-3"));
}

#[test]
fn modes_are_kept_also_without_asking() {
    let world = CliFixture::new();
    world.up("s", 1);
    fs::write(world.path("script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(world.path("script"), fs::Permissions::from_mode(0o751)).unwrap();
    world.ok(&["cp", "script", "pario://s/script"]);
    assert_eq!(world.json(&["stat", "pario://s/script"])[0]["mode"], 0o751);
    world.ok(&["cp", "pario://s/script", "again"]);
    assert_eq!(fs::metadata(world.path("again")).unwrap().mode() & 0o777, 0o751);
}

#[test]
fn holes_stay_holes_both_ways() {
    let world = CliFixture::new();
    world.up("s", 2);
    let file = fs::File::create(world.path("sparse")).unwrap();
    file.write_at(b"start", 0).unwrap();
    file.write_at(b"middle", 100 << 20).unwrap();
    file.set_len(300 << 20).unwrap();
    let facts = world.json(&["cp", "sparse", "pario://s/sparse"]);
    assert_eq!(facts["copied"]["bytes"], 300 << 20);
    assert!(facts["copied"]["hole_bytes"].as_u64().unwrap() > 298 << 20, "{facts}");
    world.ok(&["cp", "pario://s/sparse", "back"]);
    let back = fs::metadata(world.path("back")).unwrap();
    assert_eq!(back.len(), 300 << 20);
    assert!(back.blocks() * 512 < 4 << 20, "{} bytes are allocated", back.blocks() * 512);
    let mut bytes = [0; 6];
    fs::File::open(world.path("back")).unwrap().read_exact_at(&mut bytes, 100 << 20).unwrap();
    assert_eq!(&bytes, b"middle");
    let stored: u64 = (0..2).map(|server| allocated(&world.server_dir("s", server).join("objects"))).sum();
    assert!(stored < 4 << 20, "{stored} bytes are allocated in the stores");
}

#[test]
fn a_huge_hole_is_asked_for_and_not_read() {
    let world = CliFixture::new();
    world.up("s", 3);
    let size = 8_u64 << 40;
    world.ok(&["truncate", "-s", "8TiB", "pario://s/huge"]);
    let registry = pario::partition::Registry::open(&world.registry());
    let partition = pario::Partition::mount_from(&registry, "s").unwrap();
    let file = partition.options().write(true).open("huge").unwrap();
    let places = [(5, "early"), (3 << 40, "middle"), (size - 4, "last")];
    for (at, text) in places {
        file.write_at(at, text.as_bytes()).unwrap();
    }
    file.close().unwrap();
    // A local file system may have no files of this length; another partition has.
    world.up("t", 2);
    let began = std::time::SystemTime::now();
    let facts = world.json(&["cp", "pario://s/huge", "pario://t/huge"]);
    let took = began.elapsed().unwrap();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(facts["copied"]["bytes"], size);
    assert!(size - (1 << 20) < facts["copied"]["hole_bytes"].as_u64().unwrap(), "{facts}");
    assert_eq!(world.json(&["stat", "pario://t/huge"])[0]["size"], size);
    let partition = pario::Partition::mount_from(&registry, "t").unwrap();
    let copy = partition.open("huge").unwrap();
    for (at, text) in places {
        let mut bytes = vec![0; text.len()];
        copy.read_exact_at(at, &mut bytes).unwrap();
        assert_eq!(bytes, text.as_bytes(), "at {at}");
    }
    let stored: u64 = (0..2).map(|server| allocated(&world.server_dir("t", server).join("objects"))).sum();
    assert!(stored < 4 << 20, "{stored} bytes are allocated in the stores");
}

#[test]
fn random_sparse_files_are_equal_after_the_round_trip() {
    let seed = std::process::id();
    eprintln!("seed {seed}");
    let world = CliFixture::new();
    world.up("s", 3);
    let mut state = u64::from(seed) | 1 << 40;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..6 {
        let length = 1 + random(96 << 20);
        let file = fs::File::create(world.path("in")).unwrap();
        file.set_len(length).unwrap();
        for _ in 0..random(40) {
            let at = random(length);
            let bytes = random(300_000).min(length - at);
            file.write_at(&noise(usize::try_from(bytes).unwrap()), at).unwrap();
        }
        world.ok(&["cp", "in", "pario://s/f"]);
        world.ok(&["cp", "pario://s/f", "back"]);
        let (one, two) = (fs::read(world.path("in")).unwrap(), fs::read(world.path("back")).unwrap());
        assert!(one == two, "round {round} with seed {seed}: {length} bytes differ");
    }
}

fn allocated(dir: &std::path::Path) -> u64 {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let size = |entry: fs::DirEntry| match entry.metadata().expect("its attributes") {
        metadata if metadata.is_dir() => allocated(&entry.path()),
        metadata => metadata.blocks() * 512,
    };
    entries.map(size).sum()
}

#[test]
fn partitions_copy_to_each_other() {
    let world = CliFixture::new();
    world.up("a", 2);
    world.up("b", 3);
    let data = noise(9_000_000);
    fs::write(world.path("f"), &data).unwrap();
    world.ok(&["cp", "f", "pario://a/dir/"]);
    world.ok(&["cp", "-r", "pario://a/dir", "pario://b/"]);
    world.ok(&["cp", "pario://b/dir/f", "back"]);
    assert!(fs::read(world.path("back")).unwrap() == data);
}

#[test]
fn an_existing_file_is_replaced_and_a_link_to_one_followed() {
    let world = CliFixture::new();
    world.up("s", 1);
    fs::write(world.path("long"), "a long text").unwrap();
    fs::write(world.path("short"), "short").unwrap();
    world.ok(&["cp", "long", "pario://s/file"]);
    world.ok(&["ln", "-s", "file", "pario://s/link"]);
    world.ok(&["cp", "short", "pario://s/link"]);
    assert_eq!(world.ok(&["cat", "pario://s/file"]), "short");
    assert_eq!(world.json(&["stat", "pario://s/link"])[0]["kind"], "symlink");
}

/// A small file system; `None` with a message where mounting is not allowed.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(dir: std::path::PathBuf) -> Option<Small> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&dir);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Small(dir));
        }
        eprintln!("SKIPPED: mounting a small file system needs root");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_copy_that_finds_no_room_leaves_nothing() {
    let world = CliFixture::new();
    let Some(_small) = Small::mount(world.path("data")) else { return };
    world.up("full", 2);
    fs::write(world.path("small"), noise(100_000)).unwrap();
    fs::write(world.path("large"), noise(40 << 20)).unwrap();
    world.ok(&["cp", "small", "pario://full/f"]);
    let line = world.fails(1, &["cp", "large", "pario://full/f"]);
    assert!(line.contains("pario://full/") && line.contains("pario df"), "{line}");
    assert_eq!(world.ok(&["ls", "-a", "pario://full/"]), "f\n", "no part of the copy is left");
    assert_eq!(world.json(&["stat", "pario://full/f"])[0]["size"], 100_000, "the old file is as it was");
    // The other direction.
    world.ok(&["truncate", "-s", "0", "pario://full/f"]);
    world.up_elsewhere("wide");
    world.ok(&["cp", "large", "pario://wide/large"]);
    let line = world.fails(1, &["cp", "pario://wide/large", "data/out"]);
    assert!(line.contains("no space left") && line.contains("free some space"), "{line}");
    let left = world.tree("data");
    assert!(!left.iter().any(|name| name.contains("out")), "{left:?}");
}

#[test]
fn a_copy_that_is_interrupted_leaves_no_file() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::write(world.path("f"), noise(64 << 20)).unwrap();
    let pids = world.server_pids("s");
    // A server that stands still keeps the copy waiting, however fast the machine is.
    kill(pids[1], Signal::STOP);
    let copy = RunningCommand::start(world.command().args(["cp", "f", "pario://s/f"]));
    // The listing may wait for the copy, and log that.
    assert!(until(|| !world.pario(&["ls", "-a", "pario://s/"]).out.is_empty()));
    kill(copy.pid(), Signal::INT);
    let said = copy.said();
    kill(pids[1], Signal::CONT);
    assert!(said.code == 130 || said.code == 1, "{said:?}");
    assert!(!said.err.contains("panicked"), "{said:?}");
    assert_eq!(world.ok(&["ls", "pario://s/"]), "", "nothing has the file's name");
    world.ok(&["cp", "f", "pario://s/f"]);
    assert_eq!(world.json(&["stat", "pario://s/f"])[0]["size"], 64 << 20);
}
