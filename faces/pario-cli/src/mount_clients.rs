//! Mounts of a partition, as its manager knows them: clients with the application name `mount DIR`.
//!
//! Always: a mount on this machine counts while its directory is in the mount table; its process may outlive it a little.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use pario::Partition;
use pario::core::ServerIndex;
use pario::partition::Registry;
use pario_posix::fuse::mounted_dirs;
use serde_json::Value;

/// How long the manager is asked for its clients.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// A mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountClient {
    /// Its directory, as far as the manager knows the path: at most 58 characters.
    pub(crate) dir: PathBuf,
    pub(crate) pid: u64,
    pub(crate) host: String,
    pub(crate) is_here: bool,
}

impl std::fmt::Display for MountClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {} on {})", self.dir.display(), self.pid, self.host)
    }
}

/// The mounts among the clients of a manager's report.
pub(crate) fn in_report(report: &Value) -> Vec<MountClient> {
    let here = pario::host_name();
    let dirs = mounted_dirs();
    let mut mounts = BTreeMap::new();
    for client in report["clients"].as_array().into_iter().flatten() {
        let dir = client["application"].as_str().and_then(|name| name.strip_prefix("mount "));
        let (Some(dir), Some(pid)) = (dir, client["pid"].as_u64()) else { continue };
        let host = client["host"].as_str().unwrap_or_default().to_owned();
        let is_here = host == here;
        // The manager knows the beginning of a long path.
        let full = dirs.iter().find(|known| known.to_string_lossy().starts_with(dir));
        if is_here && full.is_none() {
            continue;
        }
        let dir = full.filter(|_| is_here).map_or(Path::new(dir), PathBuf::as_path).to_owned();
        mounts.insert((host.clone(), pid), MountClient { dir, pid, host, is_here });
    }
    mounts.into_values().collect()
}

/// The mounts of a partition; none if its manager does not answer within [`ANSWER_LIMIT`].
pub(crate) fn of_partition(registry: &Registry, name: &str) -> Vec<MountClient> {
    // A manager that runs and does not answer is waited for without a limit: by a thread that ends with this command.
    let (path, name, (sender, answer)) = (registry.path().to_owned(), name.to_owned(), channel());
    let ask = move || {
        let asked = Partition::mount_from(&Registry::open(&path), &name)
            .and_then(|partition| partition.mount_handle().server_status(ServerIndex::MANAGER));
        // The command may have given up.
        let _ = sender.send(asked.ok().and_then(|json| serde_json::from_str(&json).ok()));
    };
    if std::thread::Builder::new().name("mounts".into()).spawn(ask).is_err() {
        return Vec::new();
    }
    let report: Option<Value> = answer.recv_timeout(ANSWER_LIMIT).ok().flatten();
    report.as_ref().map(in_report).unwrap_or_default()
}
