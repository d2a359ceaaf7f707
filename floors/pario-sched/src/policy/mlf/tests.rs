//! The base algorithm step by step, as in the paper's Figure 3.
//!
//! Two processes read file 1 in strides of 128 KiB, two read files 2 and 3 one request after the other; all requests have 32 KiB and the
//! base quantum is 32 KiB. The single requests are served in each round while the strides merge, add up their quanta, and are served as
//! one request in the round in which the quantum covers them.

use std::collections::BTreeMap;

use super::Mlf;
use crate::aggregate::{Bundles, OffsetQueue, QueueChange};
use crate::options::Options;
use crate::policy::{Joins, Policy, PolicyChoice};
use crate::request::{ApplicationId, FileId, Request, RequestId};

const KIB: u64 = 1024;

/// A file's range in KiB.
type Range = (u64, u64, u64);

struct Toy {
    mlf: Mlf,
    bundles: Bundles,
    queues: BTreeMap<u64, OffsetQueue>,
    sequence: u64,
}

impl Toy {
    fn new() -> Self {
        let mut options = Options::default();
        options.quantum.adaptive = false;
        let (mlf, bundles) = (Mlf::new(&options), Bundles::new(&options, Joins::File));
        Self { mlf, bundles, queues: BTreeMap::new(), sequence: 0 }
    }

    fn post(&mut self, (file, at_kib): (u64, u64)) {
        let id = RequestId { sequence: self.sequence, slot: 0 };
        self.sequence += 1;
        let request = Request::read(FileId(file), ApplicationId(file), at_kib * KIB, 32 * KIB, 0);
        match self.bundles.insert(self.queues.entry(file).or_default(), id, &request) {
            QueueChange::New(new) => self.mlf.insert(&new, 0),
            QueueChange::Grown(grown) => self.mlf.update(&grown, 0),
            QueueChange::Merged { into, gone } => self.mlf.merge(&into, &gone, 0),
        }
    }

    fn serve(&mut self) -> Option<Range> {
        let PolicyChoice::Serve(id) = self.mlf.pick(0) else { return None };
        let of = self.bundles.of(id);
        self.bundles.take(self.queues.get_mut(&of.file.0)?, id);
        Some((of.file.0, of.start / KIB, of.end / KIB))
    }

    /// Waiting requests, with their quanta in KiB.
    fn waiting(&self) -> Vec<(Range, u64)> {
        let mut waiting = self.mlf.rounds.quanta();
        waiting.sort_unstable_by_key(|(of, _)| (of.file, of.start));
        let tell = |(of, quantum): &(super::rounds::Brief, u64)| {
            ((of.file.0, of.start / KIB, of.end / KIB), quantum / KIB)
        };
        waiting.iter().map(tell).collect()
    }
}

#[test]
fn figure_3_step_by_step() {
    type Step = (&'static [(u64, u64)], Range, &'static [(Range, u64)]);
    // Arrivals before the round, request served by the round, requests waiting after it.
    let steps: [Step; 8] = [
        (
            &[(1, 0), (1, 32), (1, 64), (1, 96), (2, 0), (3, 0)],
            (2, 0, 32),
            &[((1, 0, 128), 32), ((3, 0, 32), 32)],
        ),
        (
            &[(1, 160), (1, 192), (1, 224), (2, 32)],
            (3, 0, 32),
            &[((1, 0, 128), 64), ((1, 160, 256), 32), ((2, 32, 64), 32)],
        ),
        // The missing piece arrives with a quantum of 0 and joins both: 64 + 32 + 0, and 32 for this round.
        (&[(1, 128), (3, 32)], (2, 32, 64), &[((1, 0, 256), 128), ((3, 32, 64), 32)]),
        (&[(2, 64)], (3, 32, 64), &[((1, 0, 256), 160), ((2, 64, 96), 32)]),
        (&[(3, 64)], (2, 64, 96), &[((1, 0, 256), 192), ((3, 64, 96), 32)]),
        (&[(2, 96)], (3, 64, 96), &[((1, 0, 256), 224), ((2, 96, 128), 32)]),
        (&[(3, 96)], (1, 0, 256), &[((2, 96, 128), 64), ((3, 96, 128), 32)]),
        (&[], (2, 96, 128), &[((3, 96, 128), 64)]),
    ];
    let mut toy = Toy::new();
    for (round, (arrivals, served, waiting)) in steps.iter().enumerate() {
        arrivals.iter().for_each(|arrival| toy.post(*arrival));
        assert_eq!(toy.serve(), Some(*served), "round {}", round + 1);
        assert_eq!(toy.waiting(), *waiting, "after round {}", round + 1);
    }
}

#[test]
fn rounds_that_serve_nobody_are_counted_and_not_played() {
    let mut toy = Toy::new();
    (0..16).for_each(|at| toy.post((1, at * 32)));
    toy.post((2, 0));
    assert_eq!(toy.serve(), Some((2, 0, 32)));
    assert_eq!(toy.waiting(), [((1, 0, 512), 32)]);
    // No request is covered in rounds 2 to 15; the next choice is round 16.
    assert_eq!(toy.serve(), Some((1, 0, 512)));
    toy.post((1, 0));
    toy.post((2, 32));
    assert_eq!(toy.serve(), Some((1, 0, 32)), "every quantum starts from 0 again");
    assert_eq!(toy.waiting(), [((2, 32, 64), 32)]);
}

/// Both files always have a request waiting; a file that was served much more than the other is deferred until the other is no longer a
/// leap behind.
#[test]
fn who_is_far_ahead_stands_behind() {
    let requests_in_a_leap = super::rounds::LEAP_BYTES / (32 * KIB);
    let mut toy = Toy::new();
    let mut next = [0, 0, 0];
    let mut post = |toy: &mut Toy, file: u64| {
        let at = &mut next[usize::try_from(file).unwrap()];
        // No requests are contiguous, so that they stay single.
        toy.post((file, *at * 64));
        *at += 1;
    };
    for _ in 0..requests_in_a_leap + 8 {
        post(&mut toy, 1);
        assert_eq!(toy.serve().map(|(file, ..)| file), Some(1));
    }
    post(&mut toy, 1);
    post(&mut toy, 2);
    for number in 0..500 {
        assert_eq!(toy.serve().map(|(file, ..)| file), Some(2), "choice {number}");
        post(&mut toy, 2);
    }
    let mut turns = [0; 3];
    for _ in 0..2 * requests_in_a_leap {
        let (file, ..) = toy.serve().unwrap();
        turns[usize::try_from(file).unwrap()] += 1;
        post(&mut toy, file);
    }
    let behind = requests_in_a_leap - 500;
    assert!(behind <= turns[2] && turns[2] < behind + requests_in_a_leap, "{turns:?}: it has caught up");
    assert!(requests_in_a_leap / 4 < turns[1], "{turns:?}: and then they alternate");
}

#[test]
fn offset_order_within_a_file() {
    let mut toy = Toy::new();
    [(1, 640), (1, 0), (1, 320)].into_iter().for_each(|arrival| toy.post(arrival));
    let served: Vec<Range> = (0..3).filter_map(|_| toy.serve()).collect();
    assert_eq!(served, [(1, 0, 32), (1, 320, 352), (1, 640, 672)]);
}
