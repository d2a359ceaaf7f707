//! Servers and processes of mounts that die: errors instead of hangs, and a way back.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use crate::fixture::{MountFixture, NAME, eventually, is_mounted};
use crate::support::kill;

const EIO: i32 = 5;

#[test]
fn needs_root_dead_servers_are_errors_and_their_return_is_seen() {
    let mut fixture = MountFixture::new(0);
    let log = fixture.cli.path("mount.log");
    let dir = fixture.mount("m", &["--log", log.to_str().unwrap()]);
    fs::write(dir.join("f"), "kept").unwrap();
    let open = fs::File::create(dir.join("open")).unwrap();
    for pid in fixture.cli.server_pids(NAME) {
        kill(pid, Signal::KILL);
    }
    let error = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(error(fs::metadata(dir.join("f")).map(drop)), Some(EIO));
    assert_eq!(error(fs::read(dir.join("f")).map(drop)), Some(EIO));
    assert_eq!(error(fs::write(dir.join("g"), "x")), Some(EIO));
    assert_eq!(
        error(fs::read_dir(&dir).and_then(|mut entries| entries.next().transpose().map(drop))),
        Some(EIO)
    );
    // A write may be kept back; then its sync fails.
    assert_eq!(error(open.write_all_at(b"x", 0).and_then(|()| open.sync_all())), Some(EIO));
    drop(open);
    fixture.cli.ok(&["up", NAME]);
    eventually("the mount works again", || {
        fs::read_to_string(dir.join("f")).is_ok_and(|text| text == "kept")
    });
    fs::write(dir.join("g"), "new").unwrap();
    let causes = fs::read_to_string(log).unwrap();
    assert!(causes.contains("server 0"), "{causes}");
    fixture.end();
}

#[test]
fn needs_root_a_killed_mount_is_cleared_away() {
    let mut fixture = MountFixture::new(1);
    let dir = fixture.dir(0).to_owned();
    fs::write(dir.join("f"), "kept").unwrap();
    let mut value = [0; 16];
    let count = rustix::fs::getxattr(&dir, "user.pario.process", &mut value).unwrap();
    let pid: i32 = std::str::from_utf8(&value[..count]).unwrap().parse().unwrap();
    kill(pid, Signal::KILL);
    eventually("calls fail", || fs::metadata(dir.join("f")).is_err());
    let said = fixture.cli.fails(1, &["mount", NAME, dir.to_str().unwrap()]);
    assert!(said.contains("process of this mount is gone") && said.contains("pario umount"), "{said}");
    fixture.cli.ok(&["umount", dir.to_str().unwrap()]);
    assert!(!is_mounted(&dir));
    let dir = fixture.mount("again", &[]);
    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "kept");
    // A signal ends a mount in order.
    let count = rustix::fs::getxattr(&dir, "user.pario.process", &mut value).unwrap();
    kill(std::str::from_utf8(&value[..count]).unwrap().parse().unwrap(), Signal::TERM);
    eventually("it is unmounted", || !is_mounted(&dir));
    fixture.cli.ok(&["down", NAME, "--destroy"]);
    fixture.cli.assert_nothing_left();
}
