//! Names of the group collectives. All members of one exchange must make the same call.

use std::fmt;

/// A collective of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollectiveCall {
    /// [`super::Group::allgather`].
    Allgather,
    /// [`super::Group::barrier`].
    Barrier,
    /// [`super::Group::broadcast`].
    Broadcast {
        /// Rank that supplies the bytes.
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
    /// The members find out which of them share memory, when a group begins.
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

impl CollectiveCall {
    /// Wire encoding as two numbers.
    pub(super) fn to_numbers(self) -> (u8, u32) {
        match self {
            CollectiveCall::Allgather => (1, 0),
            CollectiveCall::Barrier => (2, 0),
            CollectiveCall::Broadcast { root } => (3, root),
            CollectiveCall::Reduce => (4, 0),
            CollectiveCall::Agree => (5, 0),
            CollectiveCall::Same => (6, 0),
            CollectiveCall::Duplicate => (7, 0),
            CollectiveCall::Probe => (8, 0),
            CollectiveCall::Open => (9, 0),
            CollectiveCall::SetView => (10, 0),
            CollectiveCall::SetLength => (11, 0),
            CollectiveCall::Sync => (12, 0),
            CollectiveCall::Close => (13, 0),
            CollectiveCall::SetAtomicity => (14, 0),
            CollectiveCall::SeekShared => (15, 0),
            CollectiveCall::Ordered => (16, 0),
        }
    }

    /// Decodes the wire numbers; `None`: unknown call.
    pub(super) fn from_numbers(kind: u8, root: u32) -> Option<CollectiveCall> {
        let call = match kind {
            1 => CollectiveCall::Allgather,
            2 => CollectiveCall::Barrier,
            3 => CollectiveCall::Broadcast { root },
            4 => CollectiveCall::Reduce,
            5 => CollectiveCall::Agree,
            6 => CollectiveCall::Same,
            7 => CollectiveCall::Duplicate,
            8 => CollectiveCall::Probe,
            9 => CollectiveCall::Open,
            10 => CollectiveCall::SetView,
            11 => CollectiveCall::SetLength,
            12 => CollectiveCall::Sync,
            13 => CollectiveCall::Close,
            14 => CollectiveCall::SetAtomicity,
            15 => CollectiveCall::SeekShared,
            16 => CollectiveCall::Ordered,
            _ => return None,
        };
        (call.to_numbers() == (kind, root)).then_some(call)
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectiveCall::Allgather => f.write_str("allgather"),
            CollectiveCall::Barrier => f.write_str("barrier"),
            CollectiveCall::Broadcast { root } => write!(f, "broadcast from rank {root}"),
            CollectiveCall::Reduce => f.write_str("reduce"),
            CollectiveCall::Agree => f.write_str("agree"),
            CollectiveCall::Same => f.write_str("same"),
            CollectiveCall::Duplicate => f.write_str("duplicate"),
            CollectiveCall::Probe => f.write_str("the probe for shared memory"),
            CollectiveCall::Open => f.write_str("the opening of a file"),
            CollectiveCall::SetView => f.write_str("the setting of a view"),
            CollectiveCall::SetLength => f.write_str("the setting of a file's length"),
            CollectiveCall::Sync => f.write_str("the sync of a file"),
            CollectiveCall::Close => f.write_str("the close of a file"),
            CollectiveCall::SetAtomicity => f.write_str("the setting of atomic mode"),
            CollectiveCall::SeekShared => f.write_str("the moving of a shared pointer"),
            CollectiveCall::Ordered => f.write_str("an ordered access"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_calls_and_nothing_else() {
        let calls = [
            CollectiveCall::Allgather,
            CollectiveCall::Barrier,
            CollectiveCall::Broadcast { root: 7 },
            CollectiveCall::Reduce,
            CollectiveCall::Agree,
            CollectiveCall::Same,
            CollectiveCall::Duplicate,
            CollectiveCall::Probe,
            CollectiveCall::Open,
            CollectiveCall::SetView,
            CollectiveCall::SetLength,
            CollectiveCall::Sync,
            CollectiveCall::Close,
            CollectiveCall::SetAtomicity,
            CollectiveCall::SeekShared,
            CollectiveCall::Ordered,
        ];
        for call in calls {
            let (kind, root) = call.to_numbers();
            assert_eq!(CollectiveCall::from_numbers(kind, root), Some(call));
        }
        assert_eq!(CollectiveCall::from_numbers(0, 0), None);
        assert_eq!(CollectiveCall::from_numbers(17, 0), None);
        assert_eq!(CollectiveCall::from_numbers(2, 1), None, "a barrier has no root");
    }
}
