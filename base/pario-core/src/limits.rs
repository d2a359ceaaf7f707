//! Everything that can grow has a limit, and the limits that lean on each other are checked here.

/// Smallest stripe; also what every stripe is a multiple of.
pub const STRIPE_BYTES_MIN: u64 = 4 << 10;
/// Largest stripe.
pub const STRIPE_BYTES_MAX: u64 = 1 << 30;
/// Stripe of a partition that names none.
pub const STRIPE_BYTES_DEFAULT: u64 = 1 << 20;
/// Servers of one partition.
pub const SERVERS_MAX: usize = 1024;

/// Longest name of one directory entry, as POSIX has it.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path.
pub const PATH_BYTES_MAX: usize = 4095;
/// Symbolic links followed in one path.
pub const LINKS_FOLLOWED_MAX: usize = 40;
/// Directory entries in one page of a listing.
pub const LIST_PAGE_ENTRIES: u32 = 4096;
/// Largest file: offsets stay representable as `off_t`.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Largest body of a frame (everything that is not file data).
pub const FRAME_BODY_BYTES_MAX: usize = 4 << 20;
/// Largest data part of a frame.
pub const FRAME_DATA_BYTES_MAX: usize = 8 << 20;
/// Requests that one client may have in flight at one server.
pub const IN_FLIGHT_MAX: usize = 256;
/// Replies that the manager remembers per session, so that a repeated request does not act twice.
pub const REPLIES_KEPT: usize = 2 * IN_FLIGHT_MAX;
/// Sessions whose replies the manager remembers.
pub const SESSIONS_KEPT: usize = 4096;
/// Clients connected to one server at a time.
pub const CLIENTS_MAX: usize = 4096;

/// Smallest outbox.
pub const OUTBOX_BYTES_MIN: usize = 256 << 10;
/// Largest outbox.
pub const OUTBOX_BYTES_MAX: usize = 1 << 30;
/// Outbox of a partition that names none.
pub const OUTBOX_BYTES_DEFAULT: usize = 16 << 20;
/// Largest data part of one record.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Shared memory is given by so much at a time: a large page, where there are some.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;
/// A server is woken when about this much waits for it in one outbox.
pub const WAKE_BYTES: u64 = 1 << 20;

/// Views that one session may have at one server.
pub const VIEWS_MAX: usize = 1024;
/// Memory of the views that one session may have at one server.
pub const VIEW_TABLE_BYTES_MAX: usize = 64 << 20;

/// A server that is silent for so long, while something is wanted of it, is taken for gone.
pub const SILENCE_MS_MAX: u64 = 3500;
/// How often a waiting client asks a silent server for a sign of life.
pub const PING_MS: u64 = 1000;
/// How long one connection attempt with its handshake may take.
pub const CONNECT_MS_MAX: u64 = 3000;

const _: () = assert!(IN_FLIGHT_MAX <= REPLIES_KEPT, "each request in flight needs a kept reply");
const _: () = assert!(RECORD_BYTES_MAX * 2 <= OUTBOX_BYTES_DEFAULT, "an outbox holds at least two records");
const _: () = assert!(PING_MS * 2 < SILENCE_MS_MAX, "a living server gets two chances to answer");
const _: () = assert!(SILENCE_MS_MAX + PING_MS < 5000, "a dead peer is told within five seconds");
