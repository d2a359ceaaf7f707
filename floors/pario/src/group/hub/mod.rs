//! The hub of a local group: a thread that distributes the members' contributions, and detects dead members.
//!
//! Never: leaves a name in the file system; waits for a member while others could be served; reads a clock. Always: a process
//! that was not invited, or belongs to another user, is refused; a member's death is reported to all others immediately; when the
//! hub itself dies its members notice by the end of their sockets.

mod connection;
mod service;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use pario_core::Fault;
use pario_net::greeting::nonce;
use pario_sys::dir::{OwnError, runtime_base, temporary_path};
use pario_sys::doorbell::Doorbell;
use rustix::fs::{Mode, OFlags};

use self::service::HubService;
use super::collective_state::MEMBERS_MAX;
use super::invitation::Invitation;
use super::wire::TOKEN_BYTES;
use crate::error::{Error, Result};

/// A running hub. Dropping it ends the group for all members.
///
/// ```no_run
/// let hub = pario::group::Hub::start(4)?;
/// for rank in 0..4 {
///     std::process::Command::new("./simulate").envs(hub.invitation(rank).variables()).spawn().expect("it starts");
/// }
/// # Ok::<(), pario::Error>(())
/// ```
#[derive(Debug)]
pub struct Hub {
    size: u32,
    socket: PathBuf,
    token: [u8; TOKEN_BYTES],
    commands: Arc<HubCommands>,
    thread: Option<JoinHandle<()>>,
    /// Descriptor of the socket's path: members connect through it.
    _path: OwnedFd,
}

/// Commands of the hub's owner to its thread.
#[derive(Debug)]
struct HubCommands {
    list: Mutex<Vec<HubCommand>>,
    doorbell: Doorbell,
    /// The first member that died; set by the thread for the owner.
    lost: OnceLock<usize>,
}

#[derive(Debug)]
enum HubCommand {
    /// The process that was started for a rank has ended, and how.
    ProcessEnded(usize, String),
    /// The owner no longer needs the hub: it ends with its last member.
    Retire,
    Stop,
}

impl HubCommands {
    fn list(&self) -> MutexGuard<'_, Vec<HubCommand>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, order: HubCommand) {
        self.list().push(order);
        if let Err(error) = self.doorbell.ring() {
            tracing::warn!(%error, "the hub of a group cannot be woken");
        }
    }
}

impl Hub {
    /// Starts a hub for a group of `size` members.
    pub fn start(size: usize) -> Result<Hub> {
        if !(1..=MEMBERS_MAX).contains(&size) {
            return Err(Error::Setup(format!("a group of {size} members: 1 to {MEMBERS_MAX} are allowed")));
        }
        let failed = |error: io::Error| Error::from(Fault::from_io(&error, "starting the hub of a group"));
        let (listener, place) = listen(size).map_err(failed)?;
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&nonce()[..TOKEN_BYTES]);
        let doorbell = Doorbell::new().map_err(failed)?;
        let orders = Arc::new(HubCommands { list: Mutex::new(Vec::new()), doorbell, lost: OnceLock::new() });
        let service = HubService::new(listener, token, size, Arc::clone(&orders)).map_err(failed)?;
        let thread = std::thread::Builder::new().name("pario-hub".into()).spawn(move || service.run());
        Ok(Hub {
            size: u32::try_from(size).expect("at most a few thousand"),
            socket: format!("/proc/{}/fd/{}", std::process::id(), place.as_raw_fd()).into(),
            token,
            commands: orders,
            thread: Some(thread.map_err(failed)?),
            _path: place,
        })
    }

    /// Number of members of the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The invitation for the process of a rank.
    ///
    /// # Panics
    /// If the group has no such rank.
    #[must_use]
    pub fn invitation(&self, rank: usize) -> Invitation {
        let rank = u32::try_from(rank).ok().filter(|rank| *rank < self.size);
        let rank = rank.unwrap_or_else(|| panic!("a group of {} has no such rank", self.size));
        Invitation { rank, size: self.size, socket: self.socket.clone(), token: self.token }
    }

    /// Reports that the process started for a rank has ended: no other process will join as that rank. `how` completes "it ", as
    /// in "ended with exit code 1". Has an effect only if the rank never joined; a member's end is detected without this call.
    pub fn ended(&self, rank: usize, how: &str) {
        self.commands.send(HubCommand::ProcessEnded(rank, how.to_owned()));
    }

    /// Detaches the hub, which then runs until its last member has left or died; for members that start their own hub, which must
    /// not end before the slower members. A rank that never joins keeps it for the life of this process.
    pub fn retire(mut self) {
        self.commands.send(HubCommand::Retire);
        // Without its thread the drop has nothing to stop.
        drop(self.thread.take());
    }

    /// The first rank that died without leaving: the cause, where others ended because of it.
    #[must_use]
    pub fn first_lost(&self) -> Option<usize> {
        self.commands.lost.get().copied()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.commands.send(HubCommand::Stop);
        if thread.join().is_err() {
            tracing::error!("the hub of a group panicked");
        }
    }
}

/// A listening socket without a name. A descriptor of its path is kept and the name removed immediately; processes that may open
/// this process's descriptors (same user) connect through it, also from another network namespace.
fn listen(size: usize) -> io::Result<(UnixListener, OwnedFd)> {
    let name: String = nonce()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name: OsString = format!(".pario-hub-{name}").into();
    let (socket, place) = runtime_base(|dir| {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
            None,
        )?;
        // Through the descriptor: a socket name is limited to 107 bytes, a directory path may be longer.
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(dir.descriptor_path(&name))?)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(dir, &name, flags, Mode::empty());
        dir.remove_file(Path::new(&name))?;
        Ok((socket, place?))
    })
    .map_err(OwnError::into_io)?;
    // Nothing is left: the directory is removed, too, unless other processes use it.
    let _ = std::fs::remove_dir(temporary_path());
    rustix::net::listen(&socket, i32::try_from(size + 16).unwrap_or(i32::MAX))?;
    Ok((UnixListener::from(socket), place))
}

/// Command name of a process.
pub(super) fn program_of(pid: u32) -> String {
    use std::io::Read;
    let mut name = String::new();
    let comm =
        File::open(format!("/proc/{pid}/comm")).and_then(|file| file.take(64).read_to_string(&mut name));
    if comm.is_err() {
        return "unknown".into();
    }
    name.trim_end().to_owned()
}
