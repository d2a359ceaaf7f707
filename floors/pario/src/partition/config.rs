//! Raw settings: the partition file, the environment, options and stored settings, in layers.
//!
//! Never: validates a value; [`Layers::check`] passes that to [`Settings`]. Always: default < stored < file < environment <
//! option, independent of the order in which layers are added; a value keeps its origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::keys::{Key, KeyKind, SettingOrigin, ValueShape};
use super::settings::Settings;

/// Largest partition file: 1024 servers with the longest paths fit.
pub const PARTITION_FILE_BYTES_MAX: u64 = 8 << 20;

/// Origin of a value, and its line if that is a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingSource {
    /// The origin.
    pub origin: SettingOrigin,
    /// Line of the file, from 1.
    pub line: Option<usize>,
}

impl From<SettingOrigin> for SettingSource {
    fn from(origin: SettingOrigin) -> SettingSource {
        SettingSource { origin, line: None }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, self.line) {
            (SettingOrigin::File(path), Some(line)) => write!(f, "{}:{line}", path.display()),
            (SettingOrigin::File(path), None) => write!(f, "{}", path.display()),
            (origin, _) => write!(f, "{origin}"),
        }
    }
}

/// Why settings are invalid; each prints as one line.
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
        /// Its origin.
        place: SettingSource,
        /// The parser's message.
        text: String,
    },
    /// A key that does not exist.
    #[error("{place}: unknown key '{key}'{}", suggestion(.nearest))]
    UnknownKey {
        /// Its origin.
        place: SettingSource,
        /// As it was written.
        key: String,
        /// The known key it is most like.
        nearest: Option<&'static str>,
    },
    /// A value that breaks a rule.
    #[error("{place}: {key} = {value}: {rule}")]
    Value {
        /// Its origin.
        place: SettingSource,
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
    /// A structural setting differs from its value at creation.
    #[error(
        "{place}: {key} = {new}: partition '{partition}' was created with {old}, and {key} is fixed at creation; \
         take it out, or use another name, or remove the partition first with `pario down --destroy {partition}`"
    )]
    Structural {
        /// Origin of the new value.
        place: SettingSource,
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

/// A raw value.
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

/// A value and its origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GivenValue {
    pub(super) value: Value,
    pub(super) source: SettingSource,
}

/// Layers of settings, not checked.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    stored: Option<Settings>,
    file: BTreeMap<Key, GivenValue>,
    environment: BTreeMap<Key, GivenValue>,
    options: BTreeMap<Key, GivenValue>,
}

impl Layers {
    /// Only the defaults.
    #[must_use]
    pub fn new() -> Layers {
        Layers::default()
    }

    /// Settings stored with the partition; structural ones cannot be changed.
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
        let source = FileText { text, origin: SettingOrigin::File(path.to_owned()) };
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            place: source.source_at(error.span().map_or(0, |span| span.start)),
            text: error.message().trim().replace('\n', "; "),
        })?;
        source.read_table(table.get_ref(), "", &mut self.file)?;
        Ok(self)
    }

    /// The variables of the table, from this process's environment. An empty one counts as unset.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for a variable that is not text.
    pub fn environment(self) -> Result<Layers, ConfigError> {
        self.environment_from(|variable| std::env::var_os(variable))
    }

    /// The variables of the table, through `look_up`.
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
            let place = SettingSource::from(SettingOrigin::Environment(variable.to_owned()));
            let value = value.into_string().map_err(|value| ConfigError::Value {
                place: place.clone(),
                key: key.to_string(),
                value: format!("{value:?}"),
                rule: "must be text in UTF-8".to_owned(),
            })?;
            self.environment.insert(key, GivenValue { value: plain(key, &value), source: place });
        }
        Ok(self)
    }

    /// One option of the command line. `flag` is the option as typed, which may differ from the key's.
    #[must_use]
    pub fn option(mut self, key: Key, value: &str, flag: &str) -> Layers {
        let given =
            GivenValue { value: plain(key, value), source: SettingOrigin::Option(flag.to_owned()).into() };
        self.options.insert(key, given);
        self
    }

    /// An option with a list, such as the servers of `--servers N --dir D`.
    #[must_use]
    pub fn option_list(mut self, key: Key, values: Vec<String>, flag: &str) -> Layers {
        assert_eq!(key.info().shape, ValueShape::List, "{key} is no list");
        self.options.insert(
            key,
            GivenValue { value: Value::List(values), source: SettingOrigin::Option(flag.to_owned()).into() },
        );
        self
    }

    /// The partition's name if given, so that its stored settings can be found before the check.
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

    /// The resulting settings.
    ///
    /// # Errors
    /// [`ConfigError`] for the first value that breaks a rule, is missing, or changes what is fixed.
    pub fn check(self) -> Result<Settings, ConfigError> {
        let mut values = BTreeMap::new();
        if let Some(stored) = &self.stored {
            values.extend(
                stored
                    .kept()
                    .map(|(key, value)| (key, GivenValue { value, source: SettingOrigin::Stored.into() })),
            );
        }
        values.extend(self.file);
        values.extend(self.environment);
        values.extend(self.options);
        let settings = Settings::from_values(&values)?;
        if let Some(stored) = &self.stored {
            settings.check_unchanged(stored, |key| values.get(&key).map(|given| given.source.clone()))?;
        }
        Ok(settings)
    }
}

/// How to set a key that has no default.
fn cure_of_missing(key: Key) -> String {
    let (variable, option) = (key.info().variable, key.info().option);
    if key == Key::Servers {
        return format!("give them by `--servers 4 --dir /data`, by {variable} or in a partition file");
    }
    format!("set it in the partition file, by {variable} or by {option}")
}

impl Settings {
    /// Refuses structural settings that differ from the stored ones; `place_of` returns a key's origin.
    pub(crate) fn check_unchanged(
        &self,
        stored: &Settings,
        place_of: impl Fn(Key) -> Option<SettingSource>,
    ) -> Result<(), ConfigError> {
        let structural = Key::ALL.iter().copied().filter(|key| key.info().kind == KeyKind::Structural);
        for key in structural {
            let (old, new) = (stored.value(key), self.value(key));
            if old != new {
                return Err(ConfigError::Structural {
                    place: place_of(key).unwrap_or_else(|| SettingSource::from(self.origin(key).clone())),
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

/// A value of the environment or the command line: text unchanged, lists split at commas.
fn plain(key: Key, text: &str) -> Value {
    match key.info().shape {
        ValueShape::List => Value::List(text.split(',').map(|item| item.trim().to_owned()).collect()),
        ValueShape::Pairs => Value::List(
            text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect(),
        ),
        ValueShape::Text | ValueShape::Size | ValueShape::Fraction | ValueShape::Whole => {
            Value::Text(text.to_owned())
        }
    }
}

/// A file's text, for line numbers.
struct FileText<'a> {
    text: &'a str,
    origin: SettingOrigin,
}

impl FileText<'_> {
    fn source_at(&self, at: usize) -> SettingSource {
        let line = 1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        SettingSource { origin: self.origin.clone(), line: Some(line) }
    }

    fn read_table(
        &self,
        table: &DeTable<'_>,
        section: &str,
        values: &mut BTreeMap<Key, GivenValue>,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let path = if section.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{section}.{}", name.get_ref())
            };
            let place = self.source_at(name.span().start);
            match (Key::from_path(&path), value.get_ref()) {
                (Some(key), value) => {
                    let value = read_value(key, value, &place)?;
                    values.insert(key, GivenValue { value, source: place });
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

/// Not a key: an empty `[cache]` is accepted, `cache = 5` and anything else is not.
fn refuse_unless_empty_section(
    path: &str,
    value: &DeValue<'_>,
    place: SettingSource,
) -> Result<(), ConfigError> {
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

fn read_value(key: Key, value: &DeValue<'_>, place: &SettingSource) -> Result<Value, ConfigError> {
    let shape = key.info().shape;
    let read = match (shape, value) {
        (ValueShape::Text | ValueShape::Size, DeValue::String(text)) => Some(Value::Text(text.to_string())),
        (ValueShape::Size | ValueShape::Whole | ValueShape::Fraction, DeValue::Integer(number))
            if number.radix() == 10 =>
        {
            Some(Value::Text(number.as_str().to_owned()))
        }
        (ValueShape::Fraction, DeValue::Float(number)) => Some(Value::Text(number.as_str().to_owned())),
        (ValueShape::List, DeValue::Array(items)) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
            texts.map(Value::List)
        }
        (ValueShape::Pairs, DeValue::Table(pairs)) => {
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

fn shape_rule(shape: ValueShape) -> &'static str {
    match shape {
        ValueShape::Text => "must be a text in quotes",
        ValueShape::Size => "must be a size such as \"64KiB\", or a number of bytes",
        ValueShape::Fraction => "must be a number from 0 to 1",
        ValueShape::Whole => "must be a whole number",
        ValueShape::Pairs => "must be names with whole numbers, as in climate = 2",
        ValueShape::List => "must be a list of texts, as in [\"/data/0\", \"node1:/data\"]",
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
