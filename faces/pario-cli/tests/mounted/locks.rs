//! Locks of two mounts exclude each other; a process that waits for one can be killed.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::fixture::{MountFixture, eventually};

fn open(dir: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join("f")).unwrap()
}

#[test]
fn needs_root_locks_exclude_between_mounts_and_end_with_their_files() {
    let fixture = MountFixture::new(2);
    type Lock = fn(&File, FlockOperation) -> rustix::io::Result<()>;
    let kinds: [Lock; 2] = [
        |file, operation| rustix::fs::flock(file, operation),
        |file, operation| rustix::fs::fcntl_lock(file, operation),
    ];
    for lock in kinds {
        let (one, two) = (open(fixture.dir(0)), open(fixture.dir(1)));
        lock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(lock(&two, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
        lock(&one, FlockOperation::NonBlockingLockShared).unwrap();
        lock(&two, FlockOperation::NonBlockingLockShared).unwrap();
        assert_eq!(lock(&one, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
        lock(&two, FlockOperation::Unlock).unwrap();
        lock(&one, FlockOperation::LockExclusive).unwrap();
        drop(one);
        // The release of the file reaches its mount a little later than the close.
        eventually("the lock of a closed file ends", || {
            lock(&two, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    }
    fixture.end();
}

#[test]
fn needs_root_no_locked_increment_is_lost() {
    const EACH: u64 = 60;
    let fixture = MountFixture::new(2);
    fs::write(fixture.dir(0).join("counter"), "0").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = fixture.dir(thread % 2);
            scope.spawn(move || {
                let lock = open(dir);
                for _ in 0..EACH {
                    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
                    let count: u64 = fs::read_to_string(dir.join("counter")).unwrap().parse().unwrap();
                    fs::write(dir.join("counter"), (count + 1).to_string()).unwrap();
                    rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(fixture.dir(1).join("counter")).unwrap(), (4 * EACH).to_string());
    fixture.end();
}

/// More waits than the manager queues for one client: the holder can still lock and unlock, and each of them ends.
#[test]
fn needs_root_many_waits_do_not_keep_the_holder_from_locking() {
    const WAITS: usize = 150;
    let fixture = MountFixture::new(1);
    let dir = fixture.dir(0).to_owned();
    let held = open(&dir);
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let spawn = |lock: fn(&Path)| {
        let dir = dir.clone();
        std::thread::spawn(move || lock(&dir))
    };
    let wait = |dir: &Path| {
        let file = open(dir);
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    };
    // Not scoped: if a lock hangs, the end of the fixture ends it.
    let mut waits: Vec<_> = (0..WAITS).map(|_| spawn(wait)).collect();
    let others = spawn(|dir| {
        for number in 0..20 {
            let file = File::create(dir.join(format!("other{number}"))).unwrap();
            rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
            rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        }
    });
    eventually("other files are locked", || others.is_finished());
    others.join().unwrap();
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
    eventually("every wait ends", || waits.iter().all(|wait| wait.is_finished()));
    waits.drain(..).for_each(|wait| wait.join().unwrap());
    drop(held);
    fixture.end();
}

/// The kernel function that a process waits in.
fn waits_in(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default()
}

#[test]
fn needs_root_a_process_that_waits_for_a_lock_can_be_killed() {
    let fixture = MountFixture::new(2);
    // Record locks: python has them; flock: the command of util-linux.
    let python = "import fcntl,sys; f=open('f','r+'); fcntl.lockf(f, fcntl.LOCK_EX)";
    let programs: [&[&str]; 2] = [&["flock", "f", "true"], &["python3", "-c", python]];
    for (program, signal) in [(programs[0], 9), (programs[1], 9), (programs[0], 15)] {
        let held = open(fixture.dir(0));
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        rustix::fs::fcntl_lock(&held, FlockOperation::LockExclusive).unwrap();
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).current_dir(fixture.dir(1)).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        eventually("it waits in the kernel", || waits_in(child.id()).contains("request_wait_answer"));
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let mut status = None;
        eventually("it ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().signal(), Some(signal.as_raw()));
        // The cancelled wait got no lock.
        rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
        let other = open(fixture.dir(0));
        eventually("the lock is free", || {
            rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
    }
    fixture.end();
}

/// Locks of open file descriptions stay until their last descriptor is closed; those of the process end with its first close.
const DESCRIPTIONS: &str = "
import fcntl, os, struct, sys, time
def lock(fd, start, kind=fcntl.F_WRLCK):
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack('hhqqi', kind, 0, start, 10, 0))
def is_busy(fd, start):
    try:
        lock(fd, start)
    except BlockingIOError:
        return True
    lock(fd, start, fcntl.F_UNLCK)
    return False
def eventually_free(fd, start):
    end = time.monotonic() + 20
    while is_busy(fd, start):
        assert time.monotonic() < end, 'the lock did not end'
one, two = (os.path.join(dir, 'f') for dir in sys.argv[1:3])
near, far = os.open(one, os.O_RDWR | os.O_CREAT), os.open(two, os.O_RDWR)
lock(near, 0)
assert is_busy(far, 5), 'it excludes the other node'
os.close(os.dup(near))
assert is_busy(far, 5), 'a duplicate was closed'
os.close(os.open(one, os.O_RDWR))
assert is_busy(far, 5), 'another description was closed'
fcntl.lockf(near, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
assert is_busy(far, 105), 'a lock of the process excludes the other node'
assert is_busy(near, 105), 'and descriptions of its own'
os.close(os.open(one, os.O_RDWR))
eventually_free(far, 105)
os.close(near)
eventually_free(far, 5)
";

#[test]
fn needs_root_locks_of_descriptions_and_of_processes_end_as_posix_says() {
    let fixture = MountFixture::new(2);
    let mut command = Command::new("python3");
    let output = command.args(["-c", DESCRIPTIONS]).arg(fixture.dir(0)).arg(fixture.dir(1)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fixture.end();
}
