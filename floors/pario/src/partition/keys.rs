//! The table of settings: key in the file, variable, option, kind, default, help. Read by the partition file, the environment,
//! the command line, `pario config show` and the default file.
//!
//! Always: every [`Key`] has one row; keys, variables and options are each unique.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Whether a setting can be changed after the partition was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// Fixed at creation and stored with the partition.
    Structural,
    /// May differ at each `up`.
    Dynamic,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::Structural => "structural",
            KeyKind::Dynamic => "dynamic",
        })
    }
}

/// Syntax of a setting in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueShape {
    /// A text in quotes.
    Text,
    /// A text such as `"64KiB"`, or a number of bytes.
    Size,
    /// A number from 0 to 1.
    Fraction,
    /// A whole number.
    Whole,
    /// A list of texts; separated by commas in the environment.
    List,
    /// A section of names with numbers; `name=number` separated by commas in the environment.
    Pairs,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    /// Path in the partition file, `section.key`.
    pub path: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Command-line option.
    pub option: &'static str,
    /// Structural or dynamic.
    pub kind: KeyKind,
    /// Syntax.
    pub shape: ValueShape,
    /// Default in the file's syntax, without quotes; `None`: required, or derived from others.
    pub default: Option<&'static str>,
    /// Help, one line.
    pub help: &'static str,
}

macro_rules! keys {
    ($($key:ident $path:literal $variable:literal $option:literal $kind:ident $shape:ident $default:expr, $help:literal;)*) => {
        /// One setting.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Key {
            $(#[doc = $help] $key,)*
        }

        impl Key {
            /// Every setting, in the order of the file.
            pub const ALL: &'static [Key] = &[$(Key::$key,)*];

            /// Its row of the table.
            #[must_use]
            pub fn info(self) -> KeyInfo {
                match self {
                    $(Key::$key => KeyInfo {
                        path: $path, variable: $variable, option: $option, kind: KeyKind::$kind, shape: ValueShape::$shape,
                        default: $default, help: $help,
                    },)*
                }
            }
        }
    };
}

keys! {
    Name "name" "PARIO_NAME" "--name" Structural Text None,
        "What the partition is called; files in it are pario://NAME/path.";
    Servers "servers" "PARIO_SERVERS" "--server" Structural List None,
        "One storage directory per server, \"/dir\" on this machine or \"host:/dir\" on another.";
    Metadata "metadata" "PARIO_METADATA" "--metadata" Structural Text None,
        "Directory of names and inodes, on the first server's machine; by default within the first server's directory.";
    Stripe "stripe" "PARIO_STRIPE" "--stripe" Structural Size Some("1MiB"),
        "Files are cut into blocks of this size and dealt to the servers in turn; a multiple of 4KiB.";
    Store "store" "PARIO_STORE" "--store" Structural Text Some("files"),
        "What servers stand on: files (page cache), direct (past it, own cache), log (containers), memory.";
    Checksums "checksums" "PARIO_CHECKSUMS" "--checksums" Structural Text Some("off"),
        "Keep checksums of stored bytes and compare them at every read: on, off; not with store = \"memory\".";
    Memory "memory" "PARIO_MEMORY" "--memory" Dynamic Size Some("4GiB"),
        "What each server holds at most with store = \"memory\".";
    Method "method" "PARIO_METHOD" "--method" Dynamic Text Some("auto"),
        "How accesses of several processes are put together: auto, server-directed, client-directed, two-phase.";
    Scheduler "scheduler" "PARIO_SCHEDULER" "--scheduler" Dynamic Text Some("fifo"),
        "Which request a store gets next: fifo, or mlf, wsjf, sjf, deadline, tbf, wfq; with those no descriptors are lent.";
    Weights "weights" "PARIO_WEIGHTS" "--weights" Dynamic Pairs Some(""),
        "Shares of applications by name, 1 to 1000; 1 for those not named, unless they ask for more.";
    Trace "trace" "PARIO_TRACE" "--trace" Dynamic Text Some(""),
        "Directory into which each server writes what its scheduler did when it ends; empty: nowhere.";
    Transport "transport" "PARIO_TRANSPORT" "--transport" Dynamic Text Some("auto"),
        "How clients reach servers: auto (unix socket and shared memory on one node, else TCP), unix, tcp.";
    Launch "launch" "PARIO_LAUNCH" "--launch" Dynamic Text Some("ssh {host} {command}"),
        "How servers on other machines are started.";
    Log "log" "PARIO_LOG" "--log" Dynamic Text Some("warn"),
        "What servers log: off, error, warn, info, debug, trace.";
    CacheOutbox "cache.outbox" "PARIO_CACHE_OUTBOX" "--outbox" Dynamic Size Some("16MiB"),
        "Memory of each client process from which servers take its writes.";
    CacheServer "cache.server" "PARIO_CACHE_SERVER" "--server-cache" Dynamic Size Some("256MiB"),
        "Memory of each server's own block cache.";
    CacheHigh "cache.high" "PARIO_CACHE_HIGH" "--high" Dynamic Fraction Some("0.75"),
        "Share of dirty blocks in that cache at which the server starts to write them out.";
    CacheLow "cache.low" "PARIO_CACHE_LOW" "--low" Dynamic Fraction Some("0.5"),
        "Share of dirty blocks at which it stops.";
    NetworkBuffer "network.buffer" "PARIO_NETWORK_BUFFER" "--buffer" Dynamic Size Some("1MiB"),
        "Largest piece of data in one message.";
    NetworkPort "network.port" "PARIO_NETWORK_PORT" "--port" Dynamic Whole Some("0"),
        "TCP port of the first server, the others follow; 0: any that is free.";
    NetworkProtect "network.protect" "PARIO_NETWORK_PROTECT" "--protect" Dynamic Text Some("full"),
        "Which connections are encrypted and authenticated: full (TCP between hosts), none, all (TCP on loopback too).";
    LimitsStore "limits.store" "PARIO_LIMITS_STORE" "--limit-store" Dynamic Size Some("0"),
        "What each server's store gets through in a second, as in 125MB; 0: as much as it can. It then lends no descriptors.";
    LimitsOperations "limits.operations" "PARIO_LIMITS_OPERATIONS" "--limit-operations" Dynamic Whole Some("0"),
        "How many calls each server's store gets through in a second; 0: as many as it can. It then lends no descriptors.";
}

impl Key {
    /// The key of a path in the file.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.info().path == path)
    }

    /// Section and key within it; the section is empty for keys at the top.
    #[must_use]
    pub fn section(self) -> (&'static str, &'static str) {
        self.info().path.split_once('.').unwrap_or(("", self.info().path))
    }

    /// The known key that an unknown path most likely means.
    #[must_use]
    pub fn nearest(path: &str) -> Option<&'static str> {
        let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
        let close = |known: &'static str| {
            // A key in the wrong section is found by its last component.
            edit_distance(path, known)
                .min(edit_distance(path.rsplit('.').next().unwrap_or(path), last(known)) + 1)
        };
        let best = Key::ALL.iter().map(|key| key.info().path).min_by_key(|known| close(known))?;
        (close(best) <= 1 + path.len() / 3).then_some(best)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().path)
    }
}

/// Insertions, deletions, replacements and transpositions that turn one text into the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().take(64).collect(), to.chars().collect());
    let mut rows = vec![vec![0usize; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
                let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if 1 < i && 1 < j && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[from.len()][to.len()]
}

/// Origin of a setting's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingOrigin {
    /// Not set.
    Default,
    /// Stored with the partition when it was created or last brought up.
    Stored,
    /// A partition file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A command-line option.
    Option(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::Stored => f.write_str("stored"),
            SettingOrigin::File(path) => write!(f, "file {}", path.display()),
            SettingOrigin::Environment(variable) => write!(f, "environment {variable}"),
            SettingOrigin::Option(option) => write!(f, "option {option}"),
        }
    }
}

impl FromStr for SettingOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<SettingOrigin, String> {
        match text.split_once(' ') {
            None if text == "default" => Ok(SettingOrigin::Default),
            None if text == "stored" => Ok(SettingOrigin::Stored),
            Some(("file", path)) => Ok(SettingOrigin::File(PathBuf::from(path))),
            Some(("environment", variable)) => Ok(SettingOrigin::Environment(variable.to_owned())),
            Some(("option", option)) => Ok(SettingOrigin::Option(option.to_owned())),
            _ => Err(format!("'{text}' is not an origin of a setting")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn paths_variables_and_options_are_unique() {
        for field in
            [(|info| info.path) as fn(KeyInfo) -> &'static str, |info| info.variable, |info| info.option]
        {
            let all: BTreeSet<_> = Key::ALL.iter().map(|key| field(key.info())).collect();
            assert_eq!(all.len(), Key::ALL.len());
        }
        for key in Key::ALL {
            assert_eq!(Key::from_path(key.info().path), Some(*key));
            assert!(!key.info().help.contains('\n'));
        }
    }

    #[test]
    fn nearest_key_is_what_a_person_meant() {
        for (typed, meant) in [
            ("strpe", Some("stripe")),
            ("stripes", Some("stripe")),
            ("server", Some("servers")),
            ("Name", Some("name")),
            ("cache.outbx", Some("cache.outbox")),
            ("outbox", Some("cache.outbox")),
            ("network.prot", Some("network.port")),
            ("metdata", Some("metadata")),
            ("colour-of-the-sky", None),
            ("x", None),
        ] {
            assert_eq!(Key::nearest(typed), meant, "{typed}");
        }
    }

    #[test]
    fn origins_survive_text() {
        for origin in [
            SettingOrigin::Default,
            SettingOrigin::Stored,
            SettingOrigin::File("/a b/c.toml".into()),
            SettingOrigin::Environment("PARIO_LOG".into()),
            SettingOrigin::Option("--stripe".into()),
        ] {
            assert_eq!(origin.to_string().parse(), Ok(origin));
        }
        assert!("nonsense".parse::<SettingOrigin>().is_err());
    }
}
