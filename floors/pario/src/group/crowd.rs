//! Members that are more than the processors of their node, and how they leave a call together.
//!
//! Ranks of MPI libraries poll: one that has left a call and waits for the others in the next one keeps a processor busy until its turn is over,
//! and those who were to leave with it wait for that long, 4 or 8 ms, with next to nothing left to do. So where they share
//! processors they leave one after the other, and who comes later comes before who polls.
//!
//! Never: delays a member that has a processor to itself; makes calls that there are many of wait. Always: nobody sleeps
//! for longer than a millisecond.

use std::time::Duration;

use pario_sys::nap::nap;
use pario_sys::processors::processors;

use super::Group;

/// Between one member and the next: as long as leaving takes.
const STEP: Duration = Duration::from_micros(150);
/// For all of a node together.
const TIME_MAX: Duration = Duration::from_millis(1);

/// Leaves a call that all members are about to leave, where what they do next may keep others from leaving: in turn, if they share processors.
pub fn leave_in_turn(group: &dyn Group) {
    if let Some(time) = turn_of(group, processors()) {
        nap(time);
    }
}

fn turn_of(group: &dyn Group, processors: usize) -> Option<Duration> {
    let here = group.node_of(group.rank());
    let near = |rank: &usize| group.node_of(*rank) == here;
    turn((0..group.rank()).filter(near).count(), (0..group.size()).filter(near).count(), processors)
}

/// When a member leaves that has so many before it, of so many on a node.
fn turn(before: usize, members: usize, processors: usize) -> Option<Duration> {
    if members <= processors || before == 0 {
        return None;
    }
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Some(STEP.saturating_mul(count(before)).min(TIME_MAX * count(before) / count(members)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_of_a_node_share_its_processors() {
        let turns = |nodes: &[usize], processors| -> Vec<Duration> {
            let members = crate::group::threads_on(nodes);
            members.iter().map(|member| turn_of(&**member, processors).unwrap_or_default()).collect()
        };
        let none = Duration::ZERO;
        assert_eq!(turns(&[0, 1, 0, 1, 0], 2), [none, none, STEP, none, 2 * STEP]);
        assert_eq!(turns(&[0, 1], 1), [none, none]);
    }

    #[test]
    fn members_leave_one_after_the_other_where_they_share_processors() {
        let micros = |before, members, processors| {
            turn(before, members, processors).map(|time| u64::try_from(time.as_micros()).unwrap())
        };
        assert_eq!([0, 1, 2, 3].map(|before| micros(before, 4, 2)), [None, Some(150), Some(300), Some(450)]);
        assert_eq!([0, 1, 2, 3].map(|before| micros(before, 4, 4)), [None; 4]);
        assert_eq!(micros(99, 100, 8), Some(990), "all within a millisecond");
        assert_eq!(micros(1, 100, 8), Some(10));
    }
}
