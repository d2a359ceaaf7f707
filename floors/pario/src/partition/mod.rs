//! A partition as a thing with a name: its file, its settings, its place in the registry, its directories, its servers' start.
//!
//! Never: moves file data; speaks the wire protocol. Always: an error is one line that names what, where and the cure.

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
pub mod protocol;
pub mod registry;
pub mod settings;
mod starting;
pub mod template;

pub use address::ServerAddress;
pub use choices::{LogFilter, Method, SchedulerKind, StoreKind, TransportChoice};
pub use claim::{Birth, Claimed};
pub use config::{ConfigError, Layers, Place};
pub use default_file::default_file;
pub use entry::{Entry, Liveness, Secret, ServerEntry, State};
pub use identity::{Hold, Identity, IdentityError, Role, StartMode};
pub use keys::{Key, Kind, Origin};
pub use launch::{LaunchError, LaunchPlan, Launched};
pub use locate::{Location, LocationError};
pub use protocol::{Ready, ServeSpec, ServerSide};
pub use registry::{Registry, RegistryError};
pub use settings::{Row, Settings};
