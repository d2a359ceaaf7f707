//! Settings with a fixed set of words.
//!
//! Never: accepts a word without an implementation; the error lists the accepted words.

use std::fmt;
use std::str::FromStr;

use pario_net::protect::Protect;

/// Why a word is not one of the choices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChoiceError {
    /// An unknown word.
    #[error("must be one of: {}", .exist.join(", "))]
    Unknown {
        /// The accepted words.
        exist: Vec<&'static str>,
    },
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All accepted words.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// Its word.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl FromStr for $name {
            type Err = ChoiceError;

            fn from_str(word: &str) -> Result<Self, ChoiceError> {
                match word {
                    $($word => Ok($name::$variant),)*
                    _ => Err(ChoiceError::Unknown { exist: Self::WORDS.to_vec() }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

choice! {
    /// Storage backend of a server.
    StoreKind {
        /// Plain files through the page cache.
        Files = "files",
        /// Plain files past the page cache, with the server's own cache.
        Direct = "direct",
        /// Containers: writes are appended to logs.
        Log = "log",
        /// Memory; lost when the servers end.
        Memory = "memory",
    }
}

choice! {
    /// Whether servers keep checksums of what they store.
    ChecksumsKind {
        /// CRC32C of each 16 KiB, compared at every read.
        On = "on",
        /// None.
        Off = "off",
    }
}

impl From<ChecksumsKind> for pario_server::stores::Checksums {
    fn from(kind: ChecksumsKind) -> Self {
        match kind {
            ChecksumsKind::On => pario_server::stores::Checksums::On,
            ChecksumsKind::Off => pario_server::stores::Checksums::Off,
        }
    }
}

choice! {
    /// Collective I/O method.
    Method {
        /// Chosen per access.
        Auto = "auto",
        /// Records drained and merged by the servers.
        ServerDirected = "server-directed",
        /// Merged in the application's processes, then sent to the servers block by block.
        ClientDirected = "client-directed",
        /// Two-phase I/O: exchanged by offset lists, written in large pieces by aggregators.
        TwoPhase = "two-phase",
    }
}

choice! {
    /// Order of a store's requests.
    SchedulerKind {
        /// In order of arrival.
        Fifo = "fifo",
        /// Multilevel feedback: small requests first, adjacent ones merged, files round-robin.
        Mlf = "mlf",
        /// Weighted shortest job first.
        Wsjf = "wsjf",
        /// Shortest job first.
        Sjf = "sjf",
        /// By offset, late requests first.
        Deadline = "deadline",
        /// A token bucket for each application.
        Tbf = "tbf",
        /// Weighted fair queueing by application.
        Wfq = "wfq",
    }
}

choice! {
    /// How clients reach servers.
    TransportChoice {
        /// Unix socket and shared memory on one node, TCP between nodes.
        Auto = "auto",
        /// Unix socket only.
        Unix = "unix",
        /// TCP also on one node.
        Tcp = "tcp",
    }
}

choice! {
    /// Which connections are encrypted and authenticated.
    ProtectChoice {
        /// TCP between hosts.
        Full = "full",
        /// None.
        None = "none",
        /// TCP between hosts and on loopback.
        All = "all",
    }
}

impl From<ProtectChoice> for Protect {
    fn from(choice: ProtectChoice) -> Protect {
        match choice {
            ProtectChoice::Full => Protect::Full,
            ProtectChoice::None => Protect::None,
            ProtectChoice::All => Protect::All,
        }
    }
}

impl ProtectChoice {
    /// The environment's choice, for connections outside a partition: between the ranks of a group, and of its cache.
    ///
    /// # Errors
    /// A word that is none of the choices.
    pub fn of_environment() -> Result<ProtectChoice, String> {
        let chosen = crate::environment::choice(super::keys::Key::NetworkProtect.info().variable);
        chosen.map(|choice| choice.unwrap_or(ProtectChoice::Full)).map_err(|error| error.to_string())
    }
}

/// What is logged: a level, or levels by part as in `warn,pario_server=debug`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFilter(String);

/// Levels of a log, quietest first.
pub const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let good_part = |part: &str| {
            let (target, level) = part.split_once('=').unwrap_or(("any", part));
            let target_good =
                !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c));
            target_good && LOG_LEVELS.contains(&level)
        };
        if text.split(',').all(good_part) {
            return Ok(LogFilter(text.to_owned()));
        }
        Err(format!(
            "must be one of: {}; or such words by part, as in \"warn,pario_server=debug\"",
            LOG_LEVELS.join(", ")
        ))
    }
}

impl LogFilter {
    /// As text, in the form that log filters read.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back() {
        for word in StoreKind::WORDS {
            assert_eq!(word.parse::<StoreKind>().unwrap().word(), *word);
        }
        for word in Method::WORDS {
            assert_eq!(word.parse::<Method>().unwrap().word(), *word);
        }
        assert_eq!(SchedulerKind::WORDS, pario_server::sched::policy_names());
        for word in SchedulerKind::WORDS {
            assert_eq!(word.parse::<SchedulerKind>().unwrap().word(), *word);
        }
        for word in TransportChoice::WORDS {
            assert_eq!(word.parse::<TransportChoice>().unwrap().word(), *word);
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        let text = |error: ChoiceError| error.to_string();
        assert_eq!(
            text("cfq".parse::<SchedulerKind>().unwrap_err()),
            "must be one of: fifo, mlf, wsjf, sjf, deadline, tbf, wfq"
        );
        assert_eq!(
            text("Files".parse::<StoreKind>().unwrap_err()),
            "must be one of: files, direct, log, memory"
        );
    }

    #[test]
    fn log_filters_are_levels_or_levels_by_part() {
        for good in ["warn", "off", "warn,pario_server=debug", "pario_net::frame=trace"] {
            assert_eq!(good.parse::<LogFilter>().unwrap().as_str(), good);
        }
        for bad in ["", "loud", "warn,", "=warn", "x=loud", "WARN", "a b=warn"] {
            assert!(bad.parse::<LogFilter>().unwrap_err().contains("off, error, warn"), "{bad}");
        }
    }
}
