//! From raw values to [`Settings`]: the rules of every key, and the rules between keys.
//!
//! Always: an error names origin, key, value and rule; defaults pass the same rules.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use pario_core::Size;
use pario_core::limits::{
    FRAME_DATA_BYTES_MAX, OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN, SERVERS_MAX, STRIPE_BYTES_MAX, STRIPE_BYTES_MIN,
};

use pario_server::io_queue::WEIGHT_MAX;

use super::address::{ServerAddress, clean_directory, find_overlap};
use super::choices::{ChecksumsKind, StoreKind};
use super::config::{ConfigError, GivenValue, SettingSource, Value};
use super::keys::{Key, SettingOrigin};
use super::name::check_name;
use super::settings::{CacheSettings, LimitSettings, NetworkSettings, Settings};

/// Smallest cache of a server, and smallest memory store.
pub(super) const SERVER_MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Largest cache of a server, and largest memory store.
pub(super) const SERVER_MEMORY_BYTES_MAX: u64 = 1 << 50;
/// Smallest data part that messages may be limited to.
pub(super) const NETWORK_BUFFER_BYTES_MIN: u64 = 64 << 10;
/// Lowest store limit: more than a second for one message would look like a hanging server.
pub(super) const STORE_BYTES_PER_S_MIN: u64 = 1 << 20;

/// Highest limit of store calls per second.
pub(super) const STORE_CALLS_PER_S_MAX: u32 = 1_000_000;
/// Applications with weights.
const WEIGHTS_MAX: usize = 1000;

impl Settings {
    pub(super) fn from_values(values: &BTreeMap<Key, GivenValue>) -> Result<Settings, ConfigError> {
        let check = Check { values };
        let servers = check.servers()?;
        let settings = Settings {
            name: check.name()?,
            metadata: check.metadata(&servers)?,
            stripe: check.stripe()?,
            store: check.word(Key::Store)?,
            checksums: check.word(Key::Checksums)?,
            memory: check.size(Key::Memory, SERVER_MEMORY_BYTES_MIN, SERVER_MEMORY_BYTES_MAX)?,
            method: check.word(Key::Method)?,
            scheduler: check.word(Key::Scheduler)?,
            weights: check.weights()?,
            trace: check.trace()?,
            transport: check.word(Key::Transport)?,
            launch: check.word(Key::Launch)?,
            log: check.word(Key::Log)?,
            cache: check.cache()?,
            network: check.network(servers.len())?,
            limits: check.limits()?,
            servers,
            origins: values.iter().map(|(key, given)| (*key, given.source.origin.clone())).collect(),
        };
        check.cache_holds_blocks(&settings)?;
        check.checksums_need_disk(&settings)?;
        Ok(settings)
    }
}

struct Check<'a> {
    values: &'a BTreeMap<Key, GivenValue>,
}

impl Check<'_> {
    /// The given value, else the default.
    fn find(&self, key: Key) -> Option<GivenValue> {
        let default = |text: &str| GivenValue {
            value: Value::Text(text.to_owned()),
            source: SettingOrigin::Default.into(),
        };
        self.values.get(&key).cloned().or_else(|| key.info().default.map(default))
    }

    fn text(&self, key: Key) -> Result<String, ConfigError> {
        let given = self.find(key).ok_or(ConfigError::Missing { key })?;
        match given.value {
            Value::Text(text) => Ok(text),
            Value::List(_) => Err(self.refuse(key, "must be one text, not a list")),
        }
    }

    fn refuse(&self, key: Key, rule: impl Display) -> ConfigError {
        let given = self.find(key);
        let value = given.as_ref().map_or_else(|| "…".to_owned(), |given| given.value.to_string());
        let place = given.map_or_else(|| SettingSource::from(SettingOrigin::Default), |given| given.source);
        ConfigError::Value { place, key: key.to_string(), value, rule: rule.to_string() }
    }

    fn word<T: FromStr<Err: Display>>(&self, key: Key) -> Result<T, ConfigError> {
        self.text(key)?.parse().map_err(|rule| self.refuse(key, rule))
    }

    fn size(&self, key: Key, least: u64, most: u64) -> Result<Size, ConfigError> {
        let size: Size = self.word(key)?;
        if size.0 < least || most < size.0 {
            let rule = format!("must be from {} to {}", Size(least), Size(most));
            return Err(self.refuse(key, rule));
        }
        Ok(size)
    }

    fn fraction(&self, key: Key) -> Result<f64, ConfigError> {
        let rule = "must be a number from 0 to 1";
        let number: f64 = self.text(key)?.parse().map_err(|_| self.refuse(key, rule))?;
        if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(self.refuse(key, rule)) }
    }

    fn name(&self) -> Result<String, ConfigError> {
        let name = self.text(Key::Name)?;
        check_name(&name).map_err(|rule| self.refuse(Key::Name, rule))?;
        Ok(name)
    }

    fn servers(&self) -> Result<Vec<ServerAddress>, ConfigError> {
        let given = self.find(Key::Servers).ok_or(ConfigError::Missing { key: Key::Servers })?;
        let Value::List(texts) = given.value else { return Err(self.refuse(Key::Servers, "must be a list")) };
        let refuse = |value: String, rule: String| ConfigError::Value {
            place: given.source.clone(),
            key: Key::Servers.to_string(),
            value,
            rule,
        };
        if texts.is_empty() || SERVERS_MAX < texts.len() {
            let rule = format!("a partition has 1 to {SERVERS_MAX} servers");
            return Err(refuse(format!("{} servers", texts.len()), rule));
        }
        let read =
            |text: &String| text.parse().map_err(|rule| refuse(format!("\"{text}\""), format!("{rule}")));
        let servers: Vec<ServerAddress> = texts.iter().map(read).collect::<Result<_, _>>()?;
        if let Some((first, second)) = find_overlap(&servers) {
            let rule = format!(
                "servers {first} and {second} would share a directory; give each its own: \"{}\"",
                texts[first]
            );
            return Err(refuse(format!("\"{}\"", texts[second]), rule));
        }
        Ok(servers)
    }

    fn metadata(&self, servers: &[ServerAddress]) -> Result<PathBuf, ConfigError> {
        if self.find(Key::Metadata).is_none() {
            return Ok(default_metadata(servers));
        }
        let refuse = |rule: String| self.refuse(Key::Metadata, rule);
        let dir = clean_directory(&self.text(Key::Metadata)?)
            .map_err(|rule| refuse(format!("is a directory on the first server's machine: {rule}")))?;
        // Within a storage directory, only the default location is allowed.
        let first = &servers[0];
        let on_that_host = servers.iter().filter(|server| server.host == first.host);
        let mut clash =
            on_that_host.filter(|server| dir.starts_with(&server.dir) || server.dir.starts_with(&dir));
        match clash.next() {
            Some(server) if dir != default_metadata(servers) => Err(refuse(format!(
                "must not overlap with a server's directory, \"{server}\"; leave it out to use that"
            ))),
            _ => Ok(dir),
        }
    }

    fn stripe(&self) -> Result<Size, ConfigError> {
        let stripe = self.size(Key::Stripe, STRIPE_BYTES_MIN, STRIPE_BYTES_MAX)?;
        if stripe.0 % STRIPE_BYTES_MIN != 0 {
            return Err(self.refuse(Key::Stripe, format!("must be a multiple of {}", Size(STRIPE_BYTES_MIN))));
        }
        Ok(stripe)
    }

    fn cache(&self) -> Result<CacheSettings, ConfigError> {
        let cache = CacheSettings {
            outbox: self.size(Key::CacheOutbox, OUTBOX_BYTES_MIN as u64, OUTBOX_BYTES_MAX as u64)?,
            server: self.size(Key::CacheServer, SERVER_MEMORY_BYTES_MIN, SERVER_MEMORY_BYTES_MAX)?,
            high: self.fraction(Key::CacheHigh)?,
            low: self.fraction(Key::CacheLow)?,
        };
        if cache.high <= cache.low {
            // The error names the value that the user set.
            let low_given = self.values.contains_key(&Key::CacheLow);
            let rule = format!("cache.low ({}) must be below cache.high ({})", cache.low, cache.high);
            return Err(self.refuse(if low_given { Key::CacheLow } else { Key::CacheHigh }, rule));
        }
        Ok(cache)
    }

    fn cache_holds_blocks(&self, settings: &Settings) -> Result<(), ConfigError> {
        let least = Size(settings.stripe.0 * 2);
        if settings.store == StoreKind::Direct && settings.cache.server < least {
            let rule = format!("with store = \"direct\" it must hold two blocks of the stripe, {least}");
            return Err(self.refuse(Key::CacheServer, rule));
        }
        Ok(())
    }

    fn checksums_need_disk(&self, settings: &Settings) -> Result<(), ConfigError> {
        if settings.store == StoreKind::Memory && settings.checksums == ChecksumsKind::On {
            let rule = "must be \"off\" with store = \"memory\": its bytes are not on a disk";
            return Err(self.refuse(Key::Checksums, rule));
        }
        Ok(())
    }

    fn network(&self, servers: usize) -> Result<NetworkSettings, ConfigError> {
        let rule = "must be a whole number from 0 to 65535";
        let port: u16 =
            self.text(Key::NetworkPort)?.parse().map_err(|_| self.refuse(Key::NetworkPort, rule))?;
        if port != 0 && 65536 < usize::from(port) + servers {
            let rule = format!(
                "{servers} servers need ports up to {}, the last is 65535",
                usize::from(port) + servers - 1
            );
            return Err(self.refuse(Key::NetworkPort, rule));
        }
        let buffer = self.size(Key::NetworkBuffer, NETWORK_BUFFER_BYTES_MIN, FRAME_DATA_BYTES_MAX as u64)?;
        Ok(NetworkSettings { buffer, port, protect: self.word(Key::NetworkProtect)? })
    }

    fn limits(&self) -> Result<LimitSettings, ConfigError> {
        let store: Size = self.word(Key::LimitsStore)?;
        if store.0 != 0 && store.0 < STORE_BYTES_PER_S_MIN {
            let rule =
                format!("must be 0 for no limit, or at least {} a second", Size(STORE_BYTES_PER_S_MIN));
            return Err(self.refuse(Key::LimitsStore, rule));
        }
        let rule = format!("must be 0 for no limit, or from 1 to {STORE_CALLS_PER_S_MAX} a second");
        let operations: u32 = self
            .text(Key::LimitsOperations)?
            .parse()
            .ok()
            .filter(|calls| *calls <= STORE_CALLS_PER_S_MAX)
            .ok_or_else(|| self.refuse(Key::LimitsOperations, rule))?;
        Ok(LimitSettings { store, operations })
    }

    fn weights(&self) -> Result<BTreeMap<String, u32>, ConfigError> {
        let rule = format!(
            "must be names of 1 to 64 characters without ',' and '=', with weights from 1 to {WEIGHT_MAX}, as in climate = 2"
        );
        let pair = |text: &String| {
            let (name, weight) = text.split_once('=')?;
            let (name, weight) = (name.trim(), weight.trim().parse::<u32>().ok()?);
            let named = (1..=64).contains(&name.chars().count())
                && !name.chars().any(|c| c.is_control() || c == ',' || c == '=');
            (named && (1..=WEIGHT_MAX).contains(&weight)).then(|| (name.to_owned(), weight))
        };
        match self.find(Key::Weights).map(|given| given.value) {
            Some(Value::List(pairs)) if pairs.len() <= WEIGHTS_MAX => pairs
                .iter()
                .map(pair)
                .collect::<Option<BTreeMap<String, u32>>>()
                .ok_or_else(|| self.refuse(Key::Weights, rule)),
            Some(Value::List(_)) => {
                Err(self.refuse(Key::Weights, format!("there may be at most {WEIGHTS_MAX}")))
            }
            Some(Value::Text(_)) | None => Ok(BTreeMap::new()),
        }
    }

    fn trace(&self) -> Result<Option<PathBuf>, ConfigError> {
        let text = self.text(Key::Trace)?;
        if text.is_empty() {
            return Ok(None);
        }
        clean_directory(&text)
            .map(Some)
            .map_err(|_| self.refuse(Key::Trace, "must be an absolute directory, as in \"/tmp/traces\""))
    }
}

fn default_metadata(servers: &[ServerAddress]) -> PathBuf {
    servers[0].dir.join("names")
}
