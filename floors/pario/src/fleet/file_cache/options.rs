//! Options of a cached plain file.

use std::path::Path;
use std::str::FromStr;

use pario_core::limits::{STRIPE_BYTES_DEFAULT, STRIPE_BYTES_MAX};
use pario_core::{Code, Fault, Size};
use serde::{Deserialize, Serialize};

use super::block::UNIT;
use crate::error::{Error, Result};

/// The variable that switches the cache on for plain paths: see [`from_env`].
pub const CACHE_VARIABLE: &str = "PARIO_CACHE";

/// The node at which a block is cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Placement {
    /// `LastWriter` if the group spans several nodes, else `Home`.
    #[default]
    Auto,
    /// At its home: blocks are distributed round-robin over the nodes.
    Home,
    /// At the node of the process that accessed it first; others access it there. After an eviction the next access places it
    /// again.
    FirstTouch,
    /// The same, but a block moves to the node of a process that overwrites all of it.
    LastWriter,
}

impl Placement {
    const ALL: [Placement; 4] =
        [Placement::Auto, Placement::Home, Placement::FirstTouch, Placement::LastWriter];

    /// The placement in force with so many servers, one per node: never [`Placement::Auto`] (decision 0020).
    pub(super) fn with_servers(self, servers: u16) -> Placement {
        match self {
            // With only one server every block is cached there in any case.
            _ if servers < 2 => Placement::Home,
            Placement::Auto => Placement::LastWriter,
            Placement::Home | Placement::FirstTouch | Placement::LastWriter => self,
        }
    }

    /// Whether blocks have no fixed placement.
    pub(super) fn is_movable(self) -> bool {
        matches!(self, Placement::FirstTouch | Placement::LastWriter)
    }

    /// Name in settings and hints.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Placement::Auto => "auto",
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
            Error::Setup(format!("placement `{word}`: use `auto`, `home`, `first-touch` or `last-writer`"))
        })
    }
}

/// Options of [`crate::open_cached`]; all members of the group must pass the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheOptions {
    /// Allow reading.
    pub read: bool,
    /// Allow writing.
    pub write: bool,
    /// Create the file if it is missing.
    pub create: bool,
    /// Create the file and fail if it exists.
    pub create_new: bool,
    /// Truncate the file to 0 bytes.
    pub truncate: bool,
    /// Permission bits of a new file, before the process's umask. Those of an existing file stay.
    pub mode: u32,
    /// Memory for blocks on each node, for all files that the group opens. 0: no caching; every access goes to the plain file.
    pub cache_bytes: u64,
    /// Bytes of a block, a multiple of 4 KiB. `None`: from the access sizes when the file was last open, and the preferred size
    /// of its file system.
    pub block_bytes: Option<u64>,
    /// Contiguous bytes with one home, a multiple of the block. `None`: 1 MiB or more.
    pub stripe_bytes: Option<u64>,
    /// The node at which a block is cached. `Auto`: by the last writer if the group spans several nodes, in which case writes should
    /// cover whole blocks; choose `Home` for pieces much smaller than a block that all nodes interleave.
    pub placement: Placement,
    /// Whether byte-range locks surround each access to the plain file, for file systems with client caches that are not
    /// coherent. `None`: on NFS, SMB and 9P.
    pub noncoherent: Option<bool>,
    /// Whether the members of a group on one node read and write the plain file themselves, through the kernel's page cache,
    /// instead of caching blocks of it. `None`: on file systems of that node (ext4, XFS, btrfs, tmpfs). Ignored on several nodes,
    /// and where `noncoherent` is in force.
    pub direct: Option<bool>,
    /// Whether blocks without a write for about 0.1 s are written to the plain file in the background. Otherwise they are written
    /// when memory is needed, at sync and at close.
    pub write_behind: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions {
            read: true,
            write: true,
            create: false,
            create_new: false,
            truncate: false,
            mode: 0o666,
            cache_bytes: 256 << 20,
            block_bytes: None,
            stripe_bytes: None,
            placement: Placement::Auto,
            noncoherent: None,
            direct: None,
            write_behind: true,
        }
    }
}

impl CacheOptions {
    /// Refuses invalid options.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let refuse =
            |code, text: &str| Err(Error::from(Fault::new(code, format!("{}: {text}", path.display()))));
        if !self.read && !self.write {
            return refuse(Code::Invalid, "open for neither reading nor writing");
        }
        if (self.create || self.create_new || self.truncate) && !self.write {
            return refuse(Code::Invalid, "create and truncate need a file that is open for writing");
        }
        let is_size = |bytes: u64| 0 < bytes && bytes.is_multiple_of(UNIT) && bytes <= STRIPE_BYTES_MAX;
        if self.block_bytes.is_some_and(|bytes| !is_size(bytes)) {
            return refuse(Code::Invalid, "the block size must be a multiple of 4 KiB, up to 1 GiB");
        }
        let divides = |stripe: u64| self.block_bytes.is_some_and(|block| stripe.is_multiple_of(block));
        if self.stripe_bytes.is_some_and(|bytes| !is_size(bytes) || !divides(bytes)) {
            return refuse(
                Code::Invalid,
                "the stripe size must be a multiple of the block size, which must be set with it",
            );
        }
        Ok(())
    }

    /// Contiguous bytes with one home, for blocks of that size.
    pub(super) fn stripe_of(&self, block_bytes: u64) -> u64 {
        self.stripe_bytes.unwrap_or_else(|| {
            STRIPE_BYTES_DEFAULT.next_multiple_of(block_bytes).min(
                // For the largest blocks one block per stripe is enough.
                STRIPE_BYTES_MAX.max(block_bytes) / block_bytes * block_bytes,
            )
        })
    }
}

/// The setting of `PARIO_CACHE`: off (`None`: unset, empty or `0`), the defaults (`1`), or settings such as
/// `cache=256MiB,block=1MiB,placement=home,noncoherent=on`.
pub fn from_env() -> Result<Option<CacheOptions>> {
    let Some(text) = std::env::var_os(CACHE_VARIABLE) else { return Ok(None) };
    let text =
        text.into_string().map_err(|_| Error::Setup(format!("{CACHE_VARIABLE} is not valid UTF-8")))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Option<CacheOptions>> {
    let mut options = CacheOptions::default();
    match text.trim() {
        "" | "0" => return Ok(None),
        "1" => return Ok(Some(options)),
        _ => {}
    }
    for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
        let odd = |why: &str| Error::Setup(format!("{CACHE_VARIABLE}: `{setting}`: {why}"));
        let (key, value) = setting.split_once('=').ok_or_else(|| odd("a setting must be KEY=VALUE"))?;
        let size = || value.parse::<Size>().map(|size| size.0).map_err(|error| odd(&error.to_string()));
        match key.trim() {
            "cache" => options.cache_bytes = size()?,
            "block" => options.block_bytes = Some(size()?),
            "stripe" => options.stripe_bytes = Some(size()?),
            "placement" => {
                options.placement =
                    value.parse().map_err(|_| odd("use `auto`, `home`, `first-touch` or `last-writer`"))?;
            }
            "noncoherent" | "direct" => {
                let choice = match value.trim() {
                    "on" => Some(true),
                    "off" => Some(false),
                    "auto" => None,
                    _ => return Err(odd("use `on`, `off` or `auto`")),
                };
                *(if key.trim() == "direct" { &mut options.direct } else { &mut options.noncoherent }) =
                    choice;
            }
            "write-behind" => {
                options.write_behind = match value.trim() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(odd("use `on` or `off`")),
                };
            }
            _ => {
                return Err(odd(
                    "the keys are `cache`, `block`, `stripe`, `placement`, `noncoherent`, `direct` and `write-behind`",
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
        assert_eq!(parse("1").unwrap(), Some(CacheOptions::default()));
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
    fn a_group_that_sets_nothing_follows_its_writers_across_nodes() {
        let placement = CacheOptions::default().placement;
        assert_eq!(placement.with_servers(1), Placement::Home);
        assert_eq!(placement.with_servers(2), Placement::LastWriter);
        for chosen in [Placement::Home, Placement::FirstTouch, Placement::LastWriter] {
            assert_eq!(chosen.with_servers(2), chosen);
            assert_eq!(chosen.with_servers(1), Placement::Home);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_path() {
        let wrong = [
            CacheOptions { read: false, write: false, ..CacheOptions::default() },
            CacheOptions { write: false, create: true, ..CacheOptions::default() },
            CacheOptions { block_bytes: Some(1000), ..CacheOptions::default() },
            CacheOptions { stripe_bytes: Some(8192), ..CacheOptions::default() },
            CacheOptions { block_bytes: Some(8192), stripe_bytes: Some(12 << 10), ..CacheOptions::default() },
        ];
        for options in wrong {
            let error = options.check(Path::new("/some/file")).unwrap_err();
            assert!(error.to_string().contains("/some/file"), "{error}");
        }
        CacheOptions::default().check(Path::new("f")).unwrap();
        for block in [4 << 10, 12 << 10, 256 << 10, 3 << 20, 1 << 30] {
            let stripe = CacheOptions::default().stripe_of(block);
            assert!(stripe.is_multiple_of(block) && stripe <= STRIPE_BYTES_MAX, "{block}: {stripe}");
        }
    }
}
