//! A server as the victim: who needs it is told, who does not goes on; after `up`, or when it goes on, everything acknowledged is
//! there and the same handles work.

use pario_sys::kill_point::{Action, Point, Role};

use crate::clients::{check_regions, start_writer};
use crate::common::stage::Program;
use crate::hands::{Busy, Hand, Work};
use crate::stand::{Case, SERVERS, Stand};

/// What the dead client of a settling had written.
const LEFT: u64 = 25;

/// What is going on when the point is reached.
struct Scene {
    work: Work,
    /// The how-many-th passing.
    count: u64,
    /// Somebody looks at the file that is written.
    looked_at: bool,
    /// A client dies.
    deserted: bool,
}

fn scene(point: Point) -> Scene {
    let records = || Work::records("wide", Some(0));
    let plain = |work, count| Scene { work, count, looked_at: false, deserted: false };
    match point {
        Point::OfferTaken => plain(Work::Fresh, 3),
        Point::LendAsked | Point::LendOpened | Point::LendSent => plain(Work::Direct, 3),
        Point::CutObject | Point::CutNoted | Point::CutCarried => plain(Work::Cut, 3),
        Point::RemoveObject | Point::RemoveNoted | Point::RemoveCarried => plain(Work::Remove, 3),
        Point::LockGranted | Point::UnlockHeard => plain(Work::locked("wide", 0), 5),
        Point::NamesFrozen | Point::NamesApplied => plain(Work::Name, 1),
        Point::LogUnwritten | Point::LogWritten => plain(Work::Name, 8),
        Point::LogUnsynced | Point::LogSynced => plain(Work::Name, 3),
        Point::GrantNoted | Point::RecallDecided | Point::RecallSent | Point::ReturnNoted => {
            Scene { looked_at: true, ..plain(records(), 3) }
        }
        Point::SettleBegun | Point::SettleDrained | Point::SettleMeasured | Point::SettleGrown => {
            Scene { deserted: true, ..plain(records(), 1) }
        }
        _ => plain(records(), 5),
    }
}

pub fn case(case: Case) {
    let (victim, scene) = (usize::from(case.point.role() == Role::Server), scene(case.point));
    let Some(stand) = Stand::with_server(case, victim, scene.count) else { return };
    let stage = &stand.stage;
    let mut kept = Hand::new(stage, "kept", Work::Fresh);
    kept.round().unwrap();
    let process = stage.server_pid(victim);
    let deserter = scene.deserted.then(|| deserter(&stand));
    let second = match &scene.work {
        Work::Records { path, .. } => Work::records(path, Some(1)),
        Work::Locked { path, .. } => Work::locked(path, 1),
        other => other.clone(),
    };
    let hands = [Hand::new(stage, "first", scene.work), Hand::new(stage, "second", second)];
    let beside = beside(&stand, (victim + 1) % SERVERS);
    let looker = scene.looked_at.then(|| Hand::new(stage, "looker", Work::Look { path: "wide".into() }));
    stand.go();
    let busy = hands.map(Busy::start);
    let (beside, looker) = (Busy::start(beside), looker.map(Busy::start));
    if let Some(program) = deserter {
        assert_eq!(program.kill(LEFT), LEFT);
    }
    stand.reached_by(process);
    let mut hands: Vec<Hand> = busy.into_iter().chain(looker).map(|busy| busy.told_of(victim)).collect();
    // Names and leases are the manager's: without it everybody is told, or has all that is needed.
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

/// A client that has written and is about to die. What it left for the manager would die with that one, so it wrote to the other.
fn deserter(stand: &Stand) -> Program {
    let options = stand.stage.mount();
    let options = options.options().write(true).create(true).stripe_count(1).first_server(1);
    options.open("left").unwrap().close().unwrap();
    let mut program = start_writer(stand, &format!("left {LEFT} records"), &[]);
    while program.number().expect("it writes") < LEFT {}
    program
}

fn beside(stand: &Stand, server: usize) -> Hand {
    let partition = stand.stage.mount();
    let options = partition.options().write(true).create(true).stripe_count(1);
    options.first_server(u16::try_from(server).unwrap()).open("beside").unwrap().close().unwrap();
    Hand::new(&stand.stage, "beside", Work::records("beside", None))
}

fn bring_back(stand: &Stand, victim: usize, process: u32) {
    match stand.case.action {
        Action::Kill => stand.stage.up(),
        Action::Stop => {
            assert_eq!(stand.stage.server_pid(victim), process, "nobody has replaced it");
            stand.go_on(process);
        }
    }
}
