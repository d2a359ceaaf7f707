//! Power cuts at any time, with any legal loss: the names open, and have every change up to some time, none after it, and that time is not
//! before the last acknowledged sync.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pario_core::SessionId;
use pario_store::{RealDisk, RecordingDisk};
use proptest::prelude::*;

use super::model::{Thing, TreeModel, any_path, read_tree};
use super::world::{LAZY, NamesFixture};
use crate::names::LedgerPace;

/// Memtables of a few changes: most cuts interrupt the creation of a log, a transaction of redb or the removal of a log.
const BUSY: LedgerPace = LedgerPace {
    sync_after: Duration::from_millis(1),
    apply_after: Duration::from_millis(1),
    apply_bytes: 1500,
    memtable_bytes_max: 4000,
    ..LAZY
};

/// State at one time of the recording.
struct CutPoint {
    /// Disk operations so far.
    events: usize,
    /// Changes begun.
    begun: usize,
    /// Changes that a sync had acknowledged.
    synced: usize,
}

/// A run on a disk that records, with the tree after each change.
struct Recorded {
    disk: Arc<RecordingDisk>,
    trees: Vec<BTreeMap<String, Thing>>,
    moments: Vec<CutPoint>,
    _world: NamesFixture,
}

#[derive(Clone, Debug)]
enum PowerCutStep {
    Line(String),
    Sync,
    Restart,
}

fn any_step() -> impl Strategy<Value = PowerCutStep> {
    let one = proptest::sample::select(vec!["create", "create", "mkdir", "mkdir", "remove", "rmdir"]);
    prop_oneof![
        10 => (one, any_path()).prop_map(|(verb, path)| PowerCutStep::Line(format!("{verb} {path}"))),
        4 => (any_path(), any_path()).prop_map(|(from, to)| PowerCutStep::Line(format!("rename {from} {to}"))),
        2 => Just(PowerCutStep::Sync),
        1 => Just(PowerCutStep::Restart),
    ]
}

fn record(steps: Vec<PowerCutStep>, pace: LedgerPace) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let mut world = NamesFixture::on(dir, pace, Arc::<RecordingDisk>::clone(&disk));
    let mut model = TreeModel::default();
    let mut trees = vec![model.root.clone()];
    let mut moments = vec![CutPoint { events: 0, begun: 0, synced: 0 }];
    let mut synced = 0;
    for step in steps {
        match step {
            PowerCutStep::Line(line) => {
                moments.push(CutPoint { events: disk.events(), begun: trees.len(), synced });
                let result = world.run(&line).map(|_| ()).map_err(|fault| fault.code);
                assert_eq!(result, model.run(&line), "{line}");
                trees.push(model.root.clone());
            }
            PowerCutStep::Sync => {
                world.sync().unwrap();
                synced = trees.len() - 1;
                moments.push(CutPoint { events: disk.events(), begun: synced, synced });
            }
            PowerCutStep::Restart => world.reopen(),
        }
    }
    moments.push(CutPoint { events: disk.events(), begun: trees.len() - 1, synced });
    Recorded { disk, trees, moments, _world: world }
}

impl Recorded {
    fn check_cut(&self, events: usize, seed: u64) {
        let dir = tempfile::tempdir().unwrap();
        self.disk.power_cut(events, seed, dir.path()).unwrap();
        let mut world = NamesFixture::on(dir, LAZY, RealDisk::shared());
        // Its requests are new ones, not repetitions of those before the cut.
        world.session = SessionId(8);
        let found = read_tree(&mut world, "/", &mut 0);
        let known = self.moments.iter().rfind(|moment| moment.events <= events).unwrap();
        let legal = &self.trees[known.synced..=known.begun.min(self.trees.len() - 1)];
        assert!(
            legal.contains(&found),
            "cut after {events} things, seed {seed}: {found:?} is none of the trees {}..={}: {legal:?}",
            known.synced,
            known.begun
        );
        // The opened names can be used, and stay as they are.
        world.run("create after-the-cut").unwrap();
        world.reopen();
        world.run("remove after-the-cut").unwrap();
        assert_eq!(read_tree(&mut world, "/", &mut 0), found);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_power_cut_leaves_a_past_state_not_before_the_last_sync(
        steps in proptest::collection::vec(any_step(), 1..60),
        busy in any::<bool>(),
        cuts in proptest::collection::vec((0.0..=1.0, any::<u64>()), 12),
    ) {
        let recorded = record(steps, if busy { BUSY } else { LAZY });
        let events = recorded.disk.events();
        for (part, seed) in cuts {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small number")]
            recorded.check_cut((part * events as f64) as usize, seed);
        }
    }
}
