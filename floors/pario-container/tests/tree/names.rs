//! Names become file names that no two names share.

use std::collections::HashMap;

use pario_container::LinkName;
use pario_container::names::{FILE_NAME_MAX, file_name};
use proptest::prelude::*;

fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= FILE_NAME_MAX
        && !name.starts_with('.')
        && !name.contains(['/', '@', '\0'])
        && !name.chars().any(char::is_control)
}

proptest! {
    #[test]
    fn every_name_is_a_safe_file_name(name in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(is_safe(&file_name(&LinkName(name))));
    }

    #[test]
    fn different_names_are_different_files(
        // Few characters, among them all that are escaped and the digits of escapes: collisions are likely if there are any.
        first in "[.%@/a04~5Ff2]{0,8}", second in "[.%@/a04~5Ff2]{0,8}",
    ) {
        let same = file_name(&LinkName::from(first.as_str())) == file_name(&LinkName::from(second.as_str()));
        prop_assert_eq!(same, first == second);
    }

    #[test]
    fn names_survive_json(name in prop::collection::vec(1_u8.., 0..40)) {
        let name = LinkName(name);
        let text = serde_json::to_string(&name).unwrap();
        prop_assert_eq!(serde_json::from_str::<LinkName>(&text).unwrap(), name);
    }
}

#[test]
fn long_names_that_differ_at_the_end_are_different_files() {
    let mut seen = HashMap::new();
    for number in 0..2000 {
        let name = format!("{}{number}", "x".repeat(300));
        let file = file_name(&LinkName::from(name.as_str()));
        assert!(file.len() <= FILE_NAME_MAX, "{file}");
        assert_eq!(seen.insert(file, number), None, "{number}");
    }
    // A name that looks like a cut one is escaped.
    let cut = seen.keys().next().unwrap().clone();
    assert_ne!(file_name(&LinkName::from(cut.as_str())), cut);
}

#[test]
fn readable_names_stay_readable() {
    for (name, file) in [
        ("wave", "wave"),
        ("höhe 1", "höhe 1"),
        (".hidden", "%2ehidden"),
        ("a@b", "a%40b"),
        ("50%", "50%25"),
        ("", "%"),
    ] {
        assert_eq!(file_name(&LinkName::from(name)), file);
    }
}
