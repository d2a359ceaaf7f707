//! One type per index space, so that the compiler distinguishes a server's index from a block's.
//!
//! Always: an [`InodeId`] is never reused in a partition; a [`Generation`] only grows.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A file, directory or symbolic link of a partition. Never reused.
    InodeId(u64),
    "{}"
);
number!(
    /// Grows when a file is truncated; an access that names an older one is refused.
    Generation(u32),
    "{}"
);
number!(
    /// A server's index in the partition's list, from 0. The manager is server 0.
    ServerIndex(u16),
    "{}"
);
number!(
    /// A byte's offset in one server's object of a file.
    LocalOffset(u64),
    "{}"
);
number!(
    /// One mounted session of a client process (or peer server); random, so that two clients differ also after a restart.
    SessionId(u64),
    "{:016x}"
);
number!(
    /// One run of a server process; random, new at each start.
    Incarnation(u64),
    "{:016x}"
);

impl InodeId {
    /// The partition's root directory.
    pub const ROOT: InodeId = InodeId(1);
}

impl ServerIndex {
    /// The server that also holds names and inodes.
    pub const MANAGER: ServerIndex = ServerIndex(0);

    /// As an index into the partition's list of servers.
    #[must_use]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// A partition's identity, written into every storage directory; random at creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PartitionId(pub [u8; 16]);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for PartitionId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() != 32 || !text.is_ascii() {
            return Err(());
        }
        let mut id = [0u8; 16];
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| ())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ())?;
        }
        Ok(PartitionId(id))
    }
}

impl Serialize for PartitionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartitionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| serde::de::Error::custom("a partition id has 32 hexadecimal digits"))
    }
}

/// One server's part of one generation of a file: its blocks, concatenated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId {
    /// The file.
    pub inode: InodeId,
    /// The file's generation.
    pub generation: Generation,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}", self.inode.0, self.generation.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_id_survives_text() {
        let id = PartitionId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("xyz".parse::<PartitionId>(), Err(()));
        assert_eq!("é".repeat(16).parse::<PartitionId>(), Err(()));
    }
}
