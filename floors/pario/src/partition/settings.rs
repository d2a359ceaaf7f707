//! The validated settings of a partition: a [`Settings`] value needs no further checks.
//!
//! Never: reads a file or the environment (see `config`). Always: [`Settings::to_toml`] is a partition file that parses to the
//! same settings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pario_core::Size;
use serde::{Deserialize, Serialize};

use super::address::ServerAddress;
use super::choices::{
    ChecksumsKind, LogFilter, Method, ProtectChoice, SchedulerKind, StoreKind, TransportChoice,
};
use super::config::{ConfigError, GivenValue, SettingSource, Value};
use super::keys::{Key, KeyKind, SettingOrigin, ValueShape};
use super::template::Template;

/// All settings of a partition.
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
    /// Storage backend.
    pub store: StoreKind,
    /// Whether checksums of stored bytes are kept.
    pub checksums: ChecksumsKind,
    /// Memory of each server with a memory store.
    pub memory: Size,
    /// Collective I/O method.
    pub method: Method,
    /// Scheduling policy.
    pub scheduler: SchedulerKind,
    /// Weights of applications by name.
    pub weights: BTreeMap<String, u32>,
    /// Directory of the schedulers' traces.
    pub trace: Option<PathBuf>,
    /// How clients reach servers.
    pub transport: TransportChoice,
    /// How servers on other hosts are started.
    pub launch: Template,
    /// What servers log.
    pub log: LogFilter,
    /// Memory for caching.
    pub cache: CacheSettings,
    /// Network settings.
    pub network: NetworkSettings,
    /// Limits of servers.
    pub limits: LimitSettings,
    pub(super) origins: BTreeMap<Key, SettingOrigin>,
}

/// Memory for caching.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CacheSettings {
    /// Each client process's outbox.
    pub outbox: Size,
    /// Each server's own cache.
    pub server: Size,
    /// Share of dirty blocks at which write-back starts; above `low`, at most 1.
    pub high: f64,
    /// Share of dirty blocks at which it ends.
    pub low: f64,
}

/// Network settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkSettings {
    /// Largest data part of one message.
    pub buffer: Size,
    /// Port of server 0, the others follow; 0: any.
    pub port: u16,
    /// Which connections are protected.
    pub protect: ProtectChoice,
}

/// Limits of servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitSettings {
    /// Bytes per second of each server's store; 0: unlimited.
    pub store: Size,
    /// Store calls per second; 0: unlimited.
    pub operations: u32,
}

/// One line of `pario config show`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SettingRow {
    /// Key path.
    pub key: &'static str,
    /// Value in the file's syntax.
    pub value: String,
    /// Its origin, as text.
    pub origin: String,
    /// `structural` or `dynamic`.
    pub kind: String,
}

impl Settings {
    /// Origin of a setting.
    #[must_use]
    pub fn origin(&self, key: Key) -> &SettingOrigin {
        self.origins.get(&key).unwrap_or(&SettingOrigin::Default)
    }

    /// A setting's value in the file's syntax.
    #[must_use]
    pub fn value(&self, key: Key) -> toml::Value {
        let text = |text: &dyn std::fmt::Display| toml::Value::String(text.to_string());
        match key {
            Key::Name => text(&self.name),
            Key::Servers => toml::Value::Array(self.servers.iter().map(|server| text(server)).collect()),
            Key::Metadata => text(&self.metadata.display()),
            Key::Stripe => text(&self.stripe),
            Key::Store => text(&self.store),
            Key::Checksums => text(&self.checksums),
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
            Key::NetworkProtect => text(&self.network.protect),
            Key::LimitsStore => text(&self.limits.store),
            Key::LimitsOperations => toml::Value::Integer(self.limits.operations.into()),
        }
    }

    /// Directory of the manager's names and inodes: `names` in the first server's directory, or in `metadata`.
    #[must_use]
    pub fn names_dir(&self) -> PathBuf {
        self.names_base().unwrap_or(&self.servers[0].dir).join("names")
    }

    /// The separate directory of `metadata`; it has its own identity.
    #[must_use]
    pub fn names_base(&self) -> Option<&Path> {
        (!self.metadata.starts_with(&self.servers[0].dir)).then_some(&self.metadata)
    }

    /// Every setting with its value, origin and kind.
    #[must_use]
    pub fn explain(&self) -> Vec<SettingRow> {
        let row = |&key: &Key| SettingRow {
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

    /// Defaults of the next `up`: structural settings, and dynamic ones set by a file or an option. Settings of the environment
    /// apply to one `up`; defaults may differ in another version.
    pub(super) fn kept(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        let kept = |&key: &Key| {
            key.info().kind == KeyKind::Structural
                || match self.origin(key) {
                    SettingOrigin::Stored | SettingOrigin::File(_) | SettingOrigin::Option(_) => true,
                    SettingOrigin::Default | SettingOrigin::Environment(_) => false,
                }
        };
        Key::ALL.iter().copied().filter(kept).map(|key| (key, raw(&self.value(key))))
    }

    /// As a table with sections, and the origins of set values.
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
        let origins = self.origins.iter().filter(|(_, origin)| **origin != SettingOrigin::Default);
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
            let Some(value) = holder.and_then(|holder| holder.get(name)) else {
                // Written by a release without this key; structural settings must be present.
                if key.info().kind == KeyKind::Dynamic {
                    continue;
                }
                return Err(format!("settings without '{key}'"));
            };
            values.insert(
                key,
                GivenValue { value: raw(value), source: SettingSource::from(SettingOrigin::Stored) },
            );
        }
        let mut settings = Settings::from_values(&values).map_err(|error: ConfigError| error.to_string())?;
        settings.origins = origins;
        Ok(settings)
    }
}

const ORIGINS: &str = "origins";

fn read_origins(table: &toml::Table) -> Result<BTreeMap<Key, SettingOrigin>, String> {
    let read = |(key, origin): (&String, &toml::Value)| {
        let key = Key::from_path(key).ok_or_else(|| format!("unknown key '{key}'"))?;
        Ok((key, origin.as_str().unwrap_or_default().parse()?))
    };
    table.iter().map(read).collect()
}

/// A validated value as a raw value.
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

/// A default in the file's syntax: quoted unless it is a number.
pub(super) fn written_default(key: Key) -> Option<String> {
    let info = key.info();
    info.default.map(|text| match info.shape {
        ValueShape::Text | ValueShape::Size | ValueShape::List => format!("\"{text}\""),
        ValueShape::Fraction | ValueShape::Whole => text.to_owned(),
        ValueShape::Pairs => "{}".to_owned(),
    })
}
