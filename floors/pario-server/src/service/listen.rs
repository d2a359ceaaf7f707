//! Listening sockets: a socket file for this node, a TCP port for others.
//!
//! Never: serves a process of another user on the socket file; uses the last descriptors, which the server needs for its own files, for a
//! connection. Always: removes its socket file when it ends; an abstract address ends with the process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use pario_core::{Code, Fault};
use pario_net::stream::{Stream, nameless, prepare_tcp};
use pario_sys::dir::{Dir, PRIVATE_FILE};
use pario_sys::socket::peer_credentials;

use super::ServerSpec;

/// Descriptors reserved for the server's own work (a store keeps up to 1024 open), or a quarter where the process limit is low.
const DESCRIPTORS_KEPT: u64 = 1024 + 64;

/// Descriptor limit of this process; `None` without limit.
pub(super) fn descriptors_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Whether a connection may be accepted. The kernel assigns the lowest free descriptor, so a fresh one shows how many are left.
pub(super) fn has_descriptors(any: &OwnedFd) -> bool {
    let Some(limit) = descriptors_max() else { return true };
    let kept = DESCRIPTORS_KEPT.min(limit / 4);
    any.try_clone()
        .is_ok_and(|fresh| u64::try_from(fresh.as_raw_fd()).is_ok_and(|number| number + kept < limit))
}

/// See the module.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) unix: Option<UnixListener>,
    pub(super) tcp: Option<TcpListener>,
    path: Option<PathBuf>,
}

impl Listeners {
    pub(super) fn open(spec: &ServerSpec) -> Result<Listeners, Fault> {
        let unix = spec.unix.as_deref().map(listen_unix).transpose()?;
        let tcp = spec.tcp.map(listen_tcp).transpose()?;
        let path = spec.unix.clone().filter(|path| nameless(path).is_none());
        Ok(Listeners { unix, tcp, path })
    }

    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
    }

    /// The next waiting connection.
    pub(super) fn accept(&self, unix: bool) -> Option<io::Result<Stream>> {
        let accepted = if unix { self.accept_unix() } else { self.accept_tcp() };
        match accepted {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            other => Some(other),
        }
    }

    fn accept_unix(&self) -> io::Result<Stream> {
        let Some(listener) = &self.unix else { return Err(io::ErrorKind::WouldBlock.into()) };
        let (stream, _) = listener.accept()?;
        let peer = peer_credentials(stream.as_fd())?;
        let me = rustix::process::geteuid().as_raw();
        if peer.uid != me {
            let text =
                format!("process {} of user {} asked, this partition is user {me}'s", peer.pid, peer.uid);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Stream::Unix(stream))
    }

    fn accept_tcp(&self) -> io::Result<Stream> {
        let Some(listener) = &self.tcp else { return Err(io::ErrorKind::WouldBlock.into()) };
        let (stream, _) = listener.accept()?;
        prepare_tcp(&stream)?;
        Ok(Stream::Tcp(stream))
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Another process may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen_unix(path: &Path) -> Result<UnixListener, Fault> {
    let failed = |error: io::Error| Fault::from_io(&error, format!("listening on {}", path.display()));
    if let Some(name) = nameless(path) {
        let address = unix::net::SocketAddr::from_abstract_name(name).map_err(failed)?;
        let listener = UnixListener::bind_addr(&address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        return Ok(listener);
    }
    let listener = bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Through the directory's descriptor: that allows any path length, and later changes of the path do not matter.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = Dir::open(parent)?;
    match dir.remove_file(Path::new(name)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let way = dir.descriptor_path(name);
    let listener = UnixListener::bind(&way)?;
    std::fs::set_permissions(&way, std::os::unix::fs::PermissionsExt::from_mode(PRIVATE_FILE))?;
    Ok(listener)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn listen_tcp(address: SocketAddr) -> Result<TcpListener, Fault> {
    let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Fault::new(
            Code::Busy,
            format!(
                "port {} of {} is in use: choose another with `[network] port`",
                address.port(),
                address.ip()
            ),
        ),
        _ => Fault::from_io(&error, format!("listening on {address}")),
    })?;
    listener
        .set_nonblocking(true)
        .map_err(|error| Fault::from_io(&error, format!("listening on {address}")))?;
    Ok(listener)
}
