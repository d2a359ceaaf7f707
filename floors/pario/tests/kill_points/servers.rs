//! A server as the victim: clients that need it get an error, others continue; after `up`, or when it resumes, all acknowledged data is
//! present and the same handles work.

use pario_sys::kill_point::{Action, Point, PointRole};

use crate::clients::{check_regions, start_writer};
use crate::common::stage::Program;
use crate::fixture::{KillCase, KillFixture, SERVERS};
use crate::workers::{Busy, FileWorker, WorkKind};

/// Data of the dead client in the recovery of a writer.
const LEFT: u64 = 25;

/// The activity when the point is reached.
struct ServerCase {
    work: WorkKind,
    /// Number of the pass at which it triggers.
    count: u64,
    /// A reader opens the file that is written.
    looked_at: bool,
    /// A client dies.
    deserted: bool,
}

fn scene(point: Point) -> ServerCase {
    let records = || WorkKind::records("wide", Some(0));
    let plain = |work, count| ServerCase { work, count, looked_at: false, deserted: false };
    match point {
        Point::OfferTaken => plain(WorkKind::Fresh, 3),
        Point::LendAsked | Point::LendOpened | Point::LendSent => plain(WorkKind::Direct, 3),
        Point::CutObject | Point::CutNoted | Point::CutCarried => plain(WorkKind::Cut, 3),
        Point::RemoveObject | Point::RemoveNoted | Point::RemoveCarried => plain(WorkKind::Remove, 3),
        Point::LockGranted | Point::UnlockHeard => plain(WorkKind::locked("wide", 0), 5),
        Point::NamesFrozen | Point::NamesApplied => plain(WorkKind::Name, 1),
        Point::LogUnwritten | Point::LogWritten => plain(WorkKind::Name, 8),
        Point::LogUnsynced | Point::LogSynced => plain(WorkKind::Name, 3),
        Point::GrantNoted | Point::RecallDecided | Point::RecallSent | Point::ReturnNoted => {
            ServerCase { looked_at: true, ..plain(records(), 3) }
        }
        Point::SettleBegun | Point::SettleDrained | Point::SettleMeasured | Point::SettleGrown => {
            ServerCase { deserted: true, ..plain(records(), 1) }
        }
        _ => plain(records(), 5),
    }
}

pub fn case(case: KillCase) {
    let (victim, scene) = (usize::from(case.point.role() == PointRole::Server), scene(case.point));
    let Some(stand) = KillFixture::with_server(case, victim, scene.count) else { return };
    let stage = &stand.stage;
    let mut kept = FileWorker::new(stage, "kept", WorkKind::Fresh);
    kept.round().unwrap();
    let process = stage.server_pid(victim);
    let deserter = scene.deserted.then(|| deserter(&stand));
    let second = match &scene.work {
        WorkKind::Records { path, .. } => WorkKind::records(path, Some(1)),
        WorkKind::Locked { path, .. } => WorkKind::locked(path, 1),
        other => other.clone(),
    };
    let hands = [FileWorker::new(stage, "first", scene.work), FileWorker::new(stage, "second", second)];
    let beside = beside(&stand, (victim + 1) % SERVERS);
    let looker =
        scene.looked_at.then(|| FileWorker::new(stage, "looker", WorkKind::Look { path: "wide".into() }));
    stand.go();
    let busy = hands.map(Busy::start);
    let (beside, looker) = (Busy::start(beside), looker.map(Busy::start));
    if let Some(program) = deserter {
        assert_eq!(program.kill(LEFT), LEFT);
    }
    stand.reached_by(process);
    let mut hands: Vec<FileWorker> =
        busy.into_iter().chain(looker).map(|busy| busy.told_of(victim)).collect();
    // Names and leases belong to the manager: without it every worker gets an error, or has all that it needs.
    hands.push(if victim == 0 {
        beside.end_or_told_of(victim)
    } else {
        beside.gets_on();
        beside.end()
    });
    hands.push(kept);
    bring_back(&stand, victim, process);
    for hand in &hands {
        hand.check(&stage.mount());
    }
    if scene.deserted {
        check_regions(&stage.mount(), "left", LEFT);
    }
    for hand in &mut hands {
        hand.goes_on();
    }
    let reader = stage.mount();
    for hand in &hands {
        hand.check(&reader);
    }
    drop(hands);
    stand.is_healthy();
}

/// A client that has written and is about to die. Records for the manager would be lost with the manager, so it wrote to the other server.
fn deserter(stand: &KillFixture) -> Program {
    let options = stand.stage.mount();
    let options = options.options().write(true).create(true).stripe_count(1).first_server(1);
    options.open("left").unwrap().close().unwrap();
    let mut program = start_writer(stand, &format!("left {LEFT} records"), &[]);
    while program.number().expect("it writes") < LEFT {}
    program
}

fn beside(stand: &KillFixture, server: usize) -> FileWorker {
    let partition = stand.stage.mount();
    let options = partition.options().write(true).create(true).stripe_count(1);
    options.first_server(u16::try_from(server).unwrap()).open("beside").unwrap().close().unwrap();
    FileWorker::new(&stand.stage, "beside", WorkKind::records("beside", None))
}

fn bring_back(stand: &KillFixture, victim: usize, process: u32) {
    match stand.case.action {
        Action::Kill => stand.stage.up(),
        Action::Hang => unreachable!("the cases kill and stop; tests of the command hang a server"),
        Action::Stop => {
            assert_eq!(stand.stage.server_pid(victim), process, "it was not replaced");
            stand.go_on(process);
        }
    }
}
