//! The same calls on a mount and on a plain directory: results and error numbers must be equal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps};

use crate::fixture::MountFixture;

/// A result as text: the value, or the error number.
fn told<T: std::fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error {}", error.raw_os_error().unwrap_or(0)),
    }
}

/// Kind, mode, links and length (of a file).
fn facts(path: &Path) -> io::Result<(u32, u64, Option<u64>)> {
    let facts = fs::symlink_metadata(path)?;
    Ok((facts.mode(), facts.nlink(), (!facts.is_dir()).then_some(facts.len())))
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?.map(|entry| {
        let entry = entry?;
        Ok(format!("{:?} {:?}", entry.file_name(), entry.file_type()?))
    });
    let mut names = entries.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Names: what exists, what is refused.
fn name_calls(dir: &Path) -> Vec<String> {
    let at = |name: &str| dir.join(name);
    let mut said = vec![
        told(fs::create_dir(at("d"))),
        told(fs::create_dir(at("d"))),
        told(fs::create_dir(at("x/y"))),
        told(fs::write(at("f"), "hello")),
        told(fs::write(at("f/g"), "")),
        told(fs::write(at("d"), "")),
        told(File::create_new(at("f")).map(drop)),
        told(fs::hard_link(at("f"), at("d/g"))),
        told(fs::hard_link(at("d"), at("e"))),
        told(symlink("f", at("s"))),
        told(symlink("nowhere", at("broken"))),
        told(fs::read_link(at("s"))),
        told(fs::read_to_string(at("s"))),
        told(fs::read_to_string(at("broken"))),
        told(fs::remove_dir(at("d"))),
        told(fs::remove_file(at("d"))),
        told(fs::rename(at("f"), at("d"))),
        told(fs::rename(at("d"), at("d/inside"))),
        told(fs::rename(at("f"), at("d/g"))),
    ];
    for name in ["f", "d", "d/g", "s", "broken", "none"] {
        said.push(told(facts(&at(name))));
    }
    let rename2 = |from: &str, to: &str, flags| {
        told(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags).map_err(io::Error::from))
    };
    said.push(rename2("f", "s", RenameFlags::NOREPLACE));
    said.push(rename2("f", "s", RenameFlags::EXCHANGE));
    said.push(rename2("f", "none", RenameFlags::EXCHANGE));
    said.push(told(fs::read_link(at("f"))));
    let long = "n".repeat(256);
    said.push(told(fs::write(at(&long), "")));
    said.push(told(fs::write(at(&long[1..]), "long name")));
    let node = |name: &str, kind| {
        told(rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), 0).map_err(io::Error::from))
    };
    said.push(node("fifo", FileType::Fifo));
    said.push(node("fifo", FileType::Fifo));
    said.push(node("socket", FileType::Socket));
    said.push(told(facts(&at("fifo"))));
    said.push(told(names(dir)));
    said
}

/// Bytes and lengths of open files.
fn file_calls(dir: &Path) -> Vec<String> {
    let path = dir.join("file");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let mut said = vec![
        told(file.write_all(b"0123456789")),
        told(file.seek(SeekFrom::Start(4))),
        told(file.write_all(b"ab")),
        told(file.write_at(b"end", 5000)),
        told(file.metadata().map(|facts| facts.len())),
        told(file.seek(SeekFrom::End(-3))),
        told(file.set_len(4)),
        told(file.set_len(8)),
        told(file.read_at(&mut [0; 4], 100)),
    ];
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    said.push(told(file.read_to_end(&mut bytes)));
    said.push(format!("{bytes:?}"));
    let mut appends = OpenOptions::new().append(true).open(&path).unwrap();
    said.push(told(appends.write_all(b"appended")));
    said.push(told(fs::read(&path)));
    // An open file without a name.
    said.push(told(fs::remove_file(&path)));
    said.push(told(file.write_at(b"still", 0)));
    let mut still = [0; 5];
    said.push(told(file.read_at(&mut still, 0)));
    said.push(format!("{still:?} {:?}", file.metadata().map(|facts| facts.nlink()).ok()));
    said.push(told(fs::metadata(&path).map(drop)));
    // A file that replaces an open one.
    fs::write(dir.join("old"), "old").unwrap();
    let old = File::open(dir.join("old")).unwrap();
    fs::write(dir.join("new"), "new file").unwrap();
    said.push(told(fs::rename(dir.join("new"), dir.join("old"))));
    said.push(told(old.read_at(&mut still, 0)));
    said.push(told(fs::read_to_string(dir.join("old"))));
    said.push(told(OpenOptions::new().write(true).truncate(true).open(dir.join("old")).map(drop)));
    said.push(told(fs::metadata(dir.join("old")).map(|facts| facts.len())));
    let read_only = File::open(dir.join("old")).unwrap();
    said.push(told(read_only.write_at(b"x", 0)));
    said
}

/// Modes, owners and times.
fn attribute_calls(dir: &Path) -> Vec<String> {
    let path = dir.join("attributes");
    fs::write(&path, "x").unwrap();
    let mut said = Vec::new();
    for mode in [0o600, 0o4755, 0o2711, 0o1777, 0] {
        said.push(told(fs::set_permissions(&path, fs::Permissions::from_mode(mode))));
        said.push(told(fs::metadata(&path).map(|facts| format!("{:o}", facts.mode()))));
    }
    said.push(told(std::os::unix::fs::chown(&path, Some(1234), Some(567))));
    said.push(told(fs::metadata(&path).map(|facts| (facts.uid(), facts.gid()))));
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times =
        Timestamps { last_access: time(1000, 7), last_modification: time(2_000_000_000, 999_999_999) };
    said.push(told(rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).map_err(io::Error::from)));
    let seen = |facts: fs::Metadata| (facts.atime(), facts.atime_nsec(), facts.mtime(), facts.mtime_nsec());
    said.push(told(fs::metadata(&path).map(seen)));
    let before = fs::metadata(&path).unwrap();
    fs::write(&path, "longer").unwrap();
    let after = fs::metadata(&path).unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    said.push(format!("{} {}", before.mtime() == after.mtime(), (now - after.mtime()).abs() < 60));
    let set = rustix::fs::setxattr(&path, "user.a", b"value", rustix::fs::XattrFlags::CREATE);
    said.push(told(set.map_err(io::Error::from)));
    let again = rustix::fs::setxattr(&path, "user.a", b"value", rustix::fs::XattrFlags::CREATE);
    said.push(told(again.map_err(io::Error::from)));
    let mut value = [0; 16];
    said.push(told(rustix::fs::getxattr(&path, "user.a", &mut value).map_err(io::Error::from)));
    said.push(format!("{value:?}"));
    said.push(told(rustix::fs::getxattr(&path, "user.a", &mut [0; 2]).map_err(io::Error::from)));
    said.push(told(rustix::fs::removexattr(&path, "user.none").map_err(io::Error::from)));
    said
}

#[test]
fn needs_root_calls_on_a_mount_end_as_on_a_plain_directory() {
    let fixture = MountFixture::new(1);
    // Not in a directory of memory: those have no extended attributes of users on older kernels.
    let plain =
        tempfile::Builder::new().prefix("pario-plain-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    type Calls = fn(&Path) -> Vec<String>;
    for (name, calls) in
        [("names", name_calls as Calls), ("files", file_calls), ("attributes", attribute_calls)]
    {
        let (ours, theirs) = (fixture.dir(0).join(name), plain.path().join(name));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        let (ours, theirs) = (calls(&ours), calls(&theirs));
        for (number, (our, their)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(our, their, "{name}, call {number}");
        }
        assert_eq!(ours.len(), theirs.len());
    }
    fixture.end();
}

#[test]
fn needs_root_a_large_directory_is_listed_once_while_it_changes() {
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0);
    for number in 0..1500 {
        File::create(dir.join(format!("f{number}"))).unwrap();
    }
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        seen += 1;
    }
    assert_eq!((seen, fs::read_dir(dir).unwrap().count()), (1500, 0));
    fixture.end();
}

#[test]
fn needs_root_other_users_get_what_permission_bits_allow() {
    let mut fixture = MountFixture::new(0);
    let dir = fixture.mount("m", &["--allow-other"]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(dir.join("private"), "root's").unwrap();
    fs::set_permissions(dir.join("private"), fs::Permissions::from_mode(0o600)).unwrap();
    // The fixture's own directory is root's alone.
    fs::set_permissions(fixture.cli.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let script = "umask 027; echo mine > mine; mkdir dir; \
                  if cat private 2>/dev/null; then exit 1; fi; if rm -f private 2>/dev/null; then exit 2; fi; \
                  stat -c '%u %g %a' mine dir";
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]).current_dir(&dir);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "65534 65534 640\n65534 65534 750\n");
    fixture.end();
}
