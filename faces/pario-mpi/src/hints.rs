//! Hints: requested by the user through `MPI_Info`, and in force.
//!
//! Never: fails on a hint; an invalid hint is ignored, as the standard demands. Always: the hints of rank 0 apply to all ranks.

use pario::core::Size;
use pario::partition::Method;
use pario::{CacheOptions, GroupFile, Hints};

/// A file of hints, one `key value` per line, as in ROMIO.
const HINTS_VARIABLE: &str = "PARIO_HINTS";
/// Limit of hints of one open.
const WISHES_MAX: usize = 256;
/// Limit of the file of hints.
const HINTS_BYTES_MAX: u64 = 64 << 10;
/// Limits of the two-phase buffer.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(256 << 20);

/// Hints as the program passed them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InfoHints(Vec<(String, String)>);

impl InfoHints {
    /// From `MPI_Info` and, for missing keys, from the file of hints.
    #[must_use]
    pub fn new(info: Vec<(String, String)>) -> InfoHints {
        let mut wishes = InfoHints(info);
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

    /// From `MPI_Info` alone, for a file that is already open.
    #[must_use]
    pub fn of_info(mut info: Vec<(String, String)>) -> InfoHints {
        info.truncate(WISHES_MAX);
        InfoHints(info)
    }

    /// Adds later hints, which override earlier ones.
    pub(crate) fn add(&mut self, later: InfoHints) {
        self.0.retain(|(key, _)| later.get(key).is_none());
        self.0.extend(later.0);
        self.0.truncate(WISHES_MAX);
    }

    /// Byte encoding, for the other ranks.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let lines: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}\u{1}{value}")).collect();
        lines.join("\u{2}").into_bytes()
    }

    /// Decodes another rank's hints.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> InfoHints {
        let text = String::from_utf8_lossy(bytes);
        let pairs = text.split('\u{2}').filter_map(|line| line.split_once('\u{1}'));
        InfoHints(pairs.take(WISHES_MAX).map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
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

    /// A count; a too large one is clipped where it is used.
    fn count(&self, keys: &[&str]) -> Option<u16> {
        let count: u64 = keys.iter().find_map(|key| self.get(key))?.trim().parse().ok()?;
        u16::try_from(count).ok().or(Some(u16::MAX)).filter(|count| *count != 0)
    }

    /// The value of a ROMIO hint that Pario does not use: as given if ROMIO would accept it, else its default.
    fn echoed(&self, hint: &Echo) -> String {
        let given = self.get(hint.key).map(|value| value.trim().to_ascii_lowercase());
        given.filter(|value| (hint.accepts)(value)).unwrap_or_else(|| hint.default.to_owned())
    }

    /// Decoded for Pario, for a group of `ranks` and a partition of `servers`, the limit of a file's stripe count.
    #[must_use]
    pub fn hints(&self, ranks: usize, servers: Option<usize>) -> Hints {
        let switch = |key: &str| match self.get(key)? {
            "1" | "true" | "enable" | "on" | "yes" => Some(true),
            "0" | "false" | "disable" | "off" | "no" => Some(false),
            _ => None,
        };
        let aggregators = self.count(&["pario_aggregators", "cb_nodes"]).map(usize::from);
        // ROMIO's `*:1` is one aggregator per node, as in Pario; `*:0` forbids aggregators.
        let forbidden = self.get("cb_config_list").is_some_and(|list| list.trim() == "*:0");
        let servers = servers.and_then(|servers| u16::try_from(servers).ok()).unwrap_or(u16::MAX);
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
            stripe_count: self.count(&["striping_factor"]).map(|count| count.min(servers)),
            tied_server: self.get("pario_server").and_then(|server| server.trim().parse().ok()),
        }
    }
}

impl InfoHints {
    /// Options of a cached plain file; hints override `options`.
    #[must_use]
    pub fn cache_options(&self, options: &CacheOptions) -> CacheOptions {
        let placement = self.get("pario_placement").and_then(|word| word.parse().ok());
        CacheOptions {
            placement: placement.unwrap_or(options.placement),
            cache_bytes: self.bytes(&["pario_cache_size"]).unwrap_or(options.cache_bytes),
            ..options.clone()
        }
    }
}

/// A hint that is reported as ROMIO does, and has no effect here.
struct Echo {
    key: &'static str,
    default: &'static str,
    accepts: fn(&str) -> bool,
}

fn is_switch(value: &str) -> bool {
    ["enable", "disable", "automatic"].contains(&value)
}

fn is_truth(value: &str) -> bool {
    ["true", "false"].contains(&value)
}

fn is_size(value: &str) -> bool {
    value.parse::<u32>().is_ok_and(|bytes| 0 < bytes)
}

/// Pario makes no offset list and does no data sieving, so these have no effect.
const ECHOES: [Echo; 6] = [
    Echo { key: "romio_ds_read", default: "automatic", accepts: is_switch },
    Echo { key: "romio_ds_write", default: "automatic", accepts: is_switch },
    Echo { key: "romio_no_indep_rw", default: "false", accepts: is_truth },
    Echo { key: "ind_rd_buffer_size", default: "4194304", accepts: is_size },
    Echo { key: "ind_wr_buffer_size", default: "524288", accepts: is_size },
    Echo { key: "cb_config_list", default: "*:1", accepts: |list| !list.is_empty() },
];
/// Pario decides whether ranks merge, unless the method demands it.
const MERGES: [Echo; 2] = [
    Echo { key: "romio_cb_read", default: "automatic", accepts: is_switch },
    Echo { key: "romio_cb_write", default: "automatic", accepts: is_switch },
];
/// ROMIO's buffer size, unused unless the method is two-phase.
const BUFFER: Echo = Echo { key: "cb_buffer_size", default: "16777216", accepts: is_size };

/// The hints in force for an open file, including those that ROMIO's users expect; `wishes` are those of rank 0.
pub(crate) fn in_force(file: &GroupFile, wishes: &InfoHints) -> Vec<(&'static str, String)> {
    let (layout, hints) = (file.layout(), file.hints());
    let exchanging = file.method() == Method::TwoPhase;
    let merging = exchanging || file.method() == Method::ClientDirected;
    let aggregators = hints.aggregators.unwrap_or_else(|| nodes(file));
    let buffer = match exchanging {
        true => hints.buffer_bytes.unwrap_or(pario::collective::BUFFER_BYTES).to_string(),
        false => wishes.echoed(&BUFFER),
    };
    let mut info = vec![
        ("pario_method", file.method().word().to_owned()),
        ("striping_unit", layout.stripe_bytes().to_string()),
        ("striping_factor", layout.count().to_string()),
        // Written bytes are visible to every rank of the group, without sync.
        ("romio_visibility_immediate", "true".to_owned()),
        ("pario_cache", hints.cache.unwrap_or(merging).to_string()),
        ("cb_nodes", aggregators.to_string()),
        (BUFFER.key, buffer),
    ];
    let merge = |echo: &Echo| if exchanging { "enable".to_owned() } else { wishes.echoed(echo) };
    info.extend(MERGES.iter().map(|echo| (echo.key, merge(echo))));
    info.extend(ECHOES.iter().map(|echo| (echo.key, wishes.echoed(echo))));
    if merging {
        info.push(("pario_aggregators", aggregators.to_string()));
    }
    if let Some(placement) = file.placement() {
        info.push(("pario_placement", placement.word().to_owned()));
    }
    if let Some(server) = hints.tied_server {
        info.push(("pario_server", server.to_string()));
    }
    info
}

/// Default: one aggregator per node.
fn nodes(file: &GroupFile) -> usize {
    let group = file.group();
    (0..group.size()).map(|rank| group.node_of(rank) + 1).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(pairs: &[(&str, &str)]) -> InfoHints {
        InfoHints(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
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
        let given = InfoHints::from_bytes(&given.to_bytes());
        let hints = given.hints(4, Some(8));
        assert_eq!((hints.aggregators, hints.buffer_bytes), (Some(4), Some(1 << 20)));
        assert_eq!((hints.stripe_bytes, hints.stripe_count), (Some(65536), Some(2)));
        assert_eq!((hints.method, hints.cache), (Some(Method::TwoPhase), Some(false)));
    }

    #[test]
    fn plain_files_take_the_hints_that_concern_their_cache() {
        let options = CacheOptions::default();
        let shared = wishes(&[("pario_placement", "first-touch"), ("pario_cache_size", "1MiB")])
            .cache_options(&options);
        assert_eq!((shared.placement, shared.cache_bytes), (pario::Placement::FirstTouch, 1 << 20));
        assert_eq!(
            wishes(&[("pario_placement", "here"), ("cb_nodes", "2")]).cache_options(&options),
            options
        );
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
        assert_eq!(given.hints(4, Some(2)), Hints::default());
    }

    #[test]
    fn more_servers_than_there_are_is_as_many_as_there_are() {
        for (wished, servers, expected) in
            [("8", Some(2), 2), ("2", Some(8), 2), ("9999999", Some(3), 3), ("70000", None, u16::MAX)]
        {
            let hints = wishes(&[("striping_factor", wished)]).hints(1, servers);
            assert_eq!(hints.stripe_count, Some(expected), "{wished} of {servers:?}");
        }
        assert_eq!(wishes(&[("striping_factor", "-1")]).hints(1, Some(2)).stripe_count, None);
    }

    #[test]
    fn hints_of_romio_are_told_as_romio_tells_them() {
        let given = wishes(&[
            ("romio_ds_read", "Disable"),
            ("ind_rd_buffer_size", "big"),
            ("cb_buffer_size", "4096"),
        ]);
        let told: Vec<String> = ECHOES.iter().map(|echo| given.echoed(echo)).collect();
        assert_eq!(told, ["disable", "automatic", "false", "4194304", "524288", "*:1"]);
        assert_eq!((given.echoed(&BUFFER), wishes(&[]).echoed(&BUFFER)), ("4096".into(), "16777216".into()));
    }

    #[test]
    fn what_the_program_says_goes_before_the_file() {
        let mut given = wishes(&[("cb_nodes", "2")]);
        given.fill("# comment\ncb_nodes 4\nstriping_factor  3\n\nalone\n");
        assert_eq!(given, wishes(&[("cb_nodes", "2"), ("striping_factor", "3")]));
    }
}
