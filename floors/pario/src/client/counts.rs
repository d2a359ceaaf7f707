//! What a mount has done, counted: for tests, `PARIO_STATS` and benchmarks.
//!
//! Never: costs more than an addition. Always: a count only grows.

use std::sync::atomic::{AtomicU64, Ordering};

use pario_net::message::Request;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was done so far.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counts {
            /// What was done since an earlier look.
            #[must_use]
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name - before.$name,)* }
            }

            /// Both together.
            #[must_use]
            pub fn plus(&self, other: &Counts) -> Counts {
                Counts { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counts! {
    /// Requests sent, of all kinds.
    messages,
    /// Of these, about names and attributes.
    name_messages,
    /// About leases: asked for, given back, made longer.
    lease_messages,
    /// That make views known or forgotten.
    view_messages,
    /// That read.
    read_messages,
    /// That write.
    write_messages,
    /// Records committed to the outbox.
    records,
    /// Bytes of them.
    record_bytes,
    /// Writes through lent descriptors.
    direct_writes,
    /// Bytes of them.
    direct_write_bytes,
    /// Reads through lent descriptors.
    direct_reads,
    /// Bytes of them.
    direct_read_bytes,
    /// Reads of small pieces through a mapping.
    mapped_reads,
    /// Bytes of them.
    mapped_read_bytes,
    /// Bytes sent with messages that write.
    sent_bytes,
    /// Bytes received with messages that read.
    received_bytes,
    /// Leases asked for.
    leases,
    /// Leases given back because they were recalled.
    recalls,
    /// Views told to servers.
    views,
    /// Bytes of them.
    view_bytes,
    /// Bytes of offset lists; only two-phase makes any.
    list_bytes,
    /// Messages about locks: asked for, given back, said to be in use.
    lock_messages,
    /// Locks asked for at the manager.
    locks,
    /// Locks around accesses that the kernel kept, without a message.
    kernel_locks,
    /// Of these, and of those that were waited for at the manager in the end, that somebody else had at first.
    kernel_lock_waits,
    /// Messages about shared pointers.
    pointer_messages,
    /// Nanoseconds inside calls that write.
    write_ns,
    /// Nanoseconds inside calls that read.
    read_ns,
    /// Of both, nanoseconds until there was a lease.
    lease_ns,
    /// Nanoseconds until the manager, or the kernel, gave a lock.
    lock_ns,
}

impl Counters {
    pub(super) fn message(&self, request: &Request, data_bytes: usize) {
        let add = |counter: &AtomicU64, number: u64| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.messages, 1);
        let kind = match request {
            Request::Name { .. } | Request::Close { .. } | Request::SyncNames { .. } => &self.name_messages,
            Request::Acquire { .. }
            | Request::AcquireFree { .. }
            | Request::Return { .. }
            | Request::Extend { .. } => &self.lease_messages,
            Request::DefineView { .. } | Request::ForgetView { .. } => &self.view_messages,
            Request::Read { .. } | Request::ReadAtOnce { .. } | Request::ReadStream { .. } => {
                &self.read_messages
            }
            Request::Write { .. } | Request::WriteAtOnce { .. } | Request::WriteStream { .. } => {
                add(&self.sent_bytes, data_bytes as u64);
                &self.write_messages
            }
            Request::Lock { .. }
            | Request::Unlock { .. }
            | Request::LockBusy { .. }
            | Request::CancelLock { .. }
            | Request::FindLock { .. } => &self.lock_messages,
            Request::SharePointer { .. } | Request::MovePointer { .. } => &self.pointer_messages,
            Request::Ping {}
            | Request::Use { .. }
            | Request::SetLength { .. }
            | Request::Lend { .. }
            | Request::SyncObject { .. }
            | Request::FlushObject { .. }
            | Request::TakeErrors { .. }
            | Request::OfferOutbox { .. }
            | Request::Truncate { .. }
            | Request::RemoveObject { .. }
            | Request::Measure { .. }
            | Request::Drain { .. }
            | Request::ListObjects { .. }
            | Request::RemoveOrphan { .. }
            | Request::Space {}
            | Request::Status {}
            | Request::ListInodes { .. }
            | Request::Claim { .. }
            | Request::GiveBack { .. }
            | Request::VisitRead { .. }
            | Request::VisitStill { .. }
            | Request::VisitWrite { .. }
            | Request::Pass { .. }
            | Request::VisitTake { .. }
            | Request::Shutdown { .. } => return,
        };
        add(kind, 1);
    }
}
