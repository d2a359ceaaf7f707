//! Containers on this machine: flatten, cp, cat, stat, ls -l, doctor; and a partition with the store `log`.

use std::fs;
use std::path::Path;

use pario::containers::LogContainer;

use crate::support::{CliFixture, noise};

/// A container of two writers with known bytes.
fn make(path: &Path) -> Vec<u8> {
    let bytes = noise(300_000);
    let container = LogContainer::create(path).expect("a new container");
    let writers = [container.writer(), container.writer()];
    for (number, piece) in bytes.chunks(1000).enumerate() {
        writers[number % 2].write_at(piece, number as u64 * 1000).expect("room");
    }
    container.close().expect("room");
    bytes
}

#[test]
fn a_container_is_copied_printed_shown_and_flattened_as_a_file() {
    let world = CliFixture::new();
    let bytes = make(&world.path("c"));
    assert!(world.command().args(["cat", "c"]).output().unwrap().stdout == bytes);
    world.ok(&["cp", "c", "copy"]);
    assert!(fs::read(world.path("copy")).unwrap() == bytes);
    let text = world.ok(&["stat", "c"]);
    assert!(text.contains("container") && text.contains("300000") && text.contains("2 writers"), "{text}");
    let facts = world.json(&["stat", "c"]);
    assert_eq!((facts[0]["kind"].as_str(), facts[0]["size"].as_u64()), (Some("container"), Some(300_000)));
    let text = world.ok(&["ls", "-l", "c"]);
    assert!(
        text.starts_with("-rw") && text.contains(" 300000 ") && text.trim_end().ends_with(" c"),
        "{text}"
    );
    fs::create_dir(world.path("tree")).unwrap();
    make(&world.path("tree/inner"));
    world.ok(&["cp", "-r", "tree", "trees"]);
    assert!(fs::read(world.path("trees/inner")).unwrap() == bytes, "in a tree, too");
    world.ok(&["flatten", "c"]);
    assert!(fs::read(world.path("c")).unwrap() == bytes);
    let told = world.fails(1, &["flatten", "c"]);
    assert!(told.contains("c is not a container"), "{told}");
    world.fails(1, &["flatten", "tree"]);
    world.fails(1, &["flatten", "none"]);
}

#[test]
fn a_damaged_container_is_told_and_repaired() {
    let world = CliFixture::new();
    let bytes = make(&world.path("c"));
    assert!(
        world.ok(&["doctor", "./c"]).contains("2 writers")
            && world.ok(&["doctor", "c"]).contains("all is well")
    );
    let index = world.path("c/00000002-index");
    let whole = fs::metadata(&index).unwrap().len();
    fs::File::options().write(true).open(&index).unwrap().set_len(whole - 10).unwrap();
    let said = world.pario(&["doctor", "c", "--deep"]);
    assert_eq!(said.code, 3, "{}", said.out);
    assert!(said.out.contains("writer 00000002: 1 torn index entries were dropped"), "{}", said.out);
    let text = world.ok(&["doctor", "c", "--repair"]);
    assert!(text.contains("repaired"), "{text}");
    assert!(world.ok(&["doctor", "c", "--deep"]).contains("all is well"));
    let found = world.command().args(["cat", "c"]).output().unwrap().stdout;
    assert_eq!(found[..1000], bytes[..1000], "the first writer's bytes are there");
    let told = world.fails(1, &["doctor", "./nothing"]);
    assert!(told.contains("does not exist"), "{told}");
}

#[test]
fn a_partition_keeps_its_objects_in_containers() {
    let world = CliFixture::new();
    let bytes = noise(3_000_000);
    fs::write(world.path("f"), &bytes).unwrap();
    world.ok(&["up", "--name", "s", "--servers", "2", "--dir", "store", "--store", "log"]);
    world.ok(&["cp", "f", "pario://s/f"]);
    world.ok(&["down", "s"]);
    world.ok(&["up", "s"]);
    world.ok(&["cp", "pario://s/f", "back"]);
    assert!(fs::read(world.path("back")).unwrap() == bytes);
    assert!(world.ok(&["doctor", "s"]).contains("all is well"));
    world.ok(&["truncate", "-s", "1000", "pario://s/f"]);
    assert!(world.command().args(["cat", "pario://s/f"]).output().unwrap().stdout == bytes[..1000]);
    world.ok(&["rm", "pario://s/f"]);
    world.ok(&["down", "s", "--destroy"]);
}
