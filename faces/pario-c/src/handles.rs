//! Tables of the numbers that a program holds: one table for each kind of handle, each with its own range of numbers.
//!
//! Numbers are positive and far beyond any descriptor, so that a descriptor is refused here and a handle is refused by `read`.
//!
//! Never: gives a number again before all others of its range were used. Always: a forked child refuses the numbers of its
//! parent, without waiting for a lock that a thread of the parent held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::ffi::per_process::PerProcess;

/// Numbers of one kind.
const RANGE: u32 = 1 << 28;
/// Handles of one kind that may be open at once.
const OPEN_MAX: usize = 4096;

/// Kinds of handles; the number is the first of the range, in units of [`RANGE`]. 0 to 3 are left to descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandleKind {
    /// `omp_file.h`: a file of a team.
    TeamFile = 4,
    /// `pario.h`: a mounted partition.
    Partition = 5,
    /// `pario.h`: an open file.
    File = 6,
    /// `sf.h`, `dio.h`: a shared or distant file.
    Distant = 7,
}

impl HandleKind {
    fn first(self) -> u32 {
        self as u32 * RANGE
    }

    fn of(number: i32) -> Option<HandleKind> {
        let kinds = [HandleKind::TeamFile, HandleKind::Partition, HandleKind::File, HandleKind::Distant];
        let block = u32::try_from(number).ok()? / RANGE;
        kinds.into_iter().find(|kind| *kind as u32 == block)
    }

    fn name(self) -> &'static str {
        match self {
            HandleKind::TeamFile => "handle of omp_file_open_all",
            HandleKind::Partition => "handle of pario_mount",
            HandleKind::File => "handle of pario_open",
            HandleKind::Distant => "handle of SF_Create, dio_register or dio_open",
        }
    }
}

/// Why a number is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandleRefusal {
    /// Never given out by this table.
    Foreign { number: i32, wanted: HandleKind },
    /// Closed.
    Closed { number: i32 },
    /// Given out before this process was forked.
    OfParent { number: i32 },
    /// Too many are open.
    Full,
}

impl std::fmt::Display for HandleRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HandleRefusal::Foreign { number, wanted } => {
                write!(f, "{number} is not a {}", wanted.name())?;
                match HandleKind::of(*number) {
                    Some(kind) if kind != *wanted => write!(f, "; it is a {}", kind.name()),
                    Some(_) | None => Ok(()),
                }
            }
            HandleRefusal::Closed { number } => write!(f, "handle {number} is closed"),
            HandleRefusal::OfParent { number } => {
                write!(f, "handle {number} belongs to the parent process; open the file again")
            }
            HandleRefusal::Full => write!(f, "{OPEN_MAX} handles are open; close some"),
        }
    }
}

/// The handles of one kind.
#[derive(Debug)]
pub(crate) struct HandleTable<T> {
    kind: HandleKind,
    /// Numbers given out so far, by this process and its parents.
    given: AtomicU32,
    entries: PerProcess<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    /// Numbers given out before this process began to use the table.
    given_before: u32,
    open: RwLock<HashMap<i32, T>>,
}

impl<T: Clone + Send + Sync + 'static> HandleTable<T> {
    pub(crate) const fn new(kind: HandleKind) -> HandleTable<T> {
        HandleTable { kind, given: AtomicU32::new(0), entries: PerProcess::new() }
    }

    fn entries(&self) -> &'static Entries<T> {
        self.entries
            .get(|| Entries { given_before: self.given.load(Ordering::Relaxed), open: RwLock::default() })
    }

    /// Gives a value a number.
    pub(crate) fn insert(&self, value: T) -> Result<i32, HandleRefusal> {
        self.insert_once(value, |_, _| false)
    }

    /// Gives a value a number, or finds the number that the same value has already.
    pub(crate) fn insert_once(
        &self,
        value: T,
        is_same: impl Fn(&T, &T) -> bool,
    ) -> Result<i32, HandleRefusal> {
        let entries = self.entries();
        let mut open = entries.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, _)) = open.iter().find(|(_, known)| is_same(known, &value)) {
            return Ok(*number);
        }
        if OPEN_MAX <= open.len() {
            return Err(HandleRefusal::Full);
        }
        loop {
            let given = self.given.fetch_add(1, Ordering::Relaxed);
            let number = (self.kind.first() + given % RANGE).cast_signed();
            if let std::collections::hash_map::Entry::Vacant(slot) = open.entry(number) {
                slot.insert(value);
                return Ok(number);
            }
        }
    }

    /// The value of a number.
    pub(crate) fn get(&self, number: i32) -> Result<T, HandleRefusal> {
        let entries = self.entries();
        let found = entries.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
        found.ok_or_else(|| self.refusal(number, entries.given_before))
    }

    /// Removes a number; `None`: another thread has removed it.
    pub(crate) fn remove(&self, number: i32) -> Option<T> {
        self.entries().open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Removes a number if its value may be removed.
    pub(crate) fn remove_if(&self, number: i32, may: impl Fn(&T) -> bool) -> Option<T> {
        let mut open = self.entries().open.write().unwrap_or_else(PoisonError::into_inner);
        if !open.get(&number).is_some_and(may) {
            return None;
        }
        open.remove(&number)
    }

    fn refusal(&self, number: i32, given_before: u32) -> HandleRefusal {
        let place = number.cast_unsigned().wrapping_sub(self.kind.first());
        if HandleKind::of(number) != Some(self.kind) || self.given.load(Ordering::Relaxed) <= place {
            return HandleRefusal::Foreign { number, wanted: self.kind };
        }
        if place < given_before {
            HandleRefusal::OfParent { number }
        } else {
            HandleRefusal::Closed { number }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_good_until_it_is_removed() {
        let table = HandleTable::<u32>::new(HandleKind::TeamFile);
        let (one, two) = (table.insert(1).unwrap(), table.insert(2).unwrap());
        assert!(1 << 30 <= one && one < two);
        assert_eq!((table.get(one), table.get(two)), (Ok(1), Ok(2)));
        assert_eq!((table.remove(one), table.remove(one)), (Some(1), None));
        assert_eq!(table.get(one), Err(HandleRefusal::Closed { number: one }));
        let three = table.insert(3).unwrap();
        assert!(two < three, "numbers are not given twice");
    }

    #[test]
    fn other_numbers_are_refused_by_name() {
        let table = HandleTable::<u32>::new(HandleKind::File);
        let first = HandleKind::File.first().cast_signed();
        for number in [-1, 0, 3, 1 << 30, first, i32::MAX, i32::MIN] {
            let wanted = HandleKind::File;
            assert_eq!(table.get(number), Err(HandleRefusal::Foreign { number, wanted }));
        }
        let text = table.get(1 << 30).unwrap_err().to_string();
        assert_eq!(text, "1073741824 is not a handle of pario_open; it is a handle of omp_file_open_all");
        assert_eq!(table.get(3).unwrap_err().to_string(), "3 is not a handle of pario_open");
    }

    #[test]
    fn too_many_are_refused() {
        let table = HandleTable::<usize>::new(HandleKind::Partition);
        let numbers: Vec<i32> = (0..OPEN_MAX).map(|value| table.insert(value).unwrap()).collect();
        assert_eq!(table.insert(0), Err(HandleRefusal::Full));
        table.remove(numbers[7]);
        assert!(table.insert(0).is_ok());
    }
}
