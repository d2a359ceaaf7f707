//! Changes of permission bits as `chmod` writes them: octal, or clauses such as `u+x,go-w,a=rX`.

use std::str::FromStr;

/// A parsed change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModeChange(Vec<Clause>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clause {
    Octal(u32),
    Symbolic(Symbolic),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Symbolic {
    /// User, group, others.
    classes: [bool; 3],
    operator: Operator,
    /// Read, write, execute as one digit.
    bits: u32,
    /// `X`: execute only for directories, and for files that some class may execute.
    execute_if_sensible: bool,
    set_id: bool,
    sticky: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Remove,
    Set,
}

impl ModeChange {
    /// The bits after the change.
    pub(crate) fn apply(&self, mode: u32, directory: bool) -> u32 {
        self.0.iter().fold(mode, |mode, clause| match clause {
            Clause::Octal(bits) => *bits,
            Clause::Symbolic(symbolic) => symbolic.apply(mode, directory),
        })
    }
}

impl Symbolic {
    fn apply(&self, mode: u32, directory: bool) -> u32 {
        let sensible = self.execute_if_sensible && (directory || mode & 0o111 != 0);
        let digit = self.bits | u32::from(sensible);
        let (mut bits, mut mask) = (0, 0);
        for (class, chosen) in self.classes.into_iter().enumerate() {
            let shift = 6 - 3 * class;
            let set_id = [0o4000, 0o2000, 0][class];
            if chosen {
                bits |= digit << shift | if self.set_id { set_id } else { 0 };
                mask |= 0o7 << shift | set_id;
            }
        }
        if self.sticky {
            bits |= 0o1000;
        }
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => mode & !mask | bits,
        }
    }
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ModeChange, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
            let bits = bits.ok_or_else(|| format!("{text} is no octal mode of 0 to 7777"))?;
            return Ok(ModeChange(vec![Clause::Octal(bits)]));
        }
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            clauses.extend(
                clauses_of(clause).ok_or_else(|| {
                    format!("'{clause}' is not [ugoa][+-=][rwxXst], for instance u+x or go-w")
                })?,
            );
        }
        Ok(ModeChange(clauses))
    }
}

/// `u+x-w` is two clauses for the same classes.
fn clauses_of(text: &str) -> Option<Vec<Clause>> {
    let start = text.find(['+', '-', '='])?;
    let (classes, mut rest) = text.split_at(start);
    let mut who = [false; 3];
    for class in classes.chars() {
        match class {
            'a' => who = [true; 3],
            _ => who["ugo".find(class)?] = true,
        }
    }
    if classes.is_empty() {
        who = [true; 3];
    }
    let mut clauses = Vec::new();
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        let mut symbolic = Symbolic {
            classes: who,
            operator,
            bits: 0,
            execute_if_sensible: false,
            set_id: false,
            sticky: false,
        };
        for letter in rest[1..end].chars() {
            match letter {
                'r' => symbolic.bits |= 4,
                'w' => symbolic.bits |= 2,
                'x' => symbolic.bits |= 1,
                'X' => symbolic.execute_if_sensible = true,
                's' => symbolic.set_id = true,
                't' => symbolic.sticky = true,
                _ => return None,
            }
        }
        clauses.push(Clause::Symbolic(symbolic));
        rest = &rest[end..];
    }
    Some(clauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: &str, before: u32, directory: bool, after: u32) {
        let changed = change.parse::<ModeChange>().unwrap().apply(before, directory);
        assert_eq!(changed, after, "{change} of {before:o}: {changed:o}, expected {after:o}");
    }

    #[test]
    fn changes_are_those_of_chmod() {
        check("640", 0o777, false, 0o640);
        check("u+x", 0o644, false, 0o744);
        check("go-w", 0o666, false, 0o644);
        check("a=r", 0o777, false, 0o444);
        check("+x", 0o644, false, 0o755);
        check("u+rwX,go-w", 0o066, false, 0o644);
        check("u=rwX", 0o070, false, 0o770);
        check("a+X", 0o644, false, 0o644);
        check("a+X", 0o644, true, 0o755);
        check("u+s,+t", 0o755, false, 0o5755);
        check("u=rwx", 0o4644, false, 0o744);
        check("u+x-w", 0o644, false, 0o544);
    }

    #[test]
    fn what_is_no_change_is_refused() {
        for text in ["", "9", "10000", "u", "z+x", "u+q", "u+x,", "u*x"] {
            assert!(text.parse::<ModeChange>().is_err(), "{text}");
        }
    }
}
