//! Hints: what users wish by `MPI_Info`, and what is in force.
//!
//! Never: fails on a hint; one that makes no sense is ignored, as the standard says. Always: rank 0's wishes are everybody's.

use pario::core::Size;
use pario::partition::Method;
use pario::{GroupFile, Hints, SharedOptions};

/// A file of hints, one `key value` per line, as ROMIO has it.
const HINTS_VARIABLE: &str = "PARIO_HINTS";
/// Hints of one open.
const WISHES_MAX: usize = 256;
/// A file of hints is short.
const HINTS_BYTES_MAX: u64 = 64 << 10;
/// Two-phase buffers may be this large.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(256 << 20);

/// Hints as they were given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wishes(Vec<(String, String)>);

impl Wishes {
    /// Of `MPI_Info` and, where that says nothing, of the file of hints.
    #[must_use]
    pub fn new(info: Vec<(String, String)>) -> Wishes {
        let mut wishes = Wishes(info);
        let file = std::env::var_os(HINTS_VARIABLE).filter(|path| !path.is_empty());
        let small =
            file.filter(|path| std::fs::metadata(path).is_ok_and(|meta| meta.len() <= HINTS_BYTES_MAX));
        if let Some(text) = small.and_then(|path| std::fs::read_to_string(path).ok()) {
            wishes.fill(&text);
        }
        wishes.0.truncate(WISHES_MAX);
        wishes
    }

    fn fill(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Some((key, value)) = line.split_once(char::is_whitespace) else { continue };
            if self.get(key).is_none() {
                self.0.push((key.to_owned(), value.trim().to_owned()));
            }
        }
    }

    /// Of `MPI_Info` alone, for a file that is open already.
    #[must_use]
    pub fn of_info(mut info: Vec<(String, String)>) -> Wishes {
        info.truncate(WISHES_MAX);
        Wishes(info)
    }

    /// As bytes, for the others.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let lines: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}\u{1}{value}")).collect();
        lines.join("\u{2}").into_bytes()
    }

    /// From another's bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Wishes {
        let text = String::from_utf8_lossy(bytes);
        let pairs = text.split('\u{2}').filter_map(|line| line.split_once('\u{1}'));
        Wishes(pairs.take(WISHES_MAX).map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    fn bytes(&self, keys: &[&str]) -> Option<u64> {
        let value = keys.iter().find_map(|key| self.get(key))?.trim();
        value
            .parse()
            .ok()
            .or_else(|| value.parse::<Size>().ok().map(|size| size.0))
            .filter(|bytes| *bytes != 0)
    }

    fn count(&self, keys: &[&str]) -> Option<u16> {
        keys.iter().find_map(|key| self.get(key))?.trim().parse().ok().filter(|count| *count != 0)
    }

    /// As Pario understands them, for a group of `ranks`.
    #[must_use]
    pub fn hints(&self, ranks: usize) -> Hints {
        let switch = |key: &str| match self.get(key)? {
            "1" | "true" | "enable" | "on" | "yes" => Some(true),
            "0" | "false" | "disable" | "off" | "no" => Some(false),
            _ => None,
        };
        let aggregators = self.count(&["pario_aggregators", "cb_nodes"]).map(usize::from);
        // ROMIO's `*:1` is one aggregator a node, which is ours as well; `*:0` forbids them.
        let forbidden = self.get("cb_config_list").is_some_and(|list| list.trim() == "*:0");
        let stripe = self.bytes(&["striping_unit"]).filter(|bytes| bytes.is_power_of_two());
        Hints {
            method: self.get("pario_method").and_then(|word| word.parse::<Method>().ok()),
            aggregators: aggregators.map(|count| count.min(ranks)),
            buffer_bytes: self
                .bytes(&["pario_buffer", "cb_buffer_size"])
                .filter(|b| BUFFER_BYTES.contains(b)),
            cache_bytes: self.bytes(&["pario_cache_size"]),
            cache: switch("pario_cache").or(forbidden.then_some(false)),
            stripe_bytes: stripe,
            stripe_count: self.count(&["striping_factor"]),
            tied_server: self.get("pario_server").and_then(|server| server.trim().parse().ok()),
        }
    }
}

impl Wishes {
    /// What they say of a plain file that the ranks cache themselves; what they do not say stays.
    #[must_use]
    pub fn shared(&self, options: &SharedOptions) -> SharedOptions {
        let placement = self.get("pario_placement").and_then(|word| word.parse().ok());
        SharedOptions {
            placement: placement.unwrap_or(options.placement),
            cache_bytes: self.bytes(&["pario_cache_size"]).unwrap_or(options.cache_bytes),
            ..options.clone()
        }
    }
}

/// What is in force for an open file.
#[must_use]
pub fn in_force(file: &GroupFile) -> Vec<(&'static str, String)> {
    let (layout, hints) = (file.layout(), file.hints());
    let exchanging = file.method() == Method::TwoPhase;
    let merging = exchanging || file.method() == Method::ClientDirected;
    let mut info = vec![
        ("pario_method", file.method().word().to_owned()),
        ("striping_unit", layout.stripe_bytes().to_string()),
        ("striping_factor", layout.count().to_string()),
        // What a rank has written every rank of the group can read, without sync.
        ("romio_visibility_immediate", "true".to_owned()),
        ("romio_cb_write", if exchanging { "enable" } else { "disable" }.to_owned()),
        ("romio_cb_read", if exchanging { "enable" } else { "disable" }.to_owned()),
        ("romio_ds_write", "disable".to_owned()),
        ("romio_ds_read", "disable".to_owned()),
        ("pario_cache", hints.cache.unwrap_or(merging).to_string()),
    ];
    if merging {
        let aggregators = hints.aggregators.unwrap_or_else(|| nodes(file));
        info.push(("cb_nodes", aggregators.to_string()));
        info.push(("pario_aggregators", aggregators.to_string()));
    }
    if exchanging {
        let bytes = hints.buffer_bytes.unwrap_or(pario::collective::BUFFER_BYTES);
        info.push(("cb_buffer_size", bytes.to_string()));
    }
    if let Some(placement) = file.placement() {
        info.push(("pario_placement", placement.word().to_owned()));
    }
    if let Some(server) = hints.tied_server {
        info.push(("pario_server", server.to_string()));
    }
    info
}

/// One aggregator a node, where nothing else was wished.
fn nodes(file: &GroupFile) -> usize {
    let group = file.group();
    (0..group.size()).map(|rank| group.node_of(rank) + 1).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(pairs: &[(&str, &str)]) -> Wishes {
        Wishes(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn hints_of_romio_mean_what_they_meant() {
        let given = wishes(&[
            ("cb_nodes", "9"),
            ("cb_buffer_size", "1048576"),
            ("striping_unit", "65536"),
            ("striping_factor", "2"),
            ("pario_method", "two-phase"),
            ("pario_cache", "disable"),
        ]);
        let given = Wishes::from_bytes(&given.to_bytes());
        let hints = given.hints(4);
        assert_eq!((hints.aggregators, hints.buffer_bytes), (Some(4), Some(1 << 20)));
        assert_eq!((hints.stripe_bytes, hints.stripe_count), (Some(65536), Some(2)));
        assert_eq!((hints.method, hints.cache), (Some(Method::TwoPhase), Some(false)));
    }

    #[test]
    fn plain_files_take_the_hints_that_concern_their_cache() {
        let options = SharedOptions::default();
        let shared =
            wishes(&[("pario_placement", "first-touch"), ("pario_cache_size", "1MiB")]).shared(&options);
        assert_eq!((shared.placement, shared.cache_bytes), (pario::Placement::FirstTouch, 1 << 20));
        assert_eq!(wishes(&[("pario_placement", "here"), ("cb_nodes", "2")]).shared(&options), options);
    }

    #[test]
    fn nonsense_is_ignored() {
        let given = wishes(&[
            ("cb_nodes", "many"),
            ("striping_unit", "12345"),
            ("cb_buffer_size", "1"),
            ("pario_method", "magic"),
            ("unknown", "1"),
        ]);
        assert_eq!(given.hints(4), Hints::default());
    }

    #[test]
    fn what_the_program_says_goes_before_the_file() {
        let mut given = wishes(&[("cb_nodes", "2")]);
        given.fill("# comment\ncb_nodes 4\nstriping_factor  3\n\nalone\n");
        assert_eq!(given, wishes(&[("cb_nodes", "2"), ("striping_factor", "3")]));
    }
}
