//! The small commands on files and directories.

use std::io::Read;
use std::process::Stdio;

use crate::support::{CliFixture, noise};

#[test]
fn names_are_made_moved_listed_and_removed() {
    let world = CliFixture::new();
    world.up("s", 2);
    world.ok(&["mkdir", "-p", "pario://s/a/b"]);
    world.ok(&["mkdir", "-p", "pario://s/a/b"]);
    std::fs::write(world.path("f"), "12345").unwrap();
    world.ok(&["cp", "f", "pario://s/a/one"]);
    world.ok(&["cp", "f", "pario://s/a/.hidden"]);
    assert_eq!(world.ok(&["ls", "pario://s/a"]), "b\none\n");
    assert_eq!(world.ok(&["ls", "-a", "pario://s/a"]), ".hidden\nb\none\n");
    world.ok(&["mv", "pario://s/a/one", "pario://s/a/two"]);
    world.ok(&["mv", "pario://s/a/two", "pario://s/a/b"]);
    assert_eq!(world.ok(&["ls", "-R", "pario://s/a"]), "pario://s/a:\nb\n\npario://s/a/b:\ntwo\n");
    let long = world.ok(&["ls", "-l", "pario://s/a/b"]);
    assert!(long.starts_with("-rw-") && long.contains("  5  20") && long.ends_with("two\n"), "{long}");
    let long = world.ok(&["ls", "-l", "pario://s/a/b/two"]);
    assert!(long.ends_with("  pario://s/a/b/two\n"), "{long}");
    world.ok(&["rm", "-f", "pario://s/none", "pario://s/a/b/two"]);
    world.ok(&["rm", "-r", "pario://s/a"]);
    assert_eq!(world.ok(&["ls", "pario://s/"]), "");
}

#[test]
fn mv_replaces_at_once_unless_told_not_to() {
    let world = CliFixture::new();
    world.up("s", 1);
    for name in ["old", "new"] {
        std::fs::write(world.path(name), name).unwrap();
        world.ok(&["cp", name, &format!("pario://s/{name}")]);
    }
    assert!(world.fails(1, &["mv", "-n", "pario://s/new", "pario://s/old"]).contains("already exists"));
    world.ok(&["mv", "pario://s/new", "pario://s/old"]);
    assert_eq!(world.ok(&["cat", "pario://s/old"]), "new");
    assert_eq!(world.ok(&["ls", "pario://s/"]), "old\n");
}

#[test]
fn links_say_where_they_lead() {
    let world = CliFixture::new();
    world.up("s", 1);
    std::fs::write(world.path("f"), "behind").unwrap();
    world.ok(&["cp", "f", "pario://s/run1/"]);
    world.ok(&["ln", "-s", "run1", "pario://s/latest"]);
    assert_eq!(world.ok(&["cat", "pario://s/latest/f"]), "behind");
    assert!(world.ok(&["ls", "-l", "pario://s/"]).contains("latest -> run1"));
    assert!(world.fails(1, &["ln", "-s", "run2", "pario://s/latest"]).contains("already exists"));
    world.ok(&["ln", "-sf", "run2", "pario://s/latest"]);
    world.ok(&["touch", "pario://s/named"]);
    world.ok(&["ln", "pario://s/named", "pario://s/again"]);
    assert!(world.fails(1, &["ln", "pario://s/named", "pario://s/again"]).contains("already exists"));
    assert_eq!(world.json(&["stat", "pario://s/again"])[0]["links"], 2);
    world.ok(&["rm", "pario://s/named", "pario://s/again"]);
    let facts = world.json(&["stat", "pario://s/latest"]);
    assert_eq!((&facts[0]["kind"], &facts[0]["target"]), (&"symlink".into(), &"run2".into()));
}

#[test]
fn stat_knows_striping_and_objects() {
    let world = CliFixture::new();
    world.up("s", 3);
    std::fs::write(world.path("f"), noise(2_500_000)).unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    let text = world.ok(&["stat", "pario://s/f"]);
    for part in ["2500000 (2.38 MiB)", "blocks of 1MiB on 3 servers", "generation 0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let facts = world.json(&["stat", "-v", "pario://s/f"]);
    let objects = facts[0]["objects"].as_array().unwrap();
    let sum: u64 = objects.iter().map(|object| object["bytes"].as_u64().unwrap()).sum();
    assert_eq!((objects.len(), sum), (3, 2_500_000));
    assert_eq!(facts[0]["layout"]["stripe_bytes"], 1 << 20);
}

#[test]
fn truncate_cuts_and_makes_holes() {
    let world = CliFixture::new();
    world.up("s", 2);
    std::fs::write(world.path("f"), "0123456789").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    world.ok(&["truncate", "-s", "4", "pario://s/f"]);
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "0123");
    world.ok(&["truncate", "-s", "6", "pario://s/f"]);
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "0123\0\0");
    assert!(world.fails(1, &["truncate", "-c", "-s", "6", "pario://s/none"]).contains("no such file"));
    world.ok(&["truncate", "-s", "10TiB", "pario://s/huge"]);
    assert_eq!(world.json(&["stat", "pario://s/huge"])[0]["size"], 10_u64 << 40);
}

#[test]
fn du_df_and_tree_add_up() {
    let world = CliFixture::new();
    world.up("s", 2);
    std::fs::write(world.path("f"), vec![1; 3000]).unwrap();
    world.ok(&["cp", "f", "pario://s/a/b/"]);
    world.ok(&["cp", "f", "pario://s/a/"]);
    let du = world.json(&["du", "pario://s/a"]);
    assert_eq!(du.as_array().unwrap().len(), 2);
    assert_eq!((&du[0]["bytes"], &du[1]["bytes"], &du[1]["files"]), (&3000.into(), &6000.into(), &2.into()));
    assert_eq!(world.ok(&["du", "-sb", "pario://s/"]).trim(), "6000  pario://s/");
    let tree = world.ok(&["tree", "pario://s/"]);
    assert!(tree.contains("└── a/\n    ├── b/\n    │   └── f  [2.93 KiB]\n"), "{tree}");
    assert!(tree.ends_with("2 directories, 2 files, 5.86 KiB\n"), "{tree}");
    assert_eq!(world.json(&["tree", "pario://s/"])["entries"][0]["entries"][0]["name"], "b");
    let df = world.json(&["df"]);
    let (total, each) =
        (df[0]["space"]["total_bytes"].as_u64(), df[0]["servers"][0]["space"]["total_bytes"].as_u64());
    assert_eq!(total, each, "both servers share one file system, which counts once");
}

#[test]
fn the_partition_variable_stands_for_a_name() {
    let world = CliFixture::new();
    world.up("s", 1);
    world.ok(&["mkdir", "pario://s/x"]);
    let said = crate::support::said(&world.command().env("PARIO_PARTITION", "s").arg("ls").output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (0, "x\n"));
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let world = CliFixture::new();
    world.up("s", 2);
    std::fs::write(world.path("f"), noise(8 << 20)).unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    let mut cat = world.command();
    cat.args(["cat", "pario://s/f"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cat.spawn().unwrap();
    let mut first = [0; 10];
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut first).unwrap();
    drop(output);
    let said = crate::support::said(&child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn completions_and_help_are_there() {
    let world = CliFixture::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.ok(&["completions", shell]).contains("pario"));
    }
    for command in ["up", "cp", "ls", "run", "doctor"] {
        let help = world.ok(&[command, "--help"]);
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(world.ok(&["--help"]).contains("Exit codes"));
    assert!(!world.ok(&["--help"]).contains("\n  serve "), "the servers' own command is hidden");
}
