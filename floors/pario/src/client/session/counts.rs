//! Counters of a session: for tests, `PARIO_STATS` and benchmarks.
//!
//! Never: costs more than an addition. Always: a counter only grows.

use std::sync::atomic::{AtomicU64, Ordering};

use pario_net::message::Request;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of the counters.
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
            pub(in crate::client) fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counts {
            /// The difference to an earlier snapshot.
            #[must_use]
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name - before.$name,)* }
            }

            /// The sum of two snapshots.
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
    /// About leases: acquired, returned, renewed.
    lease_messages,
    /// Messages that register or remove views.
    view_messages,
    /// Messages that read.
    read_messages,
    /// Messages that write.
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
    /// Leases requested.
    leases,
    /// Leases returned because they were recalled.
    recalls,
    /// Views sent to servers.
    views,
    /// Bytes of them.
    view_bytes,
    /// Bytes of offset lists; only two-phase makes any.
    list_bytes,
    /// Messages about locks: requested, returned, reported busy.
    lock_messages,
    /// Locks requested from the manager.
    locks,
    /// Locks of accesses taken in the kernel, without a message.
    kernel_locks,
    /// Of these, and of those finally taken at the manager, the number that another holder had at first.
    kernel_lock_waits,
    /// Messages about shared pointers.
    pointer_messages,
    /// Nanoseconds inside calls that write.
    write_ns,
    /// Nanoseconds inside calls that read.
    read_ns,
    /// Of both, nanoseconds waiting for a lease.
    lease_ns,
    /// Nanoseconds waiting for the manager or the kernel to grant a lock.
    lock_ns,
}

impl Counters {
    pub(in crate::client) fn message(&self, request: &Request, data_bytes: usize) {
        // The report of direct bytes is not counted.
        if let Request::CountDirect { .. } = request {
            return;
        }
        let add = |counter: &AtomicU64, number: u64| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.messages, 1);
        let kind = match request {
            Request::Name { .. } | Request::Close { .. } | Request::SyncNames { .. } => &self.name_messages,
            Request::Acquire { .. }
            | Request::AcquireFree { .. }
            | Request::Return { .. }
            | Request::Extend { .. } => &self.lease_messages,
            Request::DefineView { .. } | Request::ForgetView { .. } => &self.view_messages,
            Request::Read { .. } | Request::ReadAtomic { .. } | Request::ReadStream { .. } => {
                &self.read_messages
            }
            Request::Write { .. } | Request::WriteAtomic { .. } | Request::WriteStream { .. } => {
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
            | Request::CollectErrors { .. }
            | Request::OfferOutbox { .. }
            | Request::Truncate { .. }
            | Request::RemoveObject { .. }
            | Request::Measure { .. }
            | Request::Drain { .. }
            | Request::ListObjects { .. }
            | Request::CheckLengths { .. }
            | Request::Verify { .. }
            | Request::FindData { .. }
            | Request::CountDirect { .. }
            | Request::StoredBytes { .. }
            | Request::StoreCall {}
            | Request::RemoveOrphan { .. }
            | Request::CopyFiles {}
            | Request::CopyWrite { .. }
            | Request::CopyRead { .. }
            | Request::SetAside { .. }
            | Request::CutLeftover { .. }
            | Request::Space {}
            | Request::Status {}
            | Request::ListInodes { .. }
            | Request::AddressChanged { .. }
            | Request::Bind { .. }
            | Request::Claim { .. }
            | Request::GiveBack { .. }
            | Request::VisitRead { .. }
            | Request::VisitUnchanged { .. }
            | Request::VisitWrite { .. }
            | Request::ReportHandover { .. }
            | Request::VisitHandover { .. }
            | Request::Shutdown { .. } => return,
        };
        add(kind, 1);
    }
}
