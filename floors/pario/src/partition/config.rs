//! Settings as they were written: the partition file, the environment, options, and what is stored, laid one over the other.
//!
//! Never: judges a value; [`Layers::check`] hands that to [`Settings`]. Always: default < stored < file < environment <
//! option, whatever the order in which the layers were added; a value knows the place it was written at.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::keys::{Key, Kind, Origin, Shape};
use super::settings::Settings;

/// Largest partition file: 1024 servers with the longest paths fit.
pub const PARTITION_FILE_BYTES_MAX: u64 = 8 << 20;

/// Where a value was written: its origin, and the line if that is a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// From where.
    pub origin: Origin,
    /// Line of the file, from 1.
    pub line: Option<usize>,
}

impl From<Origin> for Place {
    fn from(origin: Origin) -> Place {
        Place { origin, line: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, self.line) {
            (Origin::File(path), Some(line)) => write!(f, "{}:{line}", path.display()),
            (Origin::File(path), None) => write!(f, "{}", path.display()),
            (origin, _) => write!(f, "{origin}"),
        }
    }
}

/// Why settings cannot be used; each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot read the partition file: {source}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{place}: not a partition file: {text}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser says.
        text: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key '{key}'{}", suggestion(.nearest))]
    UnknownKey {
        /// Where.
        place: Place,
        /// As it was written.
        key: String,
        /// The known key it is most like.
        nearest: Option<&'static str>,
    },
    /// A value that breaks a rule.
    #[error("{place}: {key} = {value}: {rule}")]
    Value {
        /// Where.
        place: Place,
        /// Which key.
        key: String,
        /// As it was written.
        value: String,
        /// The rule, and the cure.
        rule: String,
    },
    /// A key that must be given is not.
    #[error("'{key}' is missing: {}", cure_of_missing(*.key))]
    Missing {
        /// Which.
        key: Key,
    },
    /// A structural setting is another than at creation.
    #[error(
        "{place}: {key} = {new}: partition '{partition}' was created with {old}, and {key} is fixed at creation; \
         take it out, or use another name, or remove the partition first with `pario down --destroy {partition}`"
    )]
    Structural {
        /// Where the new value was written.
        place: Place,
        /// Of which partition.
        partition: String,
        /// Which key.
        key: Key,
        /// Value at creation.
        old: String,
        /// Value now.
        new: String,
    },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(known) => format!(": did you mean '{known}'?"),
        None => format!(
            "; known are: {}",
            Key::ALL.iter().map(|key| key.info().path).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// A value as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "\"{}\"", text.escape_debug()),
            Value::List(items) => write!(f, "{items:?}"),
        }
    }
}

/// A value and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// Layers of settings, not checked yet.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    stored: Option<Settings>,
    file: BTreeMap<Key, Given>,
    environment: BTreeMap<Key, Given>,
    options: BTreeMap<Key, Given>,
}

impl Layers {
    /// No layer but the defaults.
    #[must_use]
    pub fn new() -> Layers {
        Layers::default()
    }

    /// What is stored with the partition; structural settings cannot become others than these.
    #[must_use]
    pub fn stored(mut self, settings: &Settings) -> Layers {
        self.stored = Some(settings.clone());
        self
    }

    /// A partition file.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
    pub fn file(self, path: &Path) -> Result<Layers, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(PARTITION_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if PARTITION_FILE_BYTES_MAX < text.len() as u64 {
            let limit = format!("it is larger than {PARTITION_FILE_BYTES_MAX} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, limit)));
        }
        self.text(&text, path)
    }

    /// The text of a partition file; `path` is for messages.
    ///
    /// # Errors
    /// As [`Layers::file`].
    pub fn text(mut self, text: &str, path: &Path) -> Result<Layers, ConfigError> {
        let source = Source { text, origin: Origin::File(path.to_owned()) };
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            place: source.place(error.span().map_or(0, |span| span.start)),
            text: error.message().trim().replace('\n', "; "),
        })?;
        source.read_table(table.get_ref(), "", &mut self.file)?;
        Ok(self)
    }

    /// The variables of the table, from this process's environment. An empty one counts as not set.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for a variable that is not text.
    pub fn environment(self) -> Result<Layers, ConfigError> {
        self.environment_from(|variable| std::env::var_os(variable))
    }

    /// The variables of the table, as `look_up` knows them.
    ///
    /// # Errors
    /// As [`Layers::environment`].
    pub fn environment_from(
        mut self,
        look_up: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Layers, ConfigError> {
        for &key in Key::ALL {
            let variable = key.info().variable;
            let Some(value) = look_up(variable).filter(|value| !value.is_empty()) else { continue };
            let place = Place::from(Origin::Environment(variable.to_owned()));
            let value = value.into_string().map_err(|value| ConfigError::Value {
                place: place.clone(),
                key: key.to_string(),
                value: format!("{value:?}"),
                rule: "must be text in UTF-8".to_owned(),
            })?;
            self.environment.insert(key, Given { value: plain(key, &value), place });
        }
        Ok(self)
    }

    /// One option of the command line. `flag` is what the user typed, which may stand for a key by another name.
    #[must_use]
    pub fn option(mut self, key: Key, value: &str, flag: &str) -> Layers {
        let given = Given { value: plain(key, value), place: Origin::Option(flag.to_owned()).into() };
        self.options.insert(key, given);
        self
    }

    /// An option that is a list, such as the servers that `--servers N --dir D` stands for.
    #[must_use]
    pub fn option_list(mut self, key: Key, values: Vec<String>, flag: &str) -> Layers {
        assert_eq!(key.info().shape, Shape::List, "{key} is no list");
        self.options
            .insert(key, Given { value: Value::List(values), place: Origin::Option(flag.to_owned()).into() });
        self
    }

    /// The partition's name as far as it was given, so that what is stored under it can be found before the check.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let given = [&self.options, &self.environment, &self.file]
            .into_iter()
            .find_map(|layer| layer.get(&Key::Name));
        match given.map(|given| &given.value) {
            Some(Value::Text(name)) => Some(name),
            Some(Value::List(_)) | None => None,
        }
    }

    /// The settings that result.
    ///
    /// # Errors
    /// [`ConfigError`] for the first value that breaks a rule, is missing, or changes what is fixed.
    pub fn check(self) -> Result<Settings, ConfigError> {
        let mut values = BTreeMap::new();
        if let Some(stored) = &self.stored {
            values.extend(
                stored.kept().map(|(key, value)| (key, Given { value, place: Origin::Stored.into() })),
            );
        }
        values.extend(self.file);
        values.extend(self.environment);
        values.extend(self.options);
        let settings = Settings::from_values(&values)?;
        if let Some(stored) = &self.stored {
            settings.check_unchanged(stored, |key| values.get(&key).map(|given| given.place.clone()))?;
        }
        Ok(settings)
    }
}

/// Where a key that has no default can be set.
fn cure_of_missing(key: Key) -> String {
    let (variable, option) = (key.info().variable, key.info().option);
    if key == Key::Servers {
        return format!("give them by `--servers 4 --dir /data`, by {variable} or in a partition file");
    }
    format!("set it in the partition file, by {variable} or by {option}")
}

impl Settings {
    /// Refuses structural settings that differ from those stored; `place_of` says where a key was written.
    pub(super) fn check_unchanged(
        &self,
        stored: &Settings,
        place_of: impl Fn(Key) -> Option<Place>,
    ) -> Result<(), ConfigError> {
        let structural = Key::ALL.iter().copied().filter(|key| key.info().kind == Kind::Structural);
        for key in structural {
            let (old, new) = (stored.value(key), self.value(key));
            if old != new {
                return Err(ConfigError::Structural {
                    place: place_of(key).unwrap_or_else(|| Place::from(self.origin(key).clone())),
                    partition: stored.name.clone(),
                    key,
                    old: old.to_string(),
                    new: new.to_string(),
                });
            }
        }
        Ok(())
    }
}

/// A value of the environment or the command line: text as it is, lists split at commas.
fn plain(key: Key, text: &str) -> Value {
    match key.info().shape {
        Shape::List => Value::List(text.split(',').map(|item| item.trim().to_owned()).collect()),
        Shape::Pairs => Value::List(
            text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect(),
        ),
        Shape::Text | Shape::Size | Shape::Fraction | Shape::Whole => Value::Text(text.to_owned()),
    }
}

/// A file's text, to find lines in.
struct Source<'a> {
    text: &'a str,
    origin: Origin,
}

impl Source<'_> {
    fn place(&self, at: usize) -> Place {
        let line = 1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        Place { origin: self.origin.clone(), line: Some(line) }
    }

    fn read_table(
        &self,
        table: &DeTable<'_>,
        section: &str,
        values: &mut BTreeMap<Key, Given>,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let path = if section.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{section}.{}", name.get_ref())
            };
            let place = self.place(name.span().start);
            match (Key::from_path(&path), value.get_ref()) {
                (Some(key), value) => {
                    let value = read_value(key, value, &place)?;
                    values.insert(key, Given { value, place });
                }
                (None, DeValue::Table(inner)) if section.is_empty() && !inner.is_empty() => {
                    self.read_table(inner, &path, values)?;
                }
                (None, value) => refuse_unless_empty_section(&path, value, place)?,
            }
        }
        Ok(())
    }
}

/// A key that is none: an empty `[cache]` is harmless, `cache = 5` and anything else is not.
fn refuse_unless_empty_section(path: &str, value: &DeValue<'_>, place: Place) -> Result<(), ConfigError> {
    if !Key::ALL.iter().any(|key| key.section().0 == path) {
        let nearest = Key::nearest(path);
        return Err(ConfigError::UnknownKey { place, key: path.to_owned(), nearest });
    }
    if value.is_table() {
        return Ok(());
    }
    let rule = format!("is a section: write [{path}] on a line of its own, and its keys below");
    Err(ConfigError::Value { place, key: path.to_owned(), value: shown(value), rule })
}

fn read_value(key: Key, value: &DeValue<'_>, place: &Place) -> Result<Value, ConfigError> {
    let shape = key.info().shape;
    let read = match (shape, value) {
        (Shape::Text | Shape::Size, DeValue::String(text)) => Some(Value::Text(text.to_string())),
        (Shape::Size | Shape::Whole | Shape::Fraction, DeValue::Integer(number)) if number.radix() == 10 => {
            Some(Value::Text(number.as_str().to_owned()))
        }
        (Shape::Fraction, DeValue::Float(number)) => Some(Value::Text(number.as_str().to_owned())),
        (Shape::List, DeValue::Array(items)) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
            texts.map(Value::List)
        }
        (Shape::Pairs, DeValue::Table(pairs)) => {
            let pair = |(name, number): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
                let DeValue::Integer(number) = number.get_ref() else { return None };
                (number.radix() == 10).then(|| format!("{}={}", name.get_ref(), number.as_str()))
            };
            pairs.iter().map(pair).collect::<Option<Vec<String>>>().map(Value::List)
        }
        _ => None,
    };
    read.ok_or_else(|| ConfigError::Value {
        place: place.clone(),
        key: key.to_string(),
        value: shown(value),
        rule: shape_rule(shape).to_owned(),
    })
}

fn shape_rule(shape: Shape) -> &'static str {
    match shape {
        Shape::Text => "must be a text in quotes",
        Shape::Size => "must be a size such as \"64KiB\", or a number of bytes",
        Shape::Fraction => "must be a number from 0 to 1",
        Shape::Whole => "must be a whole number",
        Shape::Pairs => "must be names with whole numbers, as in climate = 2",
        Shape::List => "must be a list of texts, as in [\"/data/0\", \"node1:/data\"]",
    }
}

/// A value of the wrong type, short.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{}\"", text.escape_debug()),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "[…]".to_owned(),
        DeValue::Table(_) => "{…}".to_owned(),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
