//! How a shared plain file is opened and cached.

use std::path::Path;
use std::str::FromStr;

use pario_core::limits::{STRIPE_BYTES_DEFAULT, STRIPE_BYTES_MAX};
use pario_core::{Code, Fault, Size};
use serde::{Deserialize, Serialize};

use super::block::UNIT;
use crate::error::{Error, Result};

/// The variable that switches the cache on for plain paths: see [`from_env`].
pub const CACHE_VARIABLE: &str = "PARIO_CACHE";

/// At which node a block is cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Placement {
    /// At its home: blocks are dealt round-robin to the nodes.
    #[default]
    Home,
    /// At the node whose process touched it first; others reach it there. Whoever touches it next gets it when it was thrown out.
    FirstTouch,
    /// The same, but a block goes to the node whose process overwrites all of it.
    LastWriter,
}

impl Placement {
    const ALL: [Placement; 3] = [Placement::Home, Placement::FirstTouch, Placement::LastWriter];

    /// Whether blocks have no fixed place.
    pub(super) fn is_free(self) -> bool {
        self != Placement::Home
    }

    /// As settings and hints call it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Placement::Home => "home",
            Placement::FirstTouch => "first-touch",
            Placement::LastWriter => "last-writer",
        }
    }
}

impl FromStr for Placement {
    type Err = Error;

    fn from_str(word: &str) -> Result<Placement> {
        let found = Placement::ALL.into_iter().find(|placement| placement.word() == word.trim());
        found.ok_or_else(|| {
            Error::Setup(format!("placement `{word}`: it is `home`, `first-touch` or `last-writer`"))
        })
    }
}

/// Options of [`crate::open_shared`]; all members of the group must say the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedOptions {
    /// Allow reading.
    pub read: bool,
    /// Allow writing.
    pub write: bool,
    /// Create the file if it is missing.
    pub create: bool,
    /// Create the file and fail if it exists.
    pub create_new: bool,
    /// Cut the file to nothing.
    pub truncate: bool,
    /// Permission bits of a new file, before the process's umask. Those of a file that exists stay.
    pub mode: u32,
    /// Memory for blocks on each node, of all files that the group opens. 0: nothing is kept, and every access goes to the plain file.
    pub cache_bytes: u64,
    /// Bytes of a block, a multiple of 4 KiB. `None`: from the sizes of accesses when the file was last open, and from what its file
    /// system prefers.
    pub block_bytes: Option<u64>,
    /// Bytes in a row that have one home, a multiple of the block. `None`: 1 MiB or more.
    pub stripe_bytes: Option<u64>,
    /// At which node a block is cached.
    pub placement: Placement,
    /// Whether byte-range locks surround each access to the plain file, for file systems whose own client caches do not see each other's
    /// writes. `None`: on NFS, SMB and 9P.
    pub noncoherent: Option<bool>,
    /// Whether the members of a group on one node read and write the plain file themselves, through the kernel's cache, instead of keeping
    /// blocks of it. `None`: on file systems of that node (ext4, XFS, btrfs, tmpfs). Between several nodes, and where `noncoherent` is in
    /// force, it says nothing.
    pub direct: Option<bool>,
    /// Whether blocks that nobody has written to for about 0.1 s go down to the plain file in the background. Else they go when room is
    /// needed, at sync and at close.
    pub write_behind: bool,
}

impl Default for SharedOptions {
    fn default() -> Self {
        SharedOptions {
            read: true,
            write: true,
            create: false,
            create_new: false,
            truncate: false,
            mode: 0o666,
            cache_bytes: 256 << 20,
            block_bytes: None,
            stripe_bytes: None,
            placement: Placement::Home,
            noncoherent: None,
            direct: None,
            write_behind: true,
        }
    }
}

impl SharedOptions {
    /// Refuses what cannot be.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let refuse =
            |code, text: &str| Err(Error::from(Fault::new(code, format!("{}: {text}", path.display()))));
        if !self.read && !self.write {
            return refuse(Code::Invalid, "open for neither reading nor writing");
        }
        if (self.create || self.create_new || self.truncate) && !self.write {
            return refuse(Code::Invalid, "only a file that is open for writing is created or cut");
        }
        let is_size = |bytes: u64| 0 < bytes && bytes.is_multiple_of(UNIT) && bytes <= STRIPE_BYTES_MAX;
        if self.block_bytes.is_some_and(|bytes| !is_size(bytes)) {
            return refuse(Code::Invalid, "a block is a multiple of 4 KiB, up to 1 GiB");
        }
        let divides = |stripe: u64| self.block_bytes.is_some_and(|block| stripe.is_multiple_of(block));
        if self.stripe_bytes.is_some_and(|bytes| !is_size(bytes) || !divides(bytes)) {
            return refuse(Code::Invalid, "a stripe is a multiple of the block, which must be set with it");
        }
        Ok(())
    }

    /// Bytes in a row that have one home, for blocks of that size.
    pub(super) fn stripe_of(&self, block_bytes: u64) -> u64 {
        self.stripe_bytes.unwrap_or_else(|| {
            STRIPE_BYTES_DEFAULT.next_multiple_of(block_bytes).min(
                // Of the largest blocks one is enough.
                STRIPE_BYTES_MAX.max(block_bytes) / block_bytes * block_bytes,
            )
        })
    }
}

/// What `PARIO_CACHE` asks for: nothing (`None`: unset, empty or `0`), the defaults (`1`), or settings such as
/// `cache=256MiB,block=1MiB,placement=home,noncoherent=on`.
pub fn from_env() -> Result<Option<SharedOptions>> {
    let Some(text) = std::env::var_os(CACHE_VARIABLE) else { return Ok(None) };
    let text = text.into_string().map_err(|_| Error::Setup(format!("{CACHE_VARIABLE} is not a text")))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Option<SharedOptions>> {
    let mut options = SharedOptions::default();
    match text.trim() {
        "" | "0" => return Ok(None),
        "1" => return Ok(Some(options)),
        _ => {}
    }
    for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
        let odd = |why: &str| Error::Setup(format!("{CACHE_VARIABLE}: `{setting}`: {why}"));
        let (key, value) = setting.split_once('=').ok_or_else(|| odd("a setting is KEY=VALUE"))?;
        let size = || value.parse::<Size>().map(|size| size.0).map_err(|error| odd(&error.to_string()));
        match key.trim() {
            "cache" => options.cache_bytes = size()?,
            "block" => options.block_bytes = Some(size()?),
            "stripe" => options.stripe_bytes = Some(size()?),
            "placement" => {
                options.placement =
                    value.parse().map_err(|_| odd("it is `home`, `first-touch` or `last-writer`"))?;
            }
            "noncoherent" | "direct" => {
                let choice = match value.trim() {
                    "on" => Some(true),
                    "off" => Some(false),
                    "auto" => None,
                    _ => return Err(odd("it is `on`, `off` or `auto`")),
                };
                *(if key.trim() == "direct" { &mut options.direct } else { &mut options.noncoherent }) =
                    choice;
            }
            "write-behind" => {
                options.write_behind = match value.trim() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(odd("it is `on` or `off`")),
                };
            }
            _ => {
                return Err(odd(
                    "there is `cache`, `block`, `stripe`, `placement`, `noncoherent`, `direct` and `write-behind`",
                ));
            }
        }
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_off_on_or_says_more() {
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("0").unwrap(), None);
        assert_eq!(parse("1").unwrap(), Some(SharedOptions::default()));
        let options = parse("cache=1MiB, block=8KiB,stripe=64KiB,noncoherent=on,placement=home,direct=off")
            .unwrap()
            .unwrap();
        assert_eq!((options.cache_bytes, options.block_bytes), (1 << 20, Some(8 << 10)));
        assert_eq!((options.stripe_bytes, options.noncoherent), (Some(64 << 10), Some(true)));
        assert_eq!(options.direct, Some(false));
        assert!(options.write_behind);
        assert!(!parse("write-behind=off").unwrap().unwrap().write_behind);
        let first = parse("placement=first-touch").unwrap().unwrap();
        assert_eq!(first.placement, Placement::FirstTouch);
        for placement in Placement::ALL {
            let said = parse(&format!("placement={}", placement.word())).unwrap().unwrap();
            assert_eq!(said.placement, placement);
        }
        for odd in [
            "yes",
            "cache=much",
            "block",
            "placement=here",
            "noncoherent=1",
            "direct=maybe",
            "write-behind=1s",
            "size=4KiB",
        ] {
            let error = parse(odd).unwrap_err().to_string();
            assert!(error.contains(CACHE_VARIABLE) && error.contains(odd), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_path() {
        let wrong = [
            SharedOptions { read: false, write: false, ..SharedOptions::default() },
            SharedOptions { write: false, create: true, ..SharedOptions::default() },
            SharedOptions { block_bytes: Some(1000), ..SharedOptions::default() },
            SharedOptions { stripe_bytes: Some(8192), ..SharedOptions::default() },
            SharedOptions {
                block_bytes: Some(8192),
                stripe_bytes: Some(12 << 10),
                ..SharedOptions::default()
            },
        ];
        for options in wrong {
            let error = options.check(Path::new("/some/file")).unwrap_err();
            assert!(error.to_string().contains("/some/file"), "{error}");
        }
        SharedOptions::default().check(Path::new("f")).unwrap();
        for block in [4 << 10, 12 << 10, 256 << 10, 3 << 20, 1 << 30] {
            let stripe = SharedOptions::default().stripe_of(block);
            assert!(stripe.is_multiple_of(block) && stripe <= STRIPE_BYTES_MAX, "{block}: {stripe}");
        }
    }
}
