//! The launch command: a line such as `ssh {host} {command}` that starts a server on another machine.
//!
//! The line is split into words as a shell would, quotes and backslashes included, but no shell runs and nothing else is
//! expanded. `{command}` as a word of its own becomes the words of the command; inside a longer word (`"exec {command}"`)
//! it becomes one text, quoted for a shell. `{foreground}` is the same command for launchers that end what they started
//! when it returns (such as `srun`): the server stays in the launched process instead of leaving it.

use std::fmt;
use std::str::FromStr;

/// A launch command that was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    text: String,
    words: Vec<String>,
}

/// Why a text is not a launch command.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TemplateError {
    /// An unclosed quote, or a backslash at the end.
    #[error("a quote is not closed, or a backslash ends the line")]
    Quote,
    /// A required placeholder.
    #[error(
        "must have {{host}} in it, and {{command}} (or {{foreground}}) once, as in \"ssh {{host}} {{command}}\""
    )]
    Placeholders,
    /// An unknown placeholder.
    #[error("'{{{name}}}' means nothing here; known are {{host}}, {{command}} and {{foreground}}")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A placeholder where the program must be.
    #[error("must start with a program, not with a placeholder")]
    Program,
}

const HOST: &str = "{host}";
const COMMAND: &str = "{command}";
const FOREGROUND: &str = "{foreground}";

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Template, TemplateError> {
        let words = split_words(text).ok_or(TemplateError::Quote)?;
        let count = |name: &str| words.iter().map(|word| word.matches(name).count()).sum::<usize>();
        if let Some(name) = words.iter().find_map(|word| unknown_placeholder(word)) {
            return Err(TemplateError::Unknown { name });
        }
        if count(HOST) == 0 || count(COMMAND) + count(FOREGROUND) != 1 {
            return Err(TemplateError::Placeholders);
        }
        if words[0].contains('{') || words[0].is_empty() {
            return Err(TemplateError::Program);
        }
        Ok(Template { text: text.to_owned(), words })
    }
}

/// An unknown placeholder. Only plain words count: `{}` and shell code in braces are left alone.
fn unknown_placeholder(word: &str) -> Option<String> {
    let parts = word.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
    let mut plain =
        parts.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    plain.find(|name| !["host", "command", "foreground"].contains(name)).map(str::to_owned)
}

/// Words of a line, split as by a shell; `None` if a quote is unclosed.
fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(characters.next()?),
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

impl Template {
    /// The command line for a host. `background` and `foreground` are the server's command in its two forms.
    #[must_use]
    pub fn expand(&self, host: &str, background: &[String], foreground: &[String]) -> Vec<String> {
        let mut words = Vec::new();
        for word in &self.words {
            match word.as_str() {
                COMMAND => words.extend_from_slice(background),
                FOREGROUND => words.extend_from_slice(foreground),
                _ => words.push(
                    word.replace(HOST, host)
                        .replace(COMMAND, &quoted(background))
                        .replace(FOREGROUND, &quoted(foreground)),
                ),
            }
        }
        words
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Words as one text that a shell splits into the same words.
fn quoted(words: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[track_caller]
    fn check(template: &str, expected: &[&str]) {
        let template: Template = template.parse().unwrap();
        let words =
            template.expand("n1", &texts(&["/my bin/pario", "serve", "-b"]), &texts(&["/p", "serve"]));
        assert_eq!(words, texts(expected));
    }

    #[test]
    fn puts_host_and_command_in_their_places() {
        check("ssh {host} {command}", &["ssh", "n1", "/my bin/pario", "serve", "-b"]);
        check("ssh root@{host} \"exec {command}\"", &["ssh", "root@n1", "exec '/my bin/pario' serve -b"]);
        check("srun -w {host} --  {foreground}", &["srun", "-w", "n1", "--", "/p", "serve"]);
        check(
            r#"a\ b 'x y'"z" {host}{host} {command}"#,
            &["a b", "x yz", "n1n1", "/my bin/pario", "serve", "-b"],
        );
        check(
            "sh -c 'f() { :; }; exec {foreground}' {host}",
            &["sh", "-c", "f() { :; }; exec /p serve", "n1"],
        );
    }

    #[test]
    fn refuses_lines_that_cannot_work() {
        for (text, expected) in [
            ("ssh 'x {host} {command}", TemplateError::Quote),
            ("ssh {host} {command} \\", TemplateError::Quote),
            ("", TemplateError::Placeholders),
            ("ssh {host}", TemplateError::Placeholders),
            ("ssh n1 {command}", TemplateError::Placeholders),
            ("ssh {host} {command} {foreground}", TemplateError::Placeholders),
            ("ssh {hots} {command}", TemplateError::Unknown { name: "hots".into() }),
            ("{command} {host}", TemplateError::Program),
        ] {
            assert_eq!(text.parse::<Template>(), Err(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn quoted_words_split_into_themselves(words in prop::collection::vec("[ -~]{0,12}", 1..6)) {
            prop_assert_eq!(split_words(&quoted(&words)), Some(words));
        }
    }
}
