//! A holder of locks as the victim: a killed holder delays no other, a stopped holder is waited for, by name; no count is lost.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pario::core::Code;
use pario::{File, LockOptions, Partition};
use pario_sys::kill_point::{Action, DIRECTORY, Point};

use crate::common::stage::{Program, job, mounted, pause, say, until};
use crate::fixture::{KillCase, KillFixture};

const PATH: &str = "counter";

/// Kill points of a lock on the client's side.
pub const POINTS: [Point; 3] = [Point::LockReceived, Point::LockRecallHeard, Point::LockReturned];

/// Adds one to the number in the file, under an exclusive lock.
fn count(file: &File) -> pario::Result<()> {
    let guard = file.lock(0..8, &LockOptions::exclusive())?;
    let mut bytes = [0; 8];
    file.read_exact_at(0, &mut bytes)?;
    file.write_at(0, &(u64::from_le_bytes(bytes) + 1).to_le_bytes())?;
    guard.unlock()
}

fn open(partition: &Partition) -> File {
    partition.options().read(true).write(true).open(PATH).unwrap()
}

/// The victim program: counts until it is stopped, and prints how often it has.
pub fn victim() {
    if job().is_none() {
        return;
    }
    let finish = std::env::var_os(DIRECTORY).map(|dir| Path::new(&dir).join("finish"));
    let partition = mounted();
    let file = open(&partition);
    let mut counted = 0;
    while !finish.as_ref().is_some_and(|finish| finish.exists()) {
        count(&file).unwrap();
        counted += 1;
        say(counted);
        pause(Duration::from_millis(1));
    }
    file.close().unwrap();
}

pub fn case(case: KillCase) {
    let Some(stand) = KillFixture::with_client(case) else { return };
    let stage = &stand.stage;
    let partition = stage.mount();
    let file = partition.create(PATH).unwrap();
    file.write_at(0, &[0; 8]).unwrap();
    file.close().unwrap();
    let env = stand.arming(None, 4);
    let env: Vec<(&str, &OsStr)> = env.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    let mut program = Program::start_with(stage, "locker", "count", &env);
    let process = program.pid();
    assert!(program.number().is_some_and(|number| number == 1), "it counts");
    stand.go();
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let neighbour = {
        let (partition, over, done) = (stage.mount(), Arc::clone(&over), Arc::clone(&done));
        std::thread::spawn(move || {
            let file = open(&partition);
            while !over.load(Ordering::Relaxed) {
                count(&file).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
                pause(Duration::from_millis(1));
            }
            file.close().unwrap();
        })
    };
    stand.reached_by(process);
    let gets_on = || {
        let before = done.load(Ordering::Relaxed);
        assert!(until(|| before + 5 < done.load(Ordering::Relaxed)), "the neighbour does not get on");
    };
    let said = match case.action {
        Action::Hang => unreachable!("the cases kill and stop; tests of the command hang a server"),
        Action::Kill => {
            gets_on();
            program.end(1).0
        }
        Action::Stop => {
            if case.point == Point::LockReceived {
                is_waited_for(&stand, process);
            }
            stand.go_on(process);
            gets_on();
            stand.note("finish");
            let (said, status) = program.end(1);
            assert!(status.success(), "{status:?}");
            said
        }
    };
    over.store(true, Ordering::Relaxed);
    neighbour.join().unwrap();
    let mut bytes = [0; 8];
    open(&stage.mount()).read_exact_at(0, &mut bytes).unwrap();
    let (total, others) = (u64::from_le_bytes(bytes), done.load(Ordering::Relaxed));
    // A client killed between its write and its output has counted too.
    let more = u64::from(case.action == Action::Kill);
    assert!((said..=said + more).contains(&(total - others)), "{total} counted, {others} + {said} said");
    stand.is_healthy();
}

/// A stopped holder keeps its lock; a waiter sees its name, and a wait with a limit ends with that name.
fn is_waited_for(stand: &KillFixture, process: u32) {
    let named = format!("process {process} ");
    let shown = || {
        let output = stand.stage.command(&["status", "--locks", "stage"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(
        until(|| shown().lines().any(|line| line.contains("waits") && line.contains(&named))),
        "{}",
        shown()
    );
    let partition = stand.stage.mount();
    let limit = Duration::from_millis(50);
    let error = open(&partition).lock(0..1, &LockOptions::shared().limit(limit)).unwrap_err();
    assert_eq!(error.code(), Code::TimedOut);
    assert!(error.to_string().contains(&named), "{error}");
}
