//! Options for the settings of a partition; shared by `up`, `run` and `config show`.

use std::path::{Path, PathBuf};

use clap::Args;
use pario::core::limits::SERVERS_MAX;
use pario::dir::temporary_path;
use pario::partition::{Key, Layers, Registry, RegistryEntry, Settings};

use crate::error::{CliError, CliResult};

/// Settings of a partition as options. They override the environment, the partition file and stored settings.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Partition")]
pub(crate) struct SettingsArgs {
    /// What the partition is called
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How many servers (directories DIR/NAME/server-0, …), or a list: /dir,host:/dir,…
    #[arg(long, value_name = "N|LIST", conflicts_with = "server")]
    pub(crate) servers: Option<String>,
    /// One server's storage directory, /dir or host:/dir; may be repeated
    #[arg(long, value_name = "PLACE")]
    pub(crate) server: Vec<String>,
    /// Where `--servers N` puts its directories [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Directory of names and inodes
    #[arg(long, value_name = "DIR")]
    metadata: Option<String>,
    /// Block size of new files, as in 64KiB
    #[arg(long, value_name = "SIZE")]
    stripe: Option<String>,
    /// What servers stand on: files, direct, log, memory
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Whether servers keep checksums of stored bytes: on, off
    #[arg(long, value_name = "CHECKSUMS")]
    checksums: Option<String>,
    /// What each server holds at most with `--store memory`
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// How accesses of several processes are put together
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Which request a store gets next: fifo, mlf, wsjf, sjf, deadline, tbf, wfq
    #[arg(long, value_name = "SCHEDULER")]
    scheduler: Option<String>,
    /// Shares of applications, as in climate=2,post=1
    #[arg(long, value_name = "NAME=N,…")]
    weights: Option<String>,
    /// Directory into which each server writes what its scheduler did
    #[arg(long, value_name = "DIR")]
    trace: Option<String>,
    /// How clients reach servers: auto, unix, tcp
    #[arg(long, value_name = "TRANSPORT")]
    transport: Option<String>,
    /// How servers on other machines are started, as in "ssh {host} {command}"
    #[arg(long, value_name = "TEMPLATE")]
    launch: Option<String>,
    /// What servers log: off, error, warn, info, debug, trace
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Outbox of each client process
    #[arg(long, value_name = "SIZE")]
    outbox: Option<String>,
    /// Each server's own block cache
    #[arg(long, value_name = "SIZE", visible_alias = "cache")]
    server_cache: Option<String>,
    /// Share of dirty blocks at which a server starts to write them out
    #[arg(long, value_name = "SHARE")]
    high: Option<String>,
    /// Share of dirty blocks at which it stops
    #[arg(long, value_name = "SHARE")]
    low: Option<String>,
    /// Largest piece of data in one message
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
    /// TCP port of the first server, the others follow; 0: any
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// Which connections are encrypted and authenticated: full (TCP between hosts), none, all
    #[arg(long, value_name = "WHICH")]
    protect: Option<String>,
    /// What each server's store gets through in a second, as in 125MB; 0: as much as it can
    #[arg(long, value_name = "SIZE")]
    limit_store: Option<String>,
    /// How many calls each server's store gets through in a second; 0: as many as it can
    #[arg(long, value_name = "N")]
    limit_operations: Option<String>,
}

impl SettingsArgs {
    /// The same options for a partition of this name.
    pub(crate) fn named(&self, name: String) -> SettingsArgs {
        SettingsArgs { name: Some(name), ..self.clone() }
    }

    /// Resulting settings: options over environment over file over stored over defaults.
    pub(crate) fn settings(&self, file: Option<&Path>, registry: &Registry) -> CliResult<Settings> {
        let layers = match file {
            Some(file) => Layers::new().file(file)?,
            None => Layers::new(),
        };
        let layers = self.lay_over(layers.environment()?, registry)?;
        let stored = match layers.name() {
            Some(name) => registry.get(name)?.filter(|entry| entry.complete),
            None => None,
        };
        let layers = match &stored {
            Some(entry) => layers.stored(&entry.settings),
            None => layers,
        };
        Ok(layers.check()?)
    }

    fn lay_over(&self, layers: Layers, registry: &Registry) -> CliResult<Layers> {
        let plain = [
            (Key::Name, &self.name),
            (Key::Metadata, &self.metadata),
            (Key::Stripe, &self.stripe),
            (Key::Store, &self.store),
            (Key::Checksums, &self.checksums),
            (Key::Memory, &self.memory),
            (Key::Method, &self.method),
            (Key::Scheduler, &self.scheduler),
            (Key::Weights, &self.weights),
            (Key::Trace, &self.trace),
            (Key::Transport, &self.transport),
            (Key::Launch, &self.launch),
            (Key::Log, &self.log),
            (Key::CacheOutbox, &self.outbox),
            (Key::CacheServer, &self.server_cache),
            (Key::CacheHigh, &self.high),
            (Key::CacheLow, &self.low),
            (Key::NetworkBuffer, &self.buffer),
            (Key::NetworkPort, &self.port),
            (Key::NetworkProtect, &self.protect),
            (Key::LimitsStore, &self.limit_store),
            (Key::LimitsOperations, &self.limit_operations),
        ];
        let given = plain.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
        let layers = given.fold(layers, |layers, (key, value)| layers.option(key, value, key.info().option));
        self.lay_servers(layers, registry)
    }

    fn lay_servers(&self, layers: Layers, registry: &Registry) -> CliResult<Layers> {
        if !self.server.is_empty() {
            return Ok(layers.option_list(Key::Servers, self.server.clone(), "--server"));
        }
        let Some(text) = &self.servers else {
            if self.dir.is_some() {
                return Err(CliError::usage(
                    "--dir is where `--servers N` puts its directories: give N, too",
                ));
            }
            return Ok(layers);
        };
        if !text.bytes().all(|byte| byte.is_ascii_digit()) || text.is_empty() {
            if self.dir.is_some() {
                return Err(CliError::usage(
                    "--dir goes with a number of servers, not with a list of directories",
                ));
            }
            return Ok(layers.option(Key::Servers, text, "--servers"));
        }
        let number =
            text.parse().ok().filter(|number| (1..=SERVERS_MAX).contains(number)).ok_or_else(|| {
                CliError::usage(format!("option --servers: {text}: there must be 1 to {SERVERS_MAX} servers"))
            })?;
        // Without a name, the check below reports what is missing; the directories do not matter then.
        let name = layers.name().unwrap_or_default().to_owned();
        let base = self.base(&name, registry)?;
        let dirs = (0..number).map(|index| format!("{}/server-{index}", base.display())).collect();
        let flag = if self.dir.is_some() { "--servers --dir" } else { "--servers" };
        Ok(layers.option_list(Key::Servers, dirs, flag))
    }

    /// The directory that holds the servers' directories.
    fn base(&self, name: &str, registry: &Registry) -> CliResult<PathBuf> {
        if let Some(dir) = &self.dir {
            let absolute = std::path::absolute(dir).map_err(|error| CliError::local(dir, &error))?;
            return Ok(absolute.join(name));
        }
        let base = temporary_path();
        // Partitions of earlier releases keep their location.
        let former =
            base.with_file_name(format!("{}-{name}", base.file_name().unwrap_or_default().to_string_lossy()));
        let is_there = |entry: RegistryEntry| {
            entry.settings.servers.iter().all(|server| server.dir.starts_with(&former))
        };
        let stored = registry.get(name)?.filter(|entry| entry.complete);
        Ok(if stored.is_some_and(is_there) { former } else { base.join(name) })
    }
}
