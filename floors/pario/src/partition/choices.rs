//! Settings that are one word of a few.
//!
//! Never: accepts a word for something that does not exist; the complaint lists those that do.

use std::fmt;
use std::str::FromStr;

/// Why a word is not one of the choices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChoiceError {
    /// Another word.
    #[error("must be one of: {}", .exist.join(", "))]
    Unknown {
        /// What can be chosen.
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
            /// Every word there is.
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
    /// What a server stands on.
    StoreKind {
        /// Plain files through the page cache.
        Files = "files",
        /// Plain files past the page cache, with the server's own cache.
        Direct = "direct",
        /// Memory; gone when the servers are.
        Memory = "memory",
    }
}

choice! {
    /// How accesses of several processes are put together.
    Method {
        /// Chosen per access.
        Auto = "auto",
        /// Records taken and merged by the servers.
        ServerDirected = "server-directed",
        /// Merged in the application's own processes, then staged to the servers block by block.
        ClientDirected = "client-directed",
        /// The classic: exchanged by offset lists, written in large pieces by some of the processes.
        TwoPhase = "two-phase",
    }
}

choice! {
    /// Which request a server's store gets next.
    SchedulerKind {
        /// In order of arrival.
        Fifo = "fifo",
        /// Multilevel feedback: small ones first, neighbours together, files in turn.
        Mlf = "mlf",
        /// Weighted shortest job first.
        Wsjf = "wsjf",
        /// Shortest job first.
        Sjf = "sjf",
        /// By offset, the late first.
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
        assert_eq!(text("Files".parse::<StoreKind>().unwrap_err()), "must be one of: files, direct, memory");
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
