//! Names of partitions.

/// Longest name of a partition.
pub const PARTITION_NAME_BYTES_MAX: usize = 64;

/// Why a text cannot name a partition.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a partition's name must not be empty")]
    Empty,
    /// Too long.
    #[error("a partition's name has at most {PARTITION_NAME_BYTES_MAX} characters, this one has {got}")]
    TooLong {
        /// How long it is.
        got: usize,
    },
    /// A slash: usually a path was meant.
    #[error("a partition's name must not have a slash; a file in it is written pario://NAME/path")]
    Slash,
    /// A first character that would look hidden or like an option.
    #[error("a partition's name must not start with '{start}'")]
    Start {
        /// The first character.
        start: char,
    },
    /// Any other character.
    #[error("a partition's name has only letters a-z and A-Z, digits, '.', '_' and '-', not '{}'", .character.escape_default())]
    Character {
        /// The first that is not allowed.
        character: char,
    },
}

/// Checks a partition's name.
///
/// # Errors
/// [`NameError`] with the first rule that the name breaks.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.contains('/') {
        return Err(NameError::Slash);
    }
    if let Some(character) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !".-_".contains(*c)) {
        return Err(NameError::Character { character });
    }
    if let Some(start) = name.chars().next().filter(|c| ".-".contains(*c)) {
        return Err(NameError::Start { start });
    }
    if PARTITION_NAME_BYTES_MAX < name.len() {
        return Err(NameError::TooLong { got: name.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        for name in ["a", "scratch", "run-1.v2_x", "0", "_x", &"n".repeat(64)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn each_rule_has_its_own_message() {
        let cases = [
            ("", NameError::Empty),
            ("a/b", NameError::Slash),
            ("/", NameError::Slash),
            (".hidden", NameError::Start { start: '.' }),
            ("-x", NameError::Start { start: '-' }),
            ("a b", NameError::Character { character: ' ' }),
            ("größe", NameError::Character { character: 'ö' }),
            ("a\nb", NameError::Character { character: '\n' }),
            (&"n".repeat(65), NameError::TooLong { got: 65 }),
        ];
        for (name, expected) in cases {
            assert_eq!(check_name(name), Err(expected.clone()), "{name}");
            assert!(!expected.to_string().contains('\n'));
        }
    }
}
