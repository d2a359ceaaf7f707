//! A directory is identified by its descriptor, and a symbolic link on its path is an error, in both implementations of the walk.

use super::*;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

fn write(dir: &Dir, below: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    dir.open_file(Path::new(below), flags, PRIVATE_FILE)?.write_all(b"new")
}

#[test]
fn links_below_are_errors_and_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let (dir, outside) = (root.path().join("dir"), root.path().join("outside"));
    std::fs::create_dir_all(dir.join("a/b")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "old").unwrap();
    symlink("../outside", dir.join("link")).unwrap();
    symlink("../../outside/file", dir.join("a/file")).unwrap();
    symlink("../../../outside", dir.join("a/b/link")).unwrap();
    let opened = Dir::open(&dir).unwrap();
    write(&opened, "a/b/plain").unwrap();
    opened.open_file(Path::new("a/b/plain"), OFlags::RDWR, PRIVATE_FILE).unwrap();
    for below in ["link/file", "a/file", "a/b/link/file"] {
        assert!(is_link_error(&write(&opened, below).unwrap_err()), "{below}");
        let walked =
            walk_below(opened.as_fd(), Path::new(below), OFlags::RDWR | OFlags::NOFOLLOW, Mode::empty());
        assert_eq!(walked.unwrap_err(), Errno::LOOP, "{below}");
    }
    for below in ["../outside/file", "/etc/hostname", ".", ""] {
        assert!(write(&opened, below).is_err(), "{below}");
    }
    assert!(is_link_error(&opened.make_dir(Path::new("a/b/link/x"), 0o700).unwrap_err()));
    assert!(is_link_error(&opened.remove_file(Path::new("link/file")).unwrap_err()));
    opened.remove_all(OsStr::new("link")).unwrap();
    opened.remove_all(OsStr::new("a")).unwrap();
    assert_eq!(opened.list().unwrap(), []);
    assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_directory_that_was_replaced_is_still_the_one_that_was_opened() {
    let root = tempfile::tempdir().unwrap();
    let (dir, moved) = (root.path().join("dir"), root.path().join("moved"));
    std::fs::create_dir(&dir).unwrap();
    let opened = open_own(&dir, Missing::Refuse).unwrap().dir;
    std::fs::rename(&dir, &moved).unwrap();
    symlink("/", &dir).unwrap();
    write(&opened, "file").unwrap();
    assert!(moved.join("file").exists());
}

#[track_caller]
fn check_refused(path: &Path, missing: Missing, parts: &[&str]) {
    let text = open_own(path, missing).unwrap_err().to_string();
    assert!(parts.iter().all(|part| text.contains(part)) && !text.contains('\n'), "{text}");
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn directories_that_others_can_write_are_refused_and_sticky_ones_end_the_search() {
    let root = tempfile::tempdir().unwrap();
    let (open, dir) = (root.path().join("open"), root.path().join("open/dir"));
    std::fs::create_dir_all(&dir).unwrap();
    mode(&open, 0o777);
    check_refused(
        &dir,
        Missing::Refuse,
        &["open: other users can write there", "mode 0777", "chmod o-w or +t"],
    );
    check_refused(&open.join("new"), Missing::Make, &["open: other users can write there"]);
    assert!(!open.join("new").exists());
    mode(&open, 0o1777);
    assert_eq!(open_own(&open.join("new/er"), Missing::Make).unwrap().made, 2);
    assert_eq!(std::fs::metadata(open.join("new")).unwrap().permissions().mode() & 0o777, 0o700);
    mode(&dir, 0o1777);
    check_refused(&dir, Missing::Refuse, &["dir: other users can write there", "chmod go-w"]);
    assert!(open_trusted(&dir, Missing::Refuse).is_ok());
}

#[test]
fn links_of_the_user_are_followed_once() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("real/sub")).unwrap();
    symlink("real", root.path().join("relative")).unwrap();
    symlink(root.path().join("relative/sub"), root.path().join("absolute")).unwrap();
    symlink("round", root.path().join("round")).unwrap();
    let way = root.path().join("absolute/../../relative/./sub");
    write(&open_own(&way, Missing::Refuse).unwrap().dir, "file").unwrap();
    assert!(root.path().join("real/sub/file").exists());
    assert_eq!(open_own(&root.path().join("relative/more"), Missing::Make).unwrap().made, 1);
    assert!(root.path().join("real/more").is_dir());
    assert!(open_own(&root.path().join("round"), Missing::Refuse).unwrap_err().io().is_some());
    assert!(open_own(&root.path().join("none"), Missing::Refuse).unwrap_err().io().is_some());
}

/// Entries that another user made or could make: a directory, a sticky directory in it, a link.
#[test]
fn needs_root_directories_and_links_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to make what belongs to another user");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    let foreign = root.path().join("foreign");
    std::fs::create_dir_all(foreign.join("mine")).unwrap();
    give(&foreign);
    check_refused(&foreign, Missing::Refuse, &["foreign: belongs to user 65534", "not to user 0"]);
    check_refused(&foreign.join("mine"), Missing::Refuse, &["foreign: belongs to user 65534"]);
    check_refused(&foreign.join("new"), Missing::Make, &["foreign: belongs to user 65534"]);
    mode(&foreign, 0o1777);
    check_refused(&foreign.join("new"), Missing::Make, &["foreign: belongs to user 65534"]);
    let own = root.path().join("own");
    std::fs::create_dir(&own).unwrap();
    symlink("own", root.path().join("link")).unwrap();
    assert!(open_own(&root.path().join("link"), Missing::Refuse).is_ok());
    give(&root.path().join("link"));
    check_refused(&root.path().join("link"), Missing::Refuse, &["link: a symbolic link of user 65534"]);
    std::os::unix::fs::chown(&own, None, Some(4321)).unwrap();
    mode(&own, 0o770);
    check_refused(&own.join("new"), Missing::Make, &["group 4321, mode 0770", "PARIO_TRUST=group:4321"]);
}
