//! Requests about names and attributes, and the manager's replies. Bytes: `docs/formats/wire.md`.
//!
//! Always: a path travels as bytes, with the inode that it starts from.

use pario_core::{AttrChange, DirEntry, FileAttr, FileKind, InodeId, Striping, encode_enum, encode_struct};

/// Base directory of a path and the path. `path` may be empty (the base itself) and may hold slashes and symbolic links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// Directory that a relative path starts from; the root for absolute ones.
    pub base: InodeId,
    /// The rest.
    pub path: Vec<u8>,
}
encode_struct!(At { base, path });

impl At {
    /// A path from the partition's root.
    pub fn root(path: impl Into<Vec<u8>>) -> At {
        At { base: InodeId::ROOT, path: path.into() }
    }

    /// An inode itself.
    #[must_use]
    pub fn inode(inode: InodeId) -> At {
        At { base: inode, path: Vec::new() }
    }
}

/// Owner and permission bits of a new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creator {
    /// Permission bits, the process's umask already applied.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
encode_struct!(Creator { mode, uid, gid });

/// What an open may do besides finding the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenHow {
    /// Create it if it is missing.
    pub create: bool,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    /// Truncate it to 0 bytes.
    pub truncate: bool,
    /// The handle will write.
    pub write: bool,
}
encode_struct!(OpenHow { create, exclusive, truncate, write });

/// Operations on names and attributes, answered by the manager alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameRequest {
    /// Find, or create, a file. Follows symbolic links unless `exclusive`. Answer: `Attr`.
    Open {
        /// Path.
        at: At,
        /// Open mode.
        how: OpenHow,
        /// For a file that is created.
        creator: Creator,
        /// For a file that is created.
        striping: Striping,
    },
    /// Attributes. Answer: `Attr`.
    Stat {
        /// Path.
        at: At,
        /// Follow a symbolic link at the end.
        follow: bool,
    },
    /// One page of a directory in the order of names' bytes. Answer: `Entries`.
    List {
        /// Path.
        at: At,
        /// Start after this name.
        after: Option<Vec<u8>>,
        /// Maximum number.
        limit: u32,
    },
    /// Make a directory. Answer: `Attr`.
    MakeDir {
        /// Path.
        at: At,
        /// Owner and permission bits.
        creator: Creator,
    },
    /// Make a symbolic link. Answer: `Attr`.
    Symlink {
        /// Path.
        at: At,
        /// Target of the link.
        target: Vec<u8>,
        /// Owner and permission bits.
        creator: Creator,
    },
    /// Target of a symbolic link. Answer: `Target`.
    ReadLink {
        /// Path.
        at: At,
    },
    /// Remove a file or symbolic link. Answer: `Done`.
    Remove {
        /// Path.
        at: At,
    },
    /// Remove an empty directory. Answer: `Done`.
    RemoveDir {
        /// Path.
        at: At,
    },
    /// Renames a file or directory; atomic, replacing an existing target. Answer: `Done`.
    Rename {
        /// The old name.
        from: At,
        /// To where.
        to: At,
        /// Whether an existing `to` may be replaced.
        replace: bool,
    },
    /// Change attributes. Answer: `Attr`.
    SetAttr {
        /// Path.
        at: At,
        /// Follow a symbolic link at the end.
        follow: bool,
        /// The change.
        change: AttrChange,
    },
    /// Attributes as the manager knows them: no lease is recalled, so the length may lag behind writers. Answer: `Attr`.
    Find {
        /// Path.
        at: At,
        /// Follow a symbolic link at the end.
        follow: bool,
    },
    /// As `List`, with attributes as in `Find`. Answer: `Entries`.
    Scan {
        /// Path.
        at: At,
        /// Start after this name.
        after: Option<Vec<u8>>,
        /// Maximum number.
        limit: u32,
    },
    /// Give an inode that is no directory one more name. Answer: `Attr`.
    Link {
        /// The inode; a symbolic link at the end is not followed.
        from: At,
        /// The new name.
        to: At,
    },
    /// Make a named pipe, a socket or a device. Answer: `Attr`.
    MakeNode {
        /// Path.
        at: At,
        /// Its kind.
        kind: FileKind,
        /// Number of a device, else 0.
        device: u64,
        /// Owner and permission bits.
        creator: Creator,
    },
    /// Exchange the inodes of two names, atomically. Answer: `Done`.
    Exchange {
        /// One name.
        one: At,
        /// The other.
        two: At,
    },
    /// Value of an extended attribute. Answer: `Value`.
    GetXattr {
        /// Path; a symbolic link at the end is not followed.
        at: At,
        /// Name of the attribute.
        name: Vec<u8>,
    },
    /// Names of all extended attributes. Answer: `XattrNames`.
    ListXattrs {
        /// Path; a symbolic link at the end is not followed.
        at: At,
    },
    /// Set an extended attribute. Answer: `Done`.
    SetXattr {
        /// Path; a symbolic link at the end is not followed.
        at: At,
        /// Name of the attribute.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// Whether it must be new, or must exist.
        how: XattrHow,
    },
    /// Remove an extended attribute. Answer: `Done`.
    RemoveXattr {
        /// Path; a symbolic link at the end is not followed.
        at: At,
        /// Name of the attribute.
        name: Vec<u8>,
    },
}
encode_enum!(NameRequest {
    1 => Open { at, how, creator, striping },
    2 => Stat { at, follow },
    3 => List { at, after, limit },
    4 => MakeDir { at, creator },
    5 => Symlink { at, target, creator },
    6 => ReadLink { at },
    7 => Remove { at },
    8 => RemoveDir { at },
    9 => Rename { from, to, replace },
    10 => SetAttr { at, follow, change },
    11 => Find { at, follow },
    12 => Scan { at, after, limit },
    13 => Link { from, to },
    14 => MakeNode { at, kind, device, creator },
    15 => Exchange { one, two },
    16 => GetXattr { at, name },
    17 => ListXattrs { at },
    18 => SetXattr { at, name, value, how },
    19 => RemoveXattr { at, name },
});

/// Whether an extended attribute must be new, or must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrHow {
    /// Create it, or replace its value.
    Any {},
    /// Fail if it exists.
    Create {},
    /// Fail if it does not exist.
    Replace {},
}
encode_enum!(XattrHow {
    1 => Any {},
    2 => Create {},
    3 => Replace {},
});

/// Answers to [`NameRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameReply {
    /// It is done.
    Done {},
    /// Attributes of the found, created or changed inode.
    Attr {
        /// The attributes.
        attr: FileAttr,
    },
    /// A page of a directory.
    Entries {
        /// The entries.
        entries: Vec<DirEntry>,
        /// Whether there are more after the last.
        more: bool,
    },
    /// A symbolic link's target.
    Target {
        /// The target.
        target: Vec<u8>,
    },
    /// Value of an extended attribute.
    Value {
        /// The value.
        value: Vec<u8>,
    },
    /// Names of extended attributes, in the order of their bytes.
    XattrNames {
        /// The names.
        names: Vec<Vec<u8>>,
    },
}
encode_enum!(NameReply {
    1 => Done {},
    2 => Attr { attr },
    3 => Entries { entries, more },
    4 => Target { target },
    5 => Value { value },
    6 => XattrNames { names },
});
