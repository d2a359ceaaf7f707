//! A client as the victim: a killed client is cleaned up and each of its returned writes is present; a stopped client is waited for, never
//! fenced, and continues where it stopped.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use pario::Partition;
use pario_sys::kill_point::{Action, DIRECTORY, Point};
use rustix::process::Signal;

use crate::common::difference;
use crate::common::stage::{Program, job, mounted, pause, say, until};
use crate::fixture::{KillCase, KillFixture};
use crate::workers::{Busy, FileWorker, REGION, WorkKind, bytes_of};

/// Writes of a victim that survives to do all of them.
const TOTAL: u64 = 40;
/// Its output when it has closed its file.
const CLOSED: u64 = 1_000_000;
/// Direct writes are beyond all records.
const DIRECT_AT: u64 = 64 << 20;
const DIRECT: usize = 512 << 10;
const WHO: &str = "victim";

/// The rest of the write that the victim was executing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InterruptedWrite {
    /// Not a byte.
    Nothing,
    /// All of it.
    Whole,
    /// Any part: it is several pieces.
    Parts,
}

struct ClientFixture {
    /// `records` or `direct`.
    way: &'static str,
    count: u64,
    /// Writes that have returned when the point is reached.
    returned: u64,
    rest: InterruptedWrite,
    /// Reached by a recall of the lease, when all data is written.
    recalled: bool,
    /// Still holds its lease there.
    holds: bool,
}

fn scene(point: Point) -> ClientFixture {
    let at = |count, returned, rest| ClientFixture {
        way: "records",
        count,
        returned,
        rest,
        recalled: false,
        holds: true,
    };
    let recalled = |holds| ClientFixture { recalled: true, holds, ..at(1, TOTAL, InterruptedWrite::Nothing) };
    match point {
        // By then the ring has wrapped around more than once.
        Point::CommitBegun | Point::CommitFloor | Point::CommitBytes | Point::CommitHead => {
            at(30, 29, InterruptedWrite::Nothing)
        }
        Point::CommitTail | Point::CommitTold => at(30, 29, InterruptedWrite::Whole),
        Point::OfferAnswered | Point::GrantReceived => at(1, 0, InterruptedWrite::Nothing),
        // Two pieces a write.
        Point::LendReceived => ClientFixture { way: "direct", ..at(1, 0, InterruptedWrite::Parts) },
        Point::DirectWritten => ClientFixture { way: "direct", ..at(5, 2, InterruptedWrite::Parts) },
        Point::RecallHeard | Point::RecallDrained => recalled(true),
        Point::RecallReturned => recalled(false),
        other => panic!("{other:?} is not a client's"),
    }
}

/// The program that is the victim: `PATH TOTAL WAY`.
pub fn victim() {
    let Some(job) = job() else { return };
    let words: Vec<&str> = job.split(' ').collect();
    let (path, total, way) = (words[0], words[1].parse::<u64>().unwrap(), words[2]);
    let finish = std::env::var_os(DIRECTORY).map(|dir| Path::new(&dir).join("finish"));
    let file = mounted().options().write(true).open(path).unwrap();
    for number in 0..total {
        let (at, bytes) = place(way, number);
        file.write_at(at, &bytes_of(WHO, number, bytes)).unwrap();
        say(number + 1);
    }
    while !finish.as_ref().is_some_and(|finish| finish.exists()) {
        pause(Duration::from_millis(5));
    }
    file.close().unwrap();
    say(CLOSED);
}

fn place(way: &str, number: u64) -> (u64, usize) {
    match way {
        "direct" => (DIRECT_AT + number * DIRECT as u64, DIRECT),
        _ => (number * 2 * REGION as u64, REGION),
    }
}

pub fn start_writer(stand: &KillFixture, job: &str, more: &[(&str, &OsStr)]) -> Program {
    let [_, (directory, dir)] = stand.arming(None, 1);
    let env: Vec<(&str, &OsStr)> = more.iter().copied().chain([(directory, dir.as_os_str())]).collect();
    Program::start_with(&stand.stage, "victim", job, &env)
}

/// Returned writes of a victim are present.
pub fn check_regions(reader: &Partition, path: &str, returned: u64) {
    check(reader, (path, "records"), returned);
}

fn check(reader: &Partition, (path, way): (&str, &str), returned: u64) {
    let file = reader.open(path).unwrap();
    for number in 0..returned {
        let (at, bytes) = place(way, number);
        let mut found = vec![0; bytes];
        file.read_exact_at(at, &mut found).unwrap_or_else(|error| panic!("write {number}: {error}"));
        if let Some(what) = difference(&bytes_of(WHO, number, bytes), &found) {
            panic!("write {number} of {returned} that returned: {what}");
        }
    }
}

fn check_rest(reader: &Partition, way: &str, number: u64, rest: InterruptedWrite) {
    let (at, bytes) = place(way, number);
    let mut found = vec![0; bytes];
    let count = reader.open("shared").unwrap().read_at(at, &mut found).unwrap();
    found.truncate(count);
    let expected = bytes_of(WHO, number, bytes);
    match rest {
        InterruptedWrite::Nothing => {
            assert!(found.iter().all(|byte| *byte == 0), "a half-made record left a trace")
        }
        InterruptedWrite::Whole => {
            assert_eq!(difference(&expected, &found), None, "a committed record is drained")
        }
        InterruptedWrite::Parts => {
            let foreign = found.iter().zip(&expected).position(|(f, e)| *f != 0 && f != e);
            assert_eq!(foreign, None, "a byte that was never written");
        }
    }
}

pub fn case(case: KillCase) {
    let scene = scene(case.point);
    let Some(stand) = KillFixture::with_client(case) else { return };
    let stage = &stand.stage;
    let mut kept = FileWorker::new(stage, "kept", WorkKind::Fresh);
    kept.round().unwrap();
    let beside = Busy::start(FileWorker::new(stage, "beside", WorkKind::records("beside", None)));
    let stripe_bytes = if scene.way == "direct" { 256 << 10 } else { 16 << 10 };
    let options = stage.mount().options().write(true).create(true).stripe_bytes(stripe_bytes);
    options.open("shared").unwrap().close().unwrap();
    if !scene.recalled {
        stand.go();
    }
    let env = stand.arming(None, scene.count);
    let env: Vec<(&str, &OsStr)> = env.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    let mut program = start_writer(&stand, &format!("shared {TOTAL} {}", scene.way), &env);
    let process = program.pid();
    if scene.recalled {
        while program.number().expect("it writes") < TOTAL {}
        stand.go();
    }
    // The direct path needs a single user of a file: the neighbour comes later.
    let neighbour = || Busy::start(FileWorker::new(stage, "neighbour", WorkKind::records("shared", Some(1))));
    let early = (scene.way == "records" && scene.returned != 0).then(neighbour);
    let reader = scene.recalled.then(|| VictimReader::start(&stand, scene.way));
    stand.reached_by(process);
    beside.gets_on();
    let neighbour = early.unwrap_or_else(neighbour);
    let reader = reader.unwrap_or_else(|| VictimReader::start(&stand, scene.way));
    match case.action {
        Action::Kill => killed(&stand, &scene, program),
        Action::Stop => stopped(&stand, &scene, program, &reader),
        Action::Hang => unreachable!("the cases kill and stop; tests of the command hang a server"),
    }
    reader.end();
    neighbour.gets_on();
    beside.gets_on();
    let hands = [neighbour.end(), beside.end(), kept];
    let later = stage.mount();
    for hand in &hands {
        hand.check(&later);
    }
    drop(hands);
    stand.is_healthy();
}

fn killed(stand: &KillFixture, scene: &ClientFixture, program: Program) {
    let (said, status) = program.end(0);
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status:?}");
    // A recalled client had printed everything before, and the test received it.
    assert_eq!(said, if scene.recalled { 0 } else { scene.returned });
    let reader = stand.stage.mount();
    check(&reader, ("shared", scene.way), scene.returned);
    if scene.returned < TOTAL {
        check_rest(&reader, scene.way, scene.returned, scene.rest);
    }
}

fn stopped(stand: &KillFixture, scene: &ClientFixture, program: Program, reader: &VictimReader) {
    if scene.holds {
        let named = format!("process {} ", program.pid());
        assert!(
            until(|| stand.waited_for().contains(&named)),
            "{} is not reported as waited for",
            program.pid()
        );
        assert!(!reader.thread.is_finished(), "a stopped client's lease was taken away");
    } else {
        assert!(until(|| reader.thread.is_finished()), "a returned lease is still waited for");
    }
    stand.go_on(program.pid());
    stand.note("finish");
    let (said, status) = program.end(0);
    assert!(status.success() && said == CLOSED, "{status:?}, {said}");
    check(&stand.stage.mount(), ("shared", scene.way), TOTAL);
}

/// A reader of the file that the victim writes.
struct VictimReader {
    thread: std::thread::JoinHandle<()>,
}

impl VictimReader {
    fn start(stand: &KillFixture, way: &str) -> VictimReader {
        let partition = stand.stage.mount();
        let (at, _) = place(way, 0);
        let thread = std::thread::spawn(move || {
            let file = partition.open("shared").unwrap();
            file.read_at(at, &mut [0; 1000]).unwrap();
        });
        VictimReader { thread }
    }

    fn end(self) {
        assert!(until(|| self.thread.is_finished()), "a read does not return");
        self.thread.join().unwrap();
    }
}
