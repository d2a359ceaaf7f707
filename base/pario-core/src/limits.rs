//! Limits of every quantity that can grow; limits that depend on each other are checked here at compile time.

/// Smallest stripe; every stripe is a multiple of it.
pub const STRIPE_BYTES_MIN: u64 = 4 << 10;
/// Largest stripe.
pub const STRIPE_BYTES_MAX: u64 = 1 << 30;
/// Stripe of a partition without an explicit one.
pub const STRIPE_BYTES_DEFAULT: u64 = 1 << 20;
/// Servers of one partition.
pub const SERVERS_MAX: usize = 1024;

/// Longest name of one directory entry, as in POSIX.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path.
pub const PATH_BYTES_MAX: usize = 4095;
/// Symbolic links followed in one path.
pub const LINKS_FOLLOWED_MAX: usize = 40;
/// Directory entries in one page of a listing.
pub const LIST_PAGE_ENTRIES: u32 = 4096;
/// Largest file: offsets stay representable as `off_t`.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Largest body of a frame (all but file data).
pub const FRAME_BODY_BYTES_MAX: usize = 4 << 20;
/// Largest data part of a frame.
pub const FRAME_DATA_BYTES_MAX: usize = 8 << 20;
/// Requests that one client may have in flight at one server.
pub const IN_FLIGHT_MAX: usize = 256;
/// Replies that the manager remembers per session, so that a repeated request does not act twice.
pub const REPLIES_REMEMBERED: usize = 2 * IN_FLIGHT_MAX;
/// Sessions with replies remembered by the manager.
pub const SESSIONS_REMEMBERED: usize = 4096;
/// Tasks of clients that may wait for one thread of a server (manager, drain) or for one of its pools. Requests beyond it wait in their
/// connections, which are not read meanwhile.
pub const TASKS_WAITING_MAX: usize = 16 * IN_FLIGHT_MAX;
/// Names of one inode.
pub const LINKS_MAX: u32 = 65_000;
/// Name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Value of an extended attribute.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Names and values of all extended attributes of an inode.
pub const XATTRS_BYTES_MAX: usize = 1 << 20;

/// Clients connected concurrently to one server.
pub const CLIENTS_MAX: usize = 4096;

/// Smallest outbox.
pub const OUTBOX_BYTES_MIN: usize = 256 << 10;
/// Largest outbox.
pub const OUTBOX_BYTES_MAX: usize = 1 << 30;
/// Outbox of a partition without an explicit size.
pub const OUTBOX_BYTES_DEFAULT: usize = 16 << 20;
/// Largest data part of one record.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Granularity of shared-memory allocation: a large page, where the kernel has them.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;
/// A server is woken when about this much is pending for it in one outbox.
pub const WAKE_BYTES: u64 = 1 << 20;

/// Views of one session at one server.
pub const VIEWS_MAX: usize = 1024;
/// Memory of the views of one session at one server.
pub const VIEW_TABLE_BYTES_MAX: usize = 64 << 20;

/// Silence limit of a server with a request pending. A server on this node is then declared dead only if its process is stopped or has
/// ended; a server on another node if it answers no probe.
pub const SILENCE_MS_MAX: u64 = 3500;
/// Interval of pings from a waiting client to a silent server.
pub const PING_MS: u64 = 1000;
/// Silence after which a server of another node is probed over a separate connection.
pub const PROBE_AFTER_MS: u64 = 1500;
/// Time limit of a probe.
pub const PROBE_MS_MAX: u64 = 1500;
/// Time limit of one connection attempt with its handshake.
pub const CONNECT_MS_MAX: u64 = 3000;
/// Time limit of a running server for the greeting of a control connection or of a peer that copies names.
pub const ORDER_GREETING_MS_MAX: u64 = 5000;
/// Time limit of one answer there; the end of a server has a limit of its own.
pub const ORDER_ANSWER_MS_MAX: u64 = 8000;

const _: () = assert!(IN_FLIGHT_MAX <= REPLIES_REMEMBERED, "each request in flight needs a kept reply");
const _: () = assert!(RECORD_BYTES_MAX * 2 <= OUTBOX_BYTES_DEFAULT, "an outbox holds at least two records");
const _: () = assert!(PING_MS * 2 < SILENCE_MS_MAX, "a living server gets two chances to answer");
const _: () =
    assert!(PROBE_AFTER_MS + PROBE_MS_MAX < SILENCE_MS_MAX, "a probe ends before the silence limit");
const _: () =
    assert!(SILENCE_MS_MAX < ORDER_GREETING_MS_MAX, "a stopped process is told from a silent one first");
const _: () = assert!(SILENCE_MS_MAX + PING_MS < 5000, "a dead peer is reported within five seconds");
