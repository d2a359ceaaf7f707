//! Mounts that cannot be: one line with cause and cure, and nothing is left.

use std::fs::{self, File};

use crate::fixture::{MountFixture, NAME};

#[test]
fn needs_root_mistakes_are_told_with_their_cure() {
    let fixture = MountFixture::new(1);
    let cli = &fixture.cli;
    let mounted = fixture.dir(0).to_str().unwrap().to_owned();
    fs::write(cli.path("file"), "").unwrap();
    fs::create_dir(cli.path("full")).unwrap();
    fs::write(cli.path("full/x"), "").unwrap();
    fs::create_dir(cli.path("empty")).unwrap();
    let refused = |dir: &str| cli.fails(1, &["mount", NAME, dir]);
    assert!(refused(&cli.text("none")).contains("mkdir"));
    assert!(refused(&cli.text("file")).contains("not a directory"));
    assert!(refused(&cli.text("full")).contains("--nonempty"));
    assert!(refused(&mounted).contains("is a mount already"));
    let said = cli.pario(&["mount", "unknown", &cli.text("empty")]);
    assert!(said.code != 0 && said.err.lines().count() == 1 && said.err.contains("unknown"), "{said:?}");
    assert!(cli.fails(1, &["umount", &cli.text("empty")]).contains("not a mount of Pario"));
    let busy = File::open(fixture.dir(0)).unwrap();
    let said = cli.fails(1, &["umount", &mounted]);
    assert!(said.contains("umount -l"), "{said}");
    drop(busy);
    cli.ok(&["up", "--name", "stopped", "--servers", "1", "--dir", &cli.text("data")]);
    cli.ok(&["down", "stopped"]);
    let said = cli.pario(&["mount", "stopped", &cli.text("empty")]);
    assert!(said.code != 0 && said.err.contains("pario up stopped"), "{said:?}");
    cli.ok(&["down", "stopped", "--destroy"]);
    fixture.end();
}

#[test]
fn needs_root_a_busy_mount_is_detached_and_ends_with_its_last_file() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0).to_owned();
    let file = File::create(dir.join("f")).unwrap();
    fixture.cli.ok(&["umount", "-l", dir.to_str().unwrap()]);
    assert!(!crate::fixture::is_mounted(&dir));
    std::io::Write::write_all(&mut &file, b"after all").unwrap();
    drop(file);
    let location = format!("pario://{NAME}/f");
    crate::fixture::eventually("the file is written", || {
        fixture.cli.pario(&["cat", &location]).out == "after all"
    });
    fixture.cli.ok(&["down", NAME, "--destroy"]);
    fixture.cli.assert_nothing_left();
}

#[test]
fn needs_root_a_mounted_partition_is_shown_and_stays_up() {
    let fixture = MountFixture::new(1);
    let (cli, dir) = (&fixture.cli, fixture.dir(0).to_owned());
    fs::write(dir.join("f"), "kept").unwrap();
    let shown = cli.ok(&["status", NAME]);
    assert!(shown.contains(&format!("mounted in {} (process ", dir.display())), "{shown}");
    let said = cli.fails(1, &["down", NAME]);
    assert!(said.contains("pario umount") && said.contains("--umount"), "{said}");
    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "kept");
    let busy = File::open(dir.join("f")).unwrap();
    assert!(cli.fails(1, &["down", NAME, "--umount"]).contains("files are open"));
    drop(busy);
    cli.ok(&["down", NAME, "--umount", "--destroy"]);
    assert!(!crate::fixture::is_mounted(&dir));
    cli.assert_nothing_left();
}
