//! The settings of a partition, checked: whoever holds a [`Settings`] need not check again.
//!
//! Never: reads a file or the environment (that is `config`). Always: [`Settings::to_toml`] is a partition file that
//! reads back as the same settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pario_core::Size;
use serde::{Deserialize, Serialize};

use super::address::ServerAddress;
use super::choices::{LogFilter, Method, SchedulerKind, StoreKind, TransportChoice};
use super::config::{ConfigError, Given, Place, Value};
use super::keys::{Key, Kind, Origin, Shape};
use super::template::Template;

/// Everything that can be set of a partition.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The partition's name.
    pub name: String,
    /// Its servers, in order; at least one.
    pub servers: Vec<ServerAddress>,
    /// Directory of names and inodes, on the first server's host.
    pub metadata: PathBuf,
    /// Bytes of a block.
    pub stripe: Size,
    /// What servers stand on.
    pub store: StoreKind,
    /// Room of each server with a memory store.
    pub memory: Size,
    /// How accesses are put together.
    pub method: Method,
    /// Which request runs next.
    pub scheduler: SchedulerKind,
    /// Weights of applications by name.
    pub weights: BTreeMap<String, u32>,
    /// Where servers leave what their schedulers did.
    pub trace: Option<PathBuf>,
    /// How clients reach servers.
    pub transport: TransportChoice,
    /// How servers on other hosts are started.
    pub launch: Template,
    /// What servers log.
    pub log: LogFilter,
    /// Memory for caching.
    pub cache: Cache,
    /// Messages.
    pub network: Network,
    /// What servers keep to.
    pub limits: Limits,
    pub(super) origins: BTreeMap<Key, Origin>,
}

/// Memory for caching.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cache {
    /// Each client process's outbox.
    pub outbox: Size,
    /// Each server's own cache.
    pub server: Size,
    /// Share of dirty blocks at which writing out starts; above `low`, at most 1.
    pub high: f64,
    /// Share of dirty blocks at which it ends.
    pub low: f64,
}

/// Messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// Largest data part of one message.
    pub buffer: Size,
    /// Port of server 0, the others follow; 0: any.
    pub port: u16,
}

/// What servers keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes that each server's store gets through in a second; 0: as many as it can.
    pub store: Size,
    /// Calls that it gets through in a second; 0: as many as it can.
    pub operations: u32,
}

/// One line of `pario config show`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// Key path.
    pub key: &'static str,
    /// Value as it would be written in the file.
    pub value: String,
    /// Where it came from, in words.
    pub origin: String,
    /// `structural` or `dynamic`.
    pub kind: String,
}

impl Settings {
    /// Where a setting came from.
    #[must_use]
    pub fn origin(&self, key: Key) -> &Origin {
        self.origins.get(&key).unwrap_or(&Origin::Default)
    }

    /// A setting's value as the file has it.
    #[must_use]
    pub fn value(&self, key: Key) -> toml::Value {
        let text = |text: &dyn std::fmt::Display| toml::Value::String(text.to_string());
        match key {
            Key::Name => text(&self.name),
            Key::Servers => toml::Value::Array(self.servers.iter().map(|server| text(server)).collect()),
            Key::Metadata => text(&self.metadata.display()),
            Key::Stripe => text(&self.stripe),
            Key::Store => text(&self.store),
            Key::Memory => text(&self.memory),
            Key::Method => text(&self.method),
            Key::Scheduler => text(&self.scheduler),
            Key::Weights => {
                let weight = |(name, weight): (&String, &u32)| (name.clone(), (*weight).into());
                toml::Value::Table(self.weights.iter().map(weight).collect())
            }
            Key::Trace => {
                text(&self.trace.as_ref().map_or_else(String::new, |dir| dir.display().to_string()))
            }
            Key::Transport => text(&self.transport),
            Key::Launch => text(&self.launch),
            Key::Log => text(&self.log),
            Key::CacheOutbox => text(&self.cache.outbox),
            Key::CacheServer => text(&self.cache.server),
            Key::CacheHigh => toml::Value::Float(self.cache.high),
            Key::CacheLow => toml::Value::Float(self.cache.low),
            Key::NetworkBuffer => text(&self.network.buffer),
            Key::NetworkPort => toml::Value::Integer(self.network.port.into()),
            Key::LimitsStore => text(&self.limits.store),
            Key::LimitsOperations => toml::Value::Integer(self.limits.operations.into()),
        }
    }

    /// Where the manager keeps names and inodes: `names` in the first server's directory, or in `metadata`.
    #[must_use]
    pub fn names_dir(&self) -> PathBuf {
        self.names_base().unwrap_or(&self.servers[0].dir).join("names")
    }

    /// The directory apart from the servers' that `metadata` names; it has an identity of its own.
    #[must_use]
    pub fn names_base(&self) -> Option<&Path> {
        (!self.metadata.starts_with(&self.servers[0].dir)).then_some(&self.metadata)
    }

    /// Every setting with its value, origin and kind.
    #[must_use]
    pub fn explain(&self) -> Vec<Row> {
        let row = |&key: &Key| Row {
            key: key.info().path,
            value: self.value(key).to_string(),
            origin: self.origin(key).to_string(),
            kind: key.info().kind.to_string(),
        };
        Key::ALL.iter().map(row).collect()
    }

    /// A partition file with every setting.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut file = String::new();
        let mut section = "";
        for &key in Key::ALL {
            let (of, name) = key.section();
            if of != section {
                let _ = writeln!(file, "\n[{of}]");
                section = of;
            }
            let _ = writeln!(file, "{name} = {}", self.value(key));
        }
        file
    }

    /// What the next `up` starts from: structural settings, and dynamic ones that a file or an option chose. What the
    /// environment said holds for one `up`; defaults may be others in another version.
    pub(super) fn kept(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        let kept = |&key: &Key| {
            key.info().kind == Kind::Structural
                || match self.origin(key) {
                    Origin::Stored | Origin::File(_) | Origin::Option(_) => true,
                    Origin::Default | Origin::Environment(_) => false,
                }
        };
        Key::ALL.iter().copied().filter(kept).map(|key| (key, raw(&self.value(key))))
    }

    /// As a table with sections, and the origins of what is not a default.
    fn table(&self) -> toml::Table {
        let mut table = toml::Table::new();
        for &key in Key::ALL {
            let (section, name) = key.section();
            let value = self.value(key);
            if section.is_empty() {
                table.insert(name.to_owned(), value);
            } else if let toml::Value::Table(inner) =
                table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()))
            {
                inner.insert(name.to_owned(), value);
            }
        }
        let origins = self.origins.iter().filter(|(_, origin)| **origin != Origin::Default);
        let origins = origins.map(|(key, origin)| (key.to_string(), toml::Value::String(origin.to_string())));
        table.insert(ORIGINS.to_owned(), toml::Value::Table(origins.collect()));
        table
    }

    fn from_table(mut table: toml::Table) -> Result<Settings, String> {
        let origins = match table.remove(ORIGINS) {
            Some(toml::Value::Table(origins)) => read_origins(&origins)?,
            _ => return Err(format!("settings without their {ORIGINS}")),
        };
        let mut values = BTreeMap::new();
        for &key in Key::ALL {
            let (section, name) = key.section();
            let holder = if section.is_empty() {
                Some(&table)
            } else {
                table.get(section).and_then(toml::Value::as_table)
            };
            let value = holder
                .and_then(|holder| holder.get(name))
                .ok_or_else(|| format!("settings without '{key}'"))?;
            values.insert(key, Given { value: raw(value), place: Place::from(Origin::Stored) });
        }
        let mut settings = Settings::from_values(&values).map_err(|error: ConfigError| error.to_string())?;
        settings.origins = origins;
        Ok(settings)
    }
}

const ORIGINS: &str = "origins";

fn read_origins(table: &toml::Table) -> Result<BTreeMap<Key, Origin>, String> {
    let read = |(key, origin): (&String, &toml::Value)| {
        let key = Key::from_path(key).ok_or_else(|| format!("unknown key '{key}'"))?;
        Ok((key, origin.as_str().unwrap_or_default().parse()?))
    };
    table.iter().map(read).collect()
}

/// A checked value as if it had been written.
fn raw(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::Text(text.clone()),
        toml::Value::Array(items) => {
            Value::List(items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect())
        }
        toml::Value::Table(pairs) => {
            Value::List(pairs.iter().map(|(name, number)| format!("{name}={number}")).collect())
        }
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => Value::Text(value.to_string()),
    }
}

impl Serialize for Settings {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.table().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Settings::from_table(toml::Table::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A default as the file has it: in quotes unless it is a number.
pub(super) fn written_default(key: Key) -> Option<String> {
    let info = key.info();
    info.default.map(|text| match info.shape {
        Shape::Text | Shape::Size | Shape::List => format!("\"{text}\""),
        Shape::Fraction | Shape::Whole => text.to_owned(),
        Shape::Pairs => "{}".to_owned(),
    })
}
