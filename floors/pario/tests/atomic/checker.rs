//! Decides whether a recorded history can be explained.
//!
//! A file is a row of cells. An access covers some of them: a write stores its own tag in each, a read returns the tags that it found. In
//! atomic mode there must be one order of all accesses that respects real time and in which each read finds the last write.

use std::collections::HashSet;

/// Kind and result of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Did {
    /// Stored this tag in its cells.
    Wrote(u64),
    /// Found these tags in them.
    Read(Vec<u64>),
}

/// One access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedAccess {
    /// Time of its call, and of its return.
    pub began: u64,
    pub ended: u64,
    pub cells: Vec<usize>,
    pub did: Did,
}

/// Searches an order of all accesses of all processes that keeps each process's own order. Returns the access that cannot be explained.
pub fn sequential(processes: &[Vec<RecordedAccess>], cells: usize) -> Result<(), String> {
    let start = (vec![0usize; processes.len()], vec![0u64; cells]);
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    let mut furthest = 0;
    let total: usize = processes.iter().map(Vec::len).sum();
    while let Some((at, state)) = open.pop() {
        let done: usize = at.iter().sum();
        // An access without a recorded end may have happened or not.
        let rest = processes.iter().zip(&at).flat_map(|(process, at)| &process[*at..]);
        if rest.into_iter().all(|access| access.ended == u64::MAX) {
            return Ok(());
        }
        furthest = furthest.max(done);
        let next = |process: usize| processes[process].get(at[process]);
        for process in 0..processes.len() {
            let Some(access) = next(process) else { continue };
            let late = (0..processes.len()).filter_map(next).any(|other| other.ended < access.began);
            if late {
                continue;
            }
            let Some(state) = after(&state, access) else { continue };
            let mut at = at.clone();
            at[process] += 1;
            if seen.insert((at.clone(), state.clone())) {
                open.push((at, state));
            }
        }
    }
    Err(format!("no order explains more than {furthest} of {total} accesses"))
}

fn after(state: &[u64], access: &RecordedAccess) -> Option<Vec<u64>> {
    match &access.did {
        Did::Wrote(tag) => {
            let mut state = state.to_vec();
            access.cells.iter().for_each(|cell| state[*cell] = *tag);
            Some(state)
        }
        Did::Read(found) => {
            let right = access.cells.iter().zip(found).all(|(cell, tag)| state[*cell] == *tag);
            right.then(|| state.to_vec())
        }
    }
}

/// Every read finds in each cell a write that had begun, and that no other write had replaced before the read began.
pub fn visible(processes: &[Vec<RecordedAccess>]) -> Result<(), String> {
    let all: Vec<&RecordedAccess> = processes.iter().flatten().collect();
    for read in &all {
        let Did::Read(found) = &read.did else { continue };
        for (cell, tag) in read.cells.iter().zip(found) {
            let writes = || {
                all.iter().filter(|write| matches!(write.did, Did::Wrote(_)) && write.cells.contains(cell))
            };
            let source = writes().find(|write| write.did == Did::Wrote(*tag));
            let began = match source {
                Some(write) if write.began <= read.ended => write.ended,
                None if *tag == 0 => 0,
                Some(_) | None => {
                    return Err(format!("cell {cell}: tag {tag} was read before it was written"));
                }
            };
            let newer = writes().find(|write| began < write.began && write.ended < read.began);
            if let Some(newer) = newer {
                return Err(format!("cell {cell}: tag {tag} was read after {:?} had replaced it", newer.did));
            }
        }
    }
    Ok(())
}

#[test]
fn the_checker_sees_what_cannot_be() {
    let write = |began, ended, cells: &[usize], tag| RecordedAccess {
        began,
        ended,
        cells: cells.to_vec(),
        did: Did::Wrote(tag),
    };
    let read = |began, ended, cells: &[usize], tags: &[u64]| RecordedAccess {
        began,
        ended,
        cells: cells.to_vec(),
        did: Did::Read(tags.to_vec()),
    };
    // Two concurrent writes and a read of a mixture.
    let torn = [
        vec![write(0, 10, &[0, 1], 1)],
        vec![write(0, 10, &[0, 1], 2)],
        vec![read(11, 12, &[0, 1], &[1, 2])],
    ];
    assert!(sequential(&torn, 2).is_err());
    assert!(visible(&torn).is_ok(), "each cell alone is as it may be");
    let whole = [torn[0].clone(), torn[1].clone(), vec![read(11, 12, &[0, 1], &[1, 1])]];
    assert!(sequential(&whole, 2).is_ok());
    // Two reads that see two writes in different orders.
    let crossed = [
        vec![write(0, 100, &[0], 1)],
        vec![write(0, 100, &[1], 2)],
        vec![read(10, 11, &[0], &[1]), read(12, 13, &[1], &[0])],
        vec![read(10, 11, &[1], &[2]), read(12, 13, &[0], &[0])],
    ];
    assert!(sequential(&crossed, 2).is_err());
    // A read of a replaced value.
    let stale = [vec![write(0, 1, &[0], 1), write(2, 3, &[0], 2)], vec![read(4, 5, &[0], &[1])]];
    assert!(sequential(&stale, 1).is_err() && visible(&stale).is_err());
    // A read before the first write ends may see either.
    let early = [vec![write(0, 10, &[0], 1)], vec![read(5, 6, &[0], &[0])]];
    assert!(sequential(&early, 1).is_ok() && visible(&early).is_ok());
}
