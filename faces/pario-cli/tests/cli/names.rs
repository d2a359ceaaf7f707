//! Lost or damaged names with the real command: refused, restored from the second copy, exported, imported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::support::{CliFixture, CommandOutput, kill, noise, until};

const DIRECTORIES: usize = 20;

/// A partition with directories and a file; killed when the second copy has all of it.
fn killed(servers: u16) -> CliFixture {
    let world = CliFixture::new();
    world.up("s", servers);
    fill_and_kill(&world);
    world
}

fn fill_and_kill(world: &CliFixture) {
    fs::write(world.path("f"), noise(3_000_000)).expect("room for a file");
    world.ok(&["cp", "f", "pario://s/f"]);
    for number in 0..DIRECTORIES {
        world.ok(&["mkdir", &format!("pario://s/d{number}")]);
    }
    let copied = || {
        let status = world.json(&["status", "s"]);
        let ledger =
            status[0].pointer("/servers/0/status/manager/names/ledger").expect("the manager tells").clone();
        ledger["copies"] == true && ledger["uncopied"] == 0
    };
    assert!(until(copied), "the second copy has everything within seconds");
    kill_all(world);
}

fn kill_all(world: &CliFixture) {
    world.server_pids("s").into_iter().for_each(|pid| kill(pid, Signal::KILL));
    assert!(until(|| world.processes().is_empty()));
}

fn names(world: &CliFixture) -> PathBuf {
    world.server_dir("s", 0).join("names")
}

fn up(world: &CliFixture) -> CommandOutput {
    world.pario(&["up", "s"])
}

/// Everything is there, and the file has its bytes.
#[track_caller]
fn assert_whole(world: &CliFixture) {
    let listed = world.ok(&["ls", "pario://s/"]);
    for number in 0..DIRECTORIES {
        assert!(
            listed.split_whitespace().any(|word| word.trim_end_matches('/') == format!("d{number}")),
            "d{number}: {listed}"
        );
    }
    world.ok(&["cp", "pario://s/f", "back"]);
    assert!(fs::read(world.path("back")).expect("was just written") == noise(3_000_000));
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).expect("a file to damage");
    let at = usize::try_from(at).expect("fits") % bytes.len();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).expect("can be written");
}

/// Regression: the partition came up empty without a message, and `--repair` then deleted every object.
#[test]
fn names_that_are_gone_come_from_the_copy_beside() {
    let world = killed(1);
    fs::remove_dir_all(names(&world)).unwrap();
    let said = up(&world);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("second copy") && said.err.contains("nothing is lost"), "{said:?}");
    assert_whole(&world);
    let text = world.ok(&["doctor", "s"]);
    assert!(text.contains("warning: names: ") && !text.contains("all is well"), "{text}");
}

#[test]
fn names_that_are_gone_come_from_another_server() {
    let world = killed(2);
    assert!(world.server_dir("s", 1).join("names.copy").is_dir());
    fs::remove_dir_all(names(&world)).unwrap();
    let said = up(&world);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("second copy (server 1)") && said.err.contains("nothing is lost"), "{said:?}");
    assert_whole(&world);
}

/// Servers refused the manager's connection for the second copy wherever connections are protected.
#[test]
fn the_copy_is_written_and_read_over_protected_connections() {
    let world = CliFixture::new();
    let data = world.text("data");
    let words = ["up", "--name", "s", "--servers", "2", "--dir", &data];
    world.ok(&[&words[..], &["--transport", "tcp", "--protect", "all"]].concat());
    fill_and_kill(&world);
    let copies = fs::read_dir(world.server_dir("s", 1).join("names.copy")).expect("server 1 has the copy");
    assert_eq!(copies.count(), 1);
    fs::remove_dir_all(names(&world)).unwrap();
    let said = up(&world);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("second copy (server 1)") && said.err.contains("nothing is lost"), "{said:?}");
    assert_whole(&world);
}

#[test]
fn a_manager_that_lost_its_directory_has_its_names_back_when_the_loss_is_accepted() {
    let world = killed(2);
    fs::remove_dir_all(world.server_dir("s", 0)).unwrap();
    let refused = world.fails(1, &["up", "s"]);
    assert!(refused.contains("is missing"), "{refused}");
    let said = world.pario(&["up", "s", "--accept-loss"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("second copy (server 1)") && said.err.contains("nothing is lost"), "{said:?}");
    let (lost, kept) = (world.server_dir("s", 0), world.server_dir("s", 1));
    let made =
        format!("storage directory {} of server 0 was missing and is made anew, empty", lost.display());
    assert!(said.err.contains(&made) && !said.err.contains(kept.to_str().unwrap()), "{said:?}");
    let listed = world.ok(&["ls", "pario://s/"]);
    assert_eq!(listed.split_whitespace().count(), DIRECTORIES + 1, "{listed}");
}

#[test]
fn without_names_and_copy_it_does_not_start_unless_the_loss_is_accepted() {
    let world = killed(1);
    fs::remove_dir_all(names(&world)).unwrap();
    fs::remove_dir_all(world.server_dir("s", 0).join("names.copy")).unwrap();
    let refused = world.fails(1, &["up", "s"]);
    for word in ["names", "no second copy", "--names import", "--accept-loss"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert_eq!(world.pario(&["up", "s", "--accept-loss"]).code, 0);
    assert_eq!(world.ok(&["ls", "pario://s/"]), "");
    // The one object is more than a tenth of all: it stays, and is not deleted in any case.
    let (said, dir) = (world.fails(1, &["doctor", "s", "--repair", "-q"]), world.server_dir("s", 0));
    assert!(said.contains("more than a tenth") && said.contains("--force"), "{said}");
    assert!(!dir.join("lost+found").exists());
    let text = world.ok(&["doctor", "s", "--repair", "--force"]);
    assert!(text.contains("1 orphan moved to lost+found"), "{text}");
    let mode = fs::metadata(dir.join("lost+found")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only the user reads what was lost");
    let found: Vec<_> = fs::read_dir(dir.join("lost+found")).unwrap().flatten().collect();
    assert_eq!(found.len(), 1);
    assert!(fs::read(found[0].path()).unwrap() == noise(3_000_000), "the bytes are there");
}

/// A flipped byte of redb ended the manager by a panic, exit code 101; one in the log made directories vanish.
#[test]
fn flipped_bytes_cost_nothing_and_end_no_manager() {
    let world = killed(2);
    let mut seed = u64::from(std::process::id());
    println!("seed {seed}");
    for round in 0..12 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let files: Vec<PathBuf> =
            fs::read_dir(names(&world)).unwrap().flatten().map(|entry| entry.path()).collect();
        let ending = if round % 3 == 0 { ".log" } else { ".redb" };
        if let Some(file) = files.iter().find(|path| path.to_str().unwrap().ends_with(ending)) {
            flip(file, seed >> 20);
        }
        let said = up(&world);
        assert_eq!(said.code, 0, "round {round}: {said:?}");
        assert!(!said.err.contains("lost") || said.err.contains("nothing is lost"), "{said:?}");
        let listed = world.ok(&["ls", "pario://s/"]);
        assert_eq!(listed.split_whitespace().count(), DIRECTORIES + 1, "round {round}: {listed}");
        let status =
            || world.json(&["status", "s"])[0].pointer("/servers/0/status/manager/names/ledger").cloned();
        assert!(until(|| status().is_some_and(|ledger| ledger["copies"] == true && ledger["uncopied"] == 0)));
        kill_all(&world);
    }
}

#[test]
fn names_are_exported_and_imported() {
    let world = killed(2);
    assert_eq!(up(&world).code, 0);
    world.ok(&["doctor", "s", "--names", "export", "running.names"]);
    let refused = world.fails(1, &["doctor", "s", "--names", "import", "running.names"]);
    assert!(refused.contains("not down"), "{refused}");
    world.ok(&["down", "s"]);
    world.ok(&["doctor", "s", "--names", "export", "down.names"]);
    for server in 0..2 {
        let _ = fs::remove_dir_all(world.server_dir("s", server).join("names"));
        let _ = fs::remove_dir_all(world.server_dir("s", server).join("names.copy"));
    }
    flip(&world.path("running.names"), 700);
    let damaged = world.fails(1, &["doctor", "s", "--names", "import", "running.names"]);
    assert!(damaged.contains("damaged"), "{damaged}");
    assert!(world.fails(1, &["up", "s"]).contains("no second copy"));
    world.ok(&["doctor", "s", "--names", "import", "down.names"]);
    world.ok(&["up", "s"]);
    assert_whole(&world);
    assert!(world.ok(&["doctor", "s"]).contains("all is well"));
}
