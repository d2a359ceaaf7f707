//! A partition's configuration and lifecycle: partition file, settings, registry, storage directories, start of its servers.
//!
//! Never: moves file data; uses the wire protocol. Always: an error is one line with object, cause and cure.

pub mod address;
pub mod binary;
mod check;
pub mod choices;
pub mod claim;
pub mod config;
pub mod default_file;
pub mod destroy;
pub mod disk;
pub mod entry;
pub mod identity;
pub mod keys;
pub mod launch;
pub mod locate;
pub mod name;
pub(crate) mod orphan;
pub mod private;
pub mod protocol;
pub mod registry;
mod repair;
pub mod server_log;
pub mod settings;
mod starting;
pub mod template;

pub use address::ServerAddress;
pub use choices::{
    ChecksumsKind, LogFilter, Method, ProtectChoice, SchedulerKind, StoreKind, TransportChoice,
};
pub use claim::{Claimed, IdentityOrigin};
pub use config::{ConfigError, Layers, SettingSource};
pub use default_file::default_file;
pub use entry::{Liveness, PartitionSecret, PartitionState, RegistryEntry, ServerEntry};
pub use identity::{DirectoryRole, HeldDirectory, Identity, IdentityError, StartMode};
pub use keys::{Key, KeyKind, SettingOrigin};
pub use launch::{LaunchError, LaunchPlan, Launched};
pub use locate::{Location, LocationError};
pub use protocol::{Ready, RegistryRecord, ServeSpec, ServerSide};
pub use registry::{Registry, RegistryError};
pub use settings::{SettingRow, Settings};
