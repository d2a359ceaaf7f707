//! The commented partition file that `pario config default` prints and the guide shows.

use std::fmt::Write as _;

use super::keys::{Key, KeyKind};
use super::settings::written_default;

/// A partition file with every key, its default, and a line about it.
#[must_use]
pub fn default_file() -> String {
    let mut file = String::from(
        "# A Pario partition. Bring it up with: pario up FILE\n\
         # Sizes are numbers with a unit: 4096, 64KiB, 8MiB, 1.5GiB, 10MB. Unknown keys are refused.\n\
         # Marked (fixed): fixed when the partition is created; all others can be changed at each `pario up`.\n",
    );
    let mut section = "";
    for &key in Key::ALL {
        let (of, name) = key.section();
        if of != section {
            let _ = writeln!(file, "\n[{of}]");
            section = of;
        } else if section.is_empty() {
            file.push('\n');
        }
        let fixed = if key.info().kind == KeyKind::Structural { " (fixed)" } else { "" };
        let _ = writeln!(file, "# {}{fixed}", key.info().help);
        let default =
            || format!("{name} = {}", written_default(key).expect("a key has a default or an example"));
        let _ = writeln!(file, "{}", example(key).map_or_else(default, str::to_owned));
    }
    file
}

/// Keys without a default show how they are written.
fn example(key: Key) -> Option<&'static str> {
    const EXAMPLES: [(Key, &str); 3] = [
        (Key::Name, "name = \"scratch\""),
        (
            Key::Servers,
            "servers = [\"/tmp/scratch/0\", \"/tmp/scratch/1\", \"/tmp/scratch/2\", \"/tmp/scratch/3\"]",
        ),
        (Key::Metadata, "# metadata = \"/tmp/scratch/names\""),
    ];
    EXAMPLES.iter().find(|(of, _)| *of == key).map(|(_, example)| *example)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::config::Layers;
    use std::path::Path;

    #[test]
    fn default_file_says_what_is_the_default_anyway() {
        let full = Layers::new().text(&default_file(), Path::new("default")).unwrap().check().unwrap();
        let short = "name = \"scratch\"\nservers = [\"/tmp/scratch/0\", \"/tmp/scratch/1\", \"/tmp/scratch/2\", \"/tmp/scratch/3\"]";
        let short = Layers::new().text(short, Path::new("short")).unwrap().check().unwrap();
        for &key in Key::ALL {
            assert_eq!(full.value(key), short.value(key), "{key}");
        }
    }

    #[test]
    fn the_guide_shows_this_file_and_every_key() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/partition-file.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        assert!(guide.contains(&default_file()), "put this into the guide:\n{}", default_file());
        for key in Key::ALL {
            let info = key.info();
            let row =
                format!("| `{}` | `{}` | `{}` | {} |", info.path, info.variable, info.option, info.kind);
            assert!(guide.contains(&row), "the guide lacks the row {row}");
        }
    }
}
