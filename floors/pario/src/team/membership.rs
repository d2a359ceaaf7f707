//! Membership: whether all members of a call have come, from the positions of those that came.
//!
//! A pure machine. Sizes come with the positions, so that no registration is needed: the members of a call are all threads without inner
//! teams below the place where the file was opened.
//!
//! Never: needs the number of members beforehand; assumes the sizes of an earlier call. Always: members are in the order of their positions.

use super::position::{Position, TeamLevel};

/// The members of one call that have come, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Membership {
    members: Vec<MemberEntry>,
}

/// A member and its index in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberEntry {
    pub(super) position: Position,
    pub(super) arrival: usize,
}

/// Why a position cannot belong to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mismatch {
    /// It has come already.
    Twice,
    /// Another member has given another size of the same team.
    Size { other: Position },
    /// Another member is the parent of this one, or the other way round: only threads without inner teams are members.
    Nested { other: Position },
}

impl Membership {
    pub(super) fn clear(&mut self) {
        self.members.clear();
    }

    /// The members in order.
    pub(super) fn members(&self) -> &[MemberEntry] {
        &self.members
    }

    /// A member comes; the next arrival index is its own.
    pub(super) fn add(&mut self, position: Position) -> Result<usize, Mismatch> {
        let place = match self.members.binary_search_by(|member| member.position.cmp(&position)) {
            Ok(_) => return Err(Mismatch::Twice),
            Err(place) => place,
        };
        // A conflicting position is a neighbour in the order, or shares the longest prefix with one.
        let neighbours = [place.checked_sub(1), Some(place)];
        for other in neighbours.into_iter().flatten().filter_map(|at| self.members.get(at)) {
            conflict(&position, &other.position)?;
        }
        let arrival = self.members.len();
        self.members.insert(place, MemberEntry { position, arrival });
        Ok(arrival)
    }

    /// The first position that has not come; `None` if all are there. Without any member it is unknown.
    pub(super) fn first_missing(&self) -> Option<Position> {
        match self.members.first() {
            // The usual case: one level.
            Some(first) if self.is_flat(first.position) => self.first_missing_flat(first.position),
            _ => missing_below(&self.members, Position::ALONE),
        }
    }

    /// A lower bound of the number of members, by the sizes on the outermost level.
    pub(super) fn expected(&self) -> usize {
        let outermost = self.members.first().and_then(|member| member.position.levels().first().copied());
        self.members.len().max(outermost.map_or(1, |level| level.size as usize))
    }

    /// Whether every member in front of `position` has come.
    pub(super) fn is_complete_before(&self, position: &Position) -> bool {
        self.first_missing().is_none_or(|missing| *position <= missing)
    }

    /// The index of a member among those that have come.
    pub(super) fn index(&self, position: &Position) -> Option<usize> {
        self.members.binary_search_by(|member| member.position.cmp(position)).ok()
    }

    fn is_flat(&self, first: Position) -> bool {
        first.levels().len() == 1 && self.members.iter().all(|member| member.position.levels().len() == 1)
    }

    fn first_missing_flat(&self, first: Position) -> Option<Position> {
        let size = first.levels()[0].size;
        let expected = (0..size).zip(&self.members);
        let gap = expected.clone().find(|(number, member)| member.position.levels()[0].number != *number);
        let number = gap.map_or(self.members.len(), |(number, _)| number as usize);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        (number < size).then(|| Position::of(number, size))
    }
}

/// Whether two positions can be members of one call.
fn conflict(position: &Position, other: &Position) -> Result<(), Mismatch> {
    let (own, others) = (position.levels(), other.levels());
    for (one, two) in own.iter().zip(others) {
        if one.size != two.size {
            return Err(Mismatch::Size { other: *other });
        }
        if one.number != two.number {
            return Ok(());
        }
    }
    Err(Mismatch::Nested { other: *other })
}

/// The first thread below `place` that is missing among `members`, all of which are below it.
fn missing_below(members: &[MemberEntry], place: Position) -> Option<Position> {
    let depth = place.levels().len();
    let first = members.first()?.position;
    let TeamLevel { size, .. } = first.levels().get(depth).copied()?;
    let mut rest = members;
    for number in 0..size {
        let child = place.inner(number, size)?;
        let count = rest.partition_point(|member| member.position.levels()[depth].number <= number);
        let (inside, behind) = rest.split_at(count);
        if inside.is_empty() {
            return Some(child);
        }
        if let Some(missing) = missing_below(inside, child) {
            return Some(missing);
        }
        rest = behind;
    }
    None
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
