//! Manager: handles client requests: names, leases, lengths, and the objects that follow from them.
//!
//! Runs on a thread of its own ([`thread`]). It decides and leaves [`ManagerEffect`]s; the service carries them out.
//!
//! Never: waits for a client or a peer; touches an object itself (it sends requests to the servers, itself among them). Always: a file's
//! users are known; an object is removed only when its name and its last user are gone; no client gets a file with an unfinished
//! truncation or with a dead writer that is not recovered.

mod effect;
mod grants;
mod length;
mod locks;
mod looks;
mod pointers;
mod recover_writer;
mod requests;
mod state;
mod status;
mod thread;
mod users;

pub(crate) use self::effect::{ManagerEffect, RequestCaller};
use self::state::{LeaseContinuation, PeerContinuation};
pub(crate) use self::state::{Manager, host_name};
pub(crate) use self::thread::{ManagerHandle, ManagerTask};
