//! A registry in a directory where other users make entries: planted files are refused, and no call hangs.

use super::*;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::mpsc;

/// Longest time that a call may take before the test calls it a hang.
const HANG_LIMIT: Duration = Duration::from_secs(20);

/// A sticky directory that all users can write, as `/tmp`, and a registry in it.
fn sticky() -> (tempfile::TempDir, Registry) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let registry = Registry::open(&dir.path().join("registry"));
    (dir, registry)
}

fn within_limit<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(HANG_LIMIT).expect("the call returns")
}

fn change(registry: &Registry) -> Result<(), RegistryError> {
    let registry = registry.clone();
    within_limit(move || {
        registry.update(|entries| {
            entries.push(crate::partition::entry::tests::sample("a", 1));
            Ok(())
        })
    })
}

fn list(registry: &Registry) -> Result<Vec<RegistryEntry>, RegistryError> {
    let registry = registry.clone();
    within_limit(move || registry.list())
}

#[track_caller]
fn check_line(error: &RegistryError, parts: &[&str]) {
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)) && !text.contains('\n'), "{text}");
}

#[test]
fn a_fifo_in_place_is_refused_at_once() {
    for suffix in ["", ".lock"] {
        let (dir, registry) = sticky();
        let path = disk::beside(registry.path(), suffix);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
        let place = path.display().to_string();
        check_line(
            &change(&registry).unwrap_err(),
            &[&place, "a FIFO of user", "have it removed", "PARIO_REGISTRY"],
        );
        if suffix.is_empty() {
            check_line(&list(&registry).unwrap_err(), &[&place, "a FIFO of user"]);
        }
        drop(dir);
    }
}

#[test]
fn a_symbolic_link_in_place_of_the_lock_is_refused_and_its_target_kept() {
    let (dir, registry) = sticky();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let lock = disk::beside(registry.path(), ".lock");
    symlink(&victim, &lock).unwrap();
    check_line(
        &change(&registry).unwrap_err(),
        &[&lock.display().to_string(), "a symbolic link of user", "have it removed"],
    );
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn needs_root_what_another_user_put_in_place_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to make what belongs to another user");
        return;
    }
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    let (_dir, registry) = sticky();
    let lock = disk::beside(registry.path(), ".lock");
    let held = fs::File::create(&lock).unwrap();
    give(&lock);
    // Also locked by the other user: refused because of its owner, without a wait.
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    check_line(
        &change(&registry).unwrap_err(),
        &[&lock.display().to_string(), "a file of user 65534", "of user 0 is expected", "PARIO_REGISTRY"],
    );
    fs::remove_file(&lock).unwrap();
    fs::write(registry.path(), "").unwrap();
    give(registry.path());
    for error in [change(&registry).unwrap_err(), list(&registry).unwrap_err()] {
        check_line(
            &error,
            &[&registry.path().display().to_string(), "belongs to user 65534", "PARIO_REGISTRY"],
        );
    }
    fs::remove_file(registry.path()).unwrap();
    symlink("/etc/hostname", registry.path()).unwrap();
    give(registry.path());
    let registry = Registry::open(registry.path());
    check_line(
        &list(&registry).unwrap_err(),
        &["registry: a symbolic link of user 65534", "have it removed"],
    );
}

const HOLDER: &str = "PARIO_TEST_REGISTRY_HOLDER";

/// Not a test of its own: a child process that holds the lock of a registry until its input ends.
#[test]
fn child_holds_the_lock() {
    let Ok(path) = std::env::var(HOLDER) else { return };
    let registry = Registry::open(Path::new(&path));
    let _lock = registry.lock(&registry.make_directory().unwrap()).unwrap();
    println!("locked");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_lock_of_another_process_is_waited_for_within_a_limit_and_named() {
    let (_dir, registry) = sticky();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "partition::registry::planted_tests::child_holds_the_lock"])
        .env(HOLDER, registry.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !seen.ends_with(b"locked") && output.read(&mut byte).unwrap() == 1 {
        seen.push(byte[0]);
    }
    let refused = change(&registry.clone().with_lock_limit(Duration::from_millis(1200)));
    // The child ends with its input, after success or failure below.
    drop(child.stdin.take());
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    let holder = format!("process {}", child.id());
    check_line(&refused.unwrap_err(), &["has been locked for 1.2 s", &holder, "end that process"]);
    change(&registry).unwrap();
    assert_eq!(list(&registry).unwrap().len(), 1);
}
