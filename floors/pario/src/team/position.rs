//! The position of a thread: its number and the size of its team on every level, from the outermost level inwards.
//!
//! Always: at most [`LEVELS_MAX`] levels, and on each level a number below the size. Positions are compared by their numbers.

use std::cmp::Ordering;
use std::fmt;

/// Largest number of nested levels.
pub const LEVELS_MAX: usize = 8;

/// One level of a position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TeamLevel {
    /// Number of the thread in its team, from 0 on.
    pub number: u32,
    /// Threads of that team.
    pub size: u32,
}

/// The position of a thread. The empty position is that of a thread outside of every team. `Display` shows the numbers: `1.0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position {
    levels: [TeamLevel; LEVELS_MAX],
    depth: u8,
}

impl Position {
    /// A thread outside of every team.
    pub const ALONE: Position = Position { levels: [TeamLevel { number: 0, size: 0 }; LEVELS_MAX], depth: 0 };

    /// Thread `number` of a team of `size`.
    ///
    /// # Panics
    /// If `number` is not below `size`.
    #[must_use]
    pub fn of(number: u32, size: u32) -> Position {
        Position::ALONE.inner(number, size).expect("one level is allowed and the number is below the size")
    }

    /// A position from its levels, the outermost first; `None` if a number is not below its size, or there are too many levels.
    #[must_use]
    pub fn from_levels(levels: impl IntoIterator<Item = TeamLevel>) -> Option<Position> {
        levels
            .into_iter()
            .try_fold(Position::ALONE, |position, level| position.inner(level.number, level.size))
    }

    /// Thread `number` of a team of `size` that this thread has started; `None` as for [`Position::from_levels`].
    #[must_use]
    pub fn inner(mut self, number: u32, size: u32) -> Option<Position> {
        let depth = usize::from(self.depth);
        if size <= number || depth == LEVELS_MAX {
            return None;
        }
        self.levels[depth] = TeamLevel { number, size };
        self.depth += 1;
        Some(self)
    }

    /// The levels, the outermost first.
    #[must_use]
    pub fn levels(&self) -> &[TeamLevel] {
        &self.levels[..usize::from(self.depth)]
    }

    /// The thread that started the team of this one; the empty position stays empty.
    #[must_use]
    pub fn parent(&self) -> Position {
        let mut parent = *self;
        parent.depth = self.depth.saturating_sub(1);
        parent.levels[usize::from(parent.depth)] = TeamLevel::default();
        parent
    }

    /// The levels below `place`; `None` if this thread is not below it.
    pub(super) fn below(&self, place: &Position) -> Option<Position> {
        let outer = place.levels();
        let starts = self.levels().len() >= outer.len()
            && self.levels().iter().zip(outer).all(|(own, other)| own.number == other.number);
        starts.then(|| {
            Position::from_levels(self.levels()[outer.len()..].iter().copied()).expect("levels of a position")
        })
    }

    /// A lower bound of the number of threads in front of this one.
    pub(super) fn in_front_min(&self) -> u64 {
        self.levels().iter().map(|level| u64::from(level.number)).sum()
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |position: &Position| position.levels.map(|level| level.number);
        let depth = self.depth.cmp(&other.depth);
        let common = usize::from(self.depth.min(other.depth));
        numbers(self)[..common].cmp(&numbers(other)[..common]).then(depth)
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, level) in self.levels().iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{}", level.number)?;
        }
        if self.depth == 0 { f.write_str("0") } else { Ok(()) }
    }
}
