//! The hub of a local group: a thread that carries what members say to each other, and notices who is gone.
//!
//! Never: leaves a name in the file system; waits for a member while others could be served; reads a clock. Always: a process
//! that was not invited, or is another user's, is refused; a member's death is told to all others at once; when the hub itself
//! dies its members notice by the end of their sockets.

mod guest;
mod service;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use pario_core::Fault;
use pario_net::greeting::nonce;
use pario_sys::doorbell::Doorbell;
use rustix::fs::{Mode, OFlags};

use self::service::Service;
use super::invitation::Invitation;
use super::meeting::MEMBERS_MAX;
use super::wire::TOKEN_BYTES;
use crate::error::{Error, Result};

/// A running hub. Its members lose it when it is dropped.
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
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
    /// Keeps the socket's place reachable: members connect through it.
    _place: OwnedFd,
}

/// What the hub's owner tells its thread.
#[derive(Debug)]
struct Orders {
    list: Mutex<Vec<Order>>,
    doorbell: Doorbell,
    /// What the thread tells its owner: the first member that was gone.
    lost: OnceLock<usize>,
}

#[derive(Debug)]
enum Order {
    /// The process that was started for a rank has ended; how.
    Ended(usize, String),
    /// Nobody looks after it any more: it ends with its last member.
    Retire,
    Stop,
}

impl Orders {
    fn list(&self) -> MutexGuard<'_, Vec<Order>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: Order) {
        self.list().push(order);
        if let Err(error) = self.doorbell.ring() {
            tracing::warn!(%error, "the hub of a group cannot be woken");
        }
    }
}

impl Hub {
    /// Starts a hub for a group of `size`.
    pub fn start(size: usize) -> Result<Hub> {
        if !(1..=MEMBERS_MAX).contains(&size) {
            return Err(Error::Setup(format!("a group of {size}: 1 to {MEMBERS_MAX} can be members")));
        }
        let failed = |error: io::Error| Error::from(Fault::from_io(&error, "starting the hub of a group"));
        let (listener, place) = listen(size).map_err(failed)?;
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&nonce()[..TOKEN_BYTES]);
        let doorbell = Doorbell::new().map_err(failed)?;
        let orders = Arc::new(Orders { list: Mutex::new(Vec::new()), doorbell, lost: OnceLock::new() });
        let service = Service::new(listener, token, size, Arc::clone(&orders)).map_err(failed)?;
        let thread = std::thread::Builder::new().name("pario-hub".into()).spawn(move || service.run());
        Ok(Hub {
            size: u32::try_from(size).expect("at most a few thousand"),
            socket: format!("/proc/{}/fd/{}", std::process::id(), place.as_raw_fd()).into(),
            token,
            orders,
            thread: Some(thread.map_err(failed)?),
            _place: place,
        })
    }

    /// How many members the group has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// What the process of a rank needs to join.
    ///
    /// # Panics
    /// If the group has no such rank.
    #[must_use]
    pub fn invitation(&self, rank: usize) -> Invitation {
        let rank = u32::try_from(rank).ok().filter(|rank| *rank < self.size);
        let rank = rank.unwrap_or_else(|| panic!("a group of {} has no such rank", self.size));
        Invitation { rank, size: self.size, socket: self.socket.clone(), token: self.token }
    }

    /// The process that was started for a rank has ended: nobody else will join as that rank. `how` completes "it ", as in
    /// "ended with exit code 1". News only if the rank never joined; a member's end is noticed without this.
    pub fn ended(&self, rank: usize, how: &str) {
        self.orders.give(Order::Ended(rank, how.to_owned()));
    }

    /// Lets the hub go on by itself until its last member has left or is gone; for members that start their own hub, which must
    /// not end under those who are slower. A rank that never joins keeps it for the life of this process.
    pub fn retire(mut self) {
        self.orders.give(Order::Retire);
        // Without its thread there is nothing to stop when this is dropped.
        drop(self.thread.take());
    }

    /// The first rank that was gone without having left: the cause, where others ended because of it.
    #[must_use]
    pub fn first_lost(&self) -> Option<usize> {
        self.orders.lost.get().copied()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.orders.give(Order::Stop);
        if thread.join().is_err() {
            tracing::error!("the hub of a group panicked");
        }
    }
}

/// A listening socket without a name. A descriptor of its place is kept and the name removed at once; who may look at this
/// process's descriptors, its own user, can connect through it, also from another network namespace.
fn listen(size: usize) -> io::Result<(UnixListener, OwnedFd)> {
    let dir = rustix::fs::open(
        std::env::temp_dir(),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let name: String = nonce()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name: OsString = format!(".pario-hub-{name}").into();
    // Through the descriptor: the name of a socket has room for 107 bytes, that of a directory may be longer.
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(&name);
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path)?)?;
    let place =
        rustix::fs::openat(&dir, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    rustix::fs::unlinkat(&dir, &name, rustix::fs::AtFlags::empty())?;
    let place = place?;
    rustix::net::listen(&socket, i32::try_from(size + 16).unwrap_or(i32::MAX))?;
    Ok((UnixListener::from(socket), place))
}

/// What a process calls itself.
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
