//! Shell patterns over bytes: `*`, `?`, `[a-z]`, `[!a-z]`, `\x`. A star matches a leading dot, as in `find -name`.

/// Whether all of `name` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // Retry position if the text after the last star does not match: the star matches one byte more.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(at) {
            None if of == name.len() => return true,
            Some(b'*') => {
                retry = Some((at, of));
                at += 1;
                continue;
            }
            None => None,
            Some(_) => name.get(of).and_then(|byte| one(&pattern[at..], *byte)),
        };
        match (step, retry) {
            (Some(used), _) => (at, of) = (at + used, of + 1),
            (None, Some((star, from))) if from < name.len() => {
                retry = Some((star, from + 1));
                (at, of) = (star + 1, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Length of the pattern's first element if it matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => set(rest, byte).or((byte == b'[').then_some(1)),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// A set after its bracket. An unclosed bracket is no set.
fn set(rest: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    // A bracket in the first position is a member.
    let end = start + 1 + rest.get(start + 1..)?.iter().position(|byte| *byte == b']')?;
    let (mut members, mut found) = (&rest[start..end], false);
    while let [first, more @ ..] = members {
        let (last, used) = match more {
            [b'-', last, ..] => (*last, 2),
            _ => (*first, 0),
        };
        found |= (*first..=last).contains(&byte);
        members = &more[used..];
    }
    (found != negated).then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, fits: &[&str], others: &[&str]) {
        for name in fits {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} fits {name}");
        }
        for name in others {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} does not fit {name}");
        }
    }

    #[test]
    fn patterns_are_those_of_a_shell() {
        check("*.dat", &["a.dat", ".dat", "a.b.dat"], &["a.data", "dat"]);
        check("a*b*c", &["abc", "aXbYc", "abcbc"], &["ab", "acb"]);
        check("f?o", &["foo", "f.o"], &["fo", "fooo"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
        check("[!a-c]x", &["dx"], &["ax"]);
        check("[]x]", &["]", "x"], &["[", "a"]);
        check("\\*", &["*"], &["a"]);
        check("[", &["["], &["a"]);
        check("", &[""], &["a"]);
        check("*", &["", "anything"], &[]);
    }
}
