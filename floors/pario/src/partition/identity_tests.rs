//! Wrong directories of every kind, and their error messages.

use super::*;
use crate::partition::entry::tests::sample;
use std::os::unix::fs::PermissionsExt;

const ID: PartitionId = PartitionId([1; 16]);

fn wanted(server: u16) -> Identity {
    Identity::wanted(&sample("x", 4).settings, ID, ServerIndex(server), DirectoryRole::Store)
}

#[track_caller]
fn check_refused(result: Result<HeldDirectory, IdentityError>, parts: &[&str]) {
    let message = result.unwrap_err().to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    assert!(!message.contains('\n'));
}

#[test]
fn a_fresh_directory_is_made_and_found_again() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/b");
    let hold = wanted(1).hold(&dir, StartMode::Fresh).unwrap();
    assert!(hold.created);
    assert_eq!(hold.identity.made_directories, 2);
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let text = fs::read_to_string(dir.join(IDENTITY_FILE)).unwrap();
    let created = hold.identity.created_unix_s;
    assert_eq!(
        text,
        format!(
            "# This directory belongs to a Pario partition. Do not edit.\nformat = 1\n\
             partition = \"01010101010101010101010101010101\"\nname = \"x\"\nrole = \"store\"\nserver = 1\nservers = 4\n\
             stripe = \"1MiB\"\nstore = \"files\"\ncreated_unix_s = {created}\nmade_directories = 2\n"
        )
    );
    drop(hold);
    for mode in [StartMode::Existing, StartMode::Fresh] {
        let hold = wanted(1).hold(&dir, mode).unwrap();
        assert!(!hold.created);
        assert_eq!(hold.identity.created_unix_s, created);
    }
}

#[test]
fn another_partition_server_or_setting_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    drop(wanted(1).hold(&dir, StartMode::Fresh).unwrap());
    let before = fs::read(dir.join(IDENTITY_FILE)).unwrap();
    let named = dir.display().to_string();
    let other = Identity { partition: PartitionId([2; 16]), name: "y".into(), ..wanted(1) };
    let refused = other.clone().hold(&dir, StartMode::Fresh);
    assert_eq!(refused.as_ref().unwrap_err().found(), None);
    check_refused(refused, &[&named, "belongs to partition 'x'", "0101", "'y'", "0202"]);
    let same_name = Identity { name: "x".into(), ..other }.hold(&dir, StartMode::Fresh);
    assert_eq!(same_name.unwrap_err().found(), Some(ID));
    for mode in [StartMode::Fresh, StartMode::Existing] {
        check_refused(wanted(2).hold(&dir, mode), &[&named, "with server 1, but is wanted with server 2"]);
        let changed = Identity { stripe: Size(4096), ..wanted(1) };
        check_refused(changed.hold(&dir, mode), &[&named, "stripe 1MiB, but is wanted with stripe 4KiB"]);
        let changed = Identity { servers: 5, ..wanted(1) };
        check_refused(
            changed.hold(&dir, mode),
            &["number of servers 4, but is wanted with number of servers 5"],
        );
        let changed = Identity { store: "direct".into(), ..wanted(1) };
        check_refused(changed.hold(&dir, mode), &["store files, but is wanted with store direct"]);
        let changed = Identity { role: DirectoryRole::Names, ..wanted(1) };
        check_refused(changed.hold(&dir, mode), &["role store, but is wanted with role names"]);
    }
    assert_eq!(fs::read(dir.join(IDENTITY_FILE)).unwrap(), before);
}

#[test]
fn unknown_formats_and_damage_are_refused_and_kept() {
    let root = tempfile::tempdir().unwrap();
    for (text, parts) in [
        ("format = 2\nanything = 1\n", ["storage format 2", "knows 1"]),
        ("", ["identity file is damaged", "no format number"]),
        ("format = 1\n", ["identity file is damaged", "missing field"]),
        ("\u{0}\u{0}", ["identity file is damaged", "move the directory away"]),
    ] {
        fs::write(root.path().join(IDENTITY_FILE), text).unwrap();
        for mode in [StartMode::Fresh, StartMode::Existing] {
            check_refused(wanted(0).hold(root.path(), mode), &parts);
        }
        assert_eq!(fs::read_to_string(root.path().join(IDENTITY_FILE)).unwrap(), text);
    }
}

#[test]
fn what_should_be_there_and_is_not_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let gone = root.path().join("gone");
    check_refused(
        wanted(3).hold(&gone, StartMode::Existing),
        &["server 3", "the directory is missing", "mounted?"],
    );
    assert!(!gone.exists());
    check_refused(wanted(3).hold(root.path(), StartMode::Existing), &["its identity is missing", "mounted?"]);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn data_without_an_identity_is_not_taken() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("objects")).unwrap();
    check_refused(wanted(0).hold(root.path(), StartMode::Fresh), &["has 'objects' in it but no identity"]);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    fs::remove_dir(root.path().join("objects")).unwrap();
    fs::write(root.path().join("notes.txt"), "mine").unwrap();
    assert!(wanted(0).hold(root.path(), StartMode::Fresh).is_ok());
}

#[test]
fn files_and_places_that_cannot_be_written_are_named() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    check_refused(wanted(0).hold(&file, StartMode::Fresh), &["file is not a directory"]);
    check_refused(wanted(0).hold(&file.join("below"), StartMode::Fresh), &["is not a directory"]);
    // Permission bits do not stop root, but not even root makes directories in /proc.
    check_refused(
        wanted(0).hold(Path::new("/proc/pario/x"), StartMode::Fresh),
        &["/proc/pario/x cannot be written"],
    );
    check_refused(wanted(0).hold(Path::new("/proc"), StartMode::Fresh), &["/proc cannot be written"]);
}

#[test]
fn one_server_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let hold = wanted(0).hold(root.path(), StartMode::Fresh).unwrap();
    let own = format!("by process {}", std::process::id());
    check_refused(wanted(0).hold(root.path(), StartMode::Existing), &["is being served", &own]);
    drop(hold);
    assert!(wanted(0).hold(root.path(), StartMode::Existing).is_ok());
}

#[test]
fn finds_what_the_registry_lost() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = sample("x", 2).settings;
    for (at, server) in settings.servers.iter_mut().enumerate() {
        server.dir = root.path().join(at.to_string());
    }
    assert_eq!(find_existing(&settings).unwrap(), None);
    let dir = settings.servers[1].dir.clone();
    drop(
        Identity::wanted(&settings, ID, ServerIndex(1), DirectoryRole::Store)
            .hold(&dir, StartMode::Fresh)
            .unwrap(),
    );
    assert_eq!(find_existing(&settings).unwrap(), Some(ID));
    settings.name = "another".into();
    assert_eq!(find_existing(&settings).unwrap(), None);
}

#[test]
fn counts_what_is_missing() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(count_missing(root.path()), 0);
    assert_eq!(count_missing(&root.path().join("a/b/c")), 3);
}
