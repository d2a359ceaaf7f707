//! `pario tune`: measurements, settings that are kept, directories that cannot be measured, an interrupt.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::dying::is_root;
use crate::support::{CliFixture, RunningCommand, kill, until};

#[test]
fn measurements_are_shown_and_their_settings_kept() {
    let world = CliFixture::new();
    let words = ["tune", "data", "--size", "128KiB", "--threads", "2", "--passes", "1"];
    let text = world.ok(&words);
    for shown in ["8KiB", "128KiB", "one file", "separate files", "container", "#", "target ", "--write"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!text.contains("256KiB"), "{text}");
    let file = world.path(".config/pario/team.toml");
    assert!(!file.exists(), "only with --write");
    let facts = world.json(&[&words[..], &["--write"]].concat());
    let sizes: Vec<u64> = numbers(&facts["sizes"], "call_bytes");
    assert_eq!(sizes, [8192, 16384, 32768, 65536, 131_072]);
    assert_eq!(numbers(&facts["threads"], "threads"), [1, 1, 1, 2, 2, 2]);
    assert!(numbers(&facts["sizes"], "bytes_per_s").iter().all(|speed| 0 < *speed), "{facts}");
    let settings = &facts["settings"];
    assert!([65536, 131_072].contains(&settings["saturation_bytes"].as_u64().unwrap()), "{facts}");
    assert!([1, 2].contains(&settings["active"].as_u64().unwrap()), "{facts}");
    assert_eq!(facts["written"].as_str().map(Path::new), Some(file.as_path()));
    let kept = fs::read_to_string(&file).unwrap();
    let line = |key: &str, value: &Value| format!("{key} = {value}\n");
    for key in ["active", "target", "path"] {
        assert!(kept.contains(&line(key, &settings[key])), "{key} of {facts}: {kept}");
    }
    assert_eq!(world.tree("data"), Vec::<String>::new());
    // A second file system, and another place for the file.
    let mut command = world.command();
    command.env("PARIO_TEAM_FILE", world.path("mine.toml")).args(words).arg("--write");
    assert!(command.output().unwrap().status.success());
    assert!(fs::read_to_string(world.path("mine.toml")).unwrap().contains("[[directory]]"));
}

fn numbers(points: &Value, key: &str) -> Vec<u64> {
    let number = |point: &Value| point[key].as_u64().expect("a number");
    points.as_array().expect("a list").iter().map(number).collect()
}

#[test]
fn what_cannot_be_measured_is_told() {
    let world = CliFixture::new();
    fs::write(world.path("file"), "x").unwrap();
    for (code, words, told) in [
        (1, &["tune", "none"][..], "none: no such file or directory"),
        (1, &["tune", "file"], "file: not a directory"),
        (2, &["tune", "pario://s/"], "is a partition"),
        (2, &["tune", "data", "--size", "1KiB"], "--size 1KiB: at least 8KiB"),
        (2, &["tune", "data", "--passes", "0"], "--passes 0: from 1"),
        (2, &["tune", "data", "--threads", "0"], "--threads 0: from 1"),
    ] {
        let line = world.fails(code, words);
        assert!(line.contains(told), "{line}");
    }
    // A settings file that is wrong stays as it is, and the measurement is not lost silently.
    fs::create_dir_all(world.path(".config/pario")).unwrap();
    fs::write(world.path(".config/pario/team.toml"), "speed = 1\n").unwrap();
    let words = ["tune", "data", "--size", "8KiB", "--threads", "1", "--passes", "1", "--write"];
    let line = world.fails(1, &words);
    assert!(line.contains("team.toml") && line.contains("speed"), "{line}");
    assert_eq!(world.tree("data"), Vec::<String>::new());
}

#[test]
fn an_interrupt_leaves_no_file() {
    let world = CliFixture::new();
    let mut command = world.command();
    command.args(["tune", "data", "--size", "1MiB", "--passes", "100", "--threads", "64"]);
    let running = RunningCommand::start(&mut command);
    assert!(until(|| !world.tree("data").is_empty()), "measurements begin");
    kill(running.pid(), Signal::INT);
    let said = running.said();
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!(world.tree("data"), Vec::<String>::new());
}

/// A small file system in place of a directory.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount<'a>(dir: &'a Path, options: &str) -> SmallDisk<'a> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir).status();
        assert!(mounted.is_ok_and(|status| status.success()), "root mounts a tmpfs");
        SmallDisk(dir)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn needs_root_a_small_a_full_and_a_read_only_file_system_are_told() {
    if !is_root() {
        return;
    }
    let world = CliFixture::new();
    let dir = world.path("data");
    {
        let _disk = SmallDisk::mount(&dir, "size=1m");
        let words = ["tune", "data", "--threads", "2", "--passes", "1"];
        let text = world.ok(&words);
        assert!(text.contains("note: sizes end at 512KiB: half of the free space is"), "{text}");
        assert!(text.trim_end().contains(&format!("for {}", dir.display())), "its own mount point: {text}");
        fs::write(dir.join("large"), vec![1; (1 << 20) - 12288]).unwrap();
        let line = world.fails(1, &words);
        assert!(line.contains("no room for the smallest measurement"), "{line}");
        assert_eq!(world.tree("data"), ["large"]);
    }
    let _disk = SmallDisk::mount(&dir, "ro");
    let line = world.fails(1, &["tune", "data"]);
    assert!(line.contains("data: read-only file") && line.contains("choose another place"), "{line}");
}
