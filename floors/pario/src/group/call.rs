//! Which collective a member calls: members that meet in one round must call the same.

use std::fmt;

/// A collective of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// [`super::Group::allgather`].
    Allgather,
    /// [`super::Group::barrier`].
    Barrier,
    /// [`super::Group::broadcast`].
    Broadcast {
        /// Whose bytes.
        root: u32,
    },
    /// [`super::Group::reduce`].
    Reduce,
    /// [`super::Group::agree`].
    Agree,
    /// [`super::Group::same`].
    Same,
    /// [`super::Group::duplicate`].
    Duplicate,
    /// The members find out who shares memory with whom, when a group begins.
    Probe,
    /// [`crate::OpenOptions::open_all`].
    Open,
    /// [`crate::GroupFile::set_view`].
    SetView,
    /// [`crate::GroupFile::set_len`].
    SetLength,
    /// [`crate::GroupFile::sync`].
    Sync,
    /// [`crate::GroupFile::close`].
    Close,
    /// [`crate::GroupFile::set_atomicity`].
    SetAtomicity,
    /// [`crate::GroupFile::seek_shared`].
    SeekShared,
    /// [`crate::GroupFile::write_ordered`] and [`crate::GroupFile::read_ordered`].
    Ordered,
}

impl Call {
    /// As two numbers, for the wire.
    pub(super) fn to_numbers(self) -> (u8, u32) {
        match self {
            Call::Allgather => (1, 0),
            Call::Barrier => (2, 0),
            Call::Broadcast { root } => (3, root),
            Call::Reduce => (4, 0),
            Call::Agree => (5, 0),
            Call::Same => (6, 0),
            Call::Duplicate => (7, 0),
            Call::Probe => (8, 0),
            Call::Open => (9, 0),
            Call::SetView => (10, 0),
            Call::SetLength => (11, 0),
            Call::Sync => (12, 0),
            Call::Close => (13, 0),
            Call::SetAtomicity => (14, 0),
            Call::SeekShared => (15, 0),
            Call::Ordered => (16, 0),
        }
    }

    /// From the wire; `None`: no such call.
    pub(super) fn from_numbers(kind: u8, root: u32) -> Option<Call> {
        let call = match kind {
            1 => Call::Allgather,
            2 => Call::Barrier,
            3 => Call::Broadcast { root },
            4 => Call::Reduce,
            5 => Call::Agree,
            6 => Call::Same,
            7 => Call::Duplicate,
            8 => Call::Probe,
            9 => Call::Open,
            10 => Call::SetView,
            11 => Call::SetLength,
            12 => Call::Sync,
            13 => Call::Close,
            14 => Call::SetAtomicity,
            15 => Call::SeekShared,
            16 => Call::Ordered,
            _ => return None,
        };
        (call.to_numbers() == (kind, root)).then_some(call)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Allgather => f.write_str("allgather"),
            Call::Barrier => f.write_str("barrier"),
            Call::Broadcast { root } => write!(f, "broadcast from rank {root}"),
            Call::Reduce => f.write_str("reduce"),
            Call::Agree => f.write_str("agree"),
            Call::Same => f.write_str("same"),
            Call::Duplicate => f.write_str("duplicate"),
            Call::Probe => f.write_str("the probing of nodes"),
            Call::Open => f.write_str("the opening of a file"),
            Call::SetView => f.write_str("the setting of a view"),
            Call::SetLength => f.write_str("the setting of a file's length"),
            Call::Sync => f.write_str("the sync of a file"),
            Call::Close => f.write_str("the close of a file"),
            Call::SetAtomicity => f.write_str("the setting of atomic mode"),
            Call::SeekShared => f.write_str("the moving of a shared pointer"),
            Call::Ordered => f.write_str("an ordered access"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_calls_and_nothing_else() {
        let calls = [
            Call::Allgather,
            Call::Barrier,
            Call::Broadcast { root: 7 },
            Call::Reduce,
            Call::Agree,
            Call::Same,
            Call::Duplicate,
            Call::Probe,
            Call::Open,
            Call::SetView,
            Call::SetLength,
            Call::Sync,
            Call::Close,
            Call::SetAtomicity,
            Call::SeekShared,
            Call::Ordered,
        ];
        for call in calls {
            let (kind, root) = call.to_numbers();
            assert_eq!(Call::from_numbers(kind, root), Some(call));
        }
        assert_eq!(Call::from_numbers(0, 0), None);
        assert_eq!(Call::from_numbers(17, 0), None);
        assert_eq!(Call::from_numbers(2, 1), None, "a barrier has no root");
    }
}
