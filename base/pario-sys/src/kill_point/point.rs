//! The points: number, name, role and description.
//!
//! Always: a number is never reused for another step; `docs/kill-points.md` has the same table.

/// Kind of process that passes a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointRole {
    /// A process that has mounted a partition.
    Client,
    /// Any server of a partition.
    Server,
    /// Server 0.
    Manager,
}

macro_rules! points {
    ($($number:literal $variant:ident $name:literal $role:ident $moment:literal)*) => {
        /// A step of a process. Reached by [`super::reach`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Point {
            $(#[doc = $moment] $variant = $number,)*
        }

        impl Point {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Point] = &[$(Point::$variant,)*];

            /// Name for arming.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Point::$variant => $name,)* }
            }

            /// Kind of process that passes it.
            #[must_use]
            pub const fn role(self) -> PointRole {
                match self { $(Point::$variant => PointRole::$role,)* }
            }

            /// Description: steps done before it is reached, and steps not done.
            #[must_use]
            pub const fn moment(self) -> &'static str {
                match self { $(Point::$variant => $moment,)* }
            }
        }
    };
}

points! {
    1 CommitBegun "commit-begun" Client "a record is requested; its space is not reserved yet"
    2 CommitFloor "commit-floor" Client "the oldest records are given up and space is reserved; the new one is not written"
    3 CommitBytes "commit-bytes" Client "the record's bytes are in the ring, its head is not"
    4 CommitHead "commit-head" Client "bytes and head are in the ring; the tail has not moved"
    5 CommitTail "commit-tail" Client "the tail has moved, the record is committed; no server was notified"
    6 CommitTold "commit-told" Client "the servers were notified; the write has not returned"
    7 OfferAnswered "offer-answered" Client "a server has attached the outbox; its cursor is not in use yet"
    8 OfferTaken "offer-taken" Server "an outbox is among those drained; its client is not notified"
    9 DrainHeads "drain-heads" Server "the heads of a round are read; nothing of it is written"
    10 DrainUnwritten "drain-unwritten" Server "pieces are joined to one write; it has not begun"
    11 DrainWritten "drain-written" Server "one write of a round is in the store; what follows it is not"
    12 DrainRound "drain-round" Server "a round is in the store; no cursor has moved"
    13 DrainUnwoken "drain-unwoken" Server "a cursor has moved; its waiting client was not woken"
    14 DrainCursor "drain-cursor" Server "one cursor of a round has moved; those of other outboxes have not"
    15 SyncAsked "sync-asked" Server "a sync of an object was requested and not begun"
    16 SyncDone "sync-done" Server "an object is on stable storage; its client is not notified"
    17 CutObject "cut-object" Server "an object was cut; the manager does not know"
    18 RemoveObject "remove-object" Server "an object was removed; the manager does not know"
    19 LendAsked "lend-asked" Server "a descriptor was requested; its object is not open"
    20 LendOpened "lend-opened" Server "the object is open, and made if it had to be; nothing is sent"
    21 LendSent "lend-sent" Server "the descriptor was sent"
    22 LendReceived "lend-received" Client "a lent descriptor was received; it is not in use"
    23 DirectWritten "direct-written" Client "a direct write is in the object; its length is not noted"
    24 GrantNoted "grant-noted" Manager "a lease is decided and its writer in the log; the grant is not sent"
    25 GrantReceived "grant-received" Client "a lease was received; it is not used yet"
    26 RecallDecided "recall-decided" Manager "a recall of a lease is decided; its holder was not notified"
    27 RecallSent "recall-sent" Manager "its holder was notified"
    28 RecallHeard "recall-heard" Client "the recall was received; it is not handled yet"
    29 RecallDrained "recall-drained" Client "all writes under the lease are drained; it is not returned"
    30 RecallReturned "recall-returned" Client "the manager has the lease back; the file does not know"
    31 ReturnNoted "return-noted" Manager "the length that came with a lease is in the log; the lease is not free"
    32 SettleBegun "settle-begun" Manager "a writer is dead; its records are not drained"
    33 SettleDrained "settle-drained" Manager "its records are drained; its file is not measured"
    34 SettleMeasured "settle-measured" Manager "its file is measured; its length is as before"
    35 SettleGrown "settle-grown" Manager "the length is in the log; the writer is not forgotten"
    36 LogUnwritten "log-unwritten" Manager "a change of names is decided and not in the log"
    37 LogWritten "log-written" Manager "the change is in the log; it is not visible and no client was notified"
    38 LogUnsynced "log-unsynced" Manager "a sync of the log is due and not begun"
    39 LogSynced "log-synced" Manager "the log is on stable storage; no client was notified"
    40 NamesFrozen "names-frozen" Manager "a new log is made; changes still go to the old one"
    41 NamesApplied "names-applied" Manager "changes are in redb; their log is still there"
    42 CutNoted "cut-noted" Manager "a truncation is in the log; no object was cut"
    43 CutCarried "cut-carried" Manager "all objects were cut; the truncation is not finished"
    44 RemoveNoted "remove-noted" Manager "a name is removed; no object was removed"
    45 RemoveCarried "remove-carried" Manager "the objects are removed; the inode is still there"
    46 DrainChecked "drain-checked" Server "the pieces of a write are known to be there still; it has not begun"
    47 LockGranted "lock-granted" Manager "a lock is granted; its holder was not notified"
    48 UnlockHeard "unlock-heard" Manager "a lock was returned; no other client holds it"
    49 LockReceived "lock-received" Client "a lock was received; it is not used yet"
    50 LockRecallHeard "lock-recall-heard" Client "a recall of a lock was received; it is not handled yet"
    51 LockReturned "lock-returned" Client "a lock was given back, or said to be in use"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_from_one_and_names_are_unique() {
        for (place, point) in Point::ALL.iter().enumerate() {
            assert_eq!(usize::from(*point as u16), place + 1, "{point:?}");
            let same = Point::ALL.iter().filter(|other| other.name() == point.name()).count();
            assert_eq!(same, 1, "{}", point.name());
        }
    }

    #[test]
    fn the_document_lists_exactly_these() {
        let document = include_str!("../../../../docs/kill-points.md");
        let rows = document.lines().filter(|line| line.starts_with('|'));
        let rows: Vec<&str> =
            rows.filter(|row| row[1..].trim_start().starts_with(char::is_numeric)).collect();
        let expected: Vec<String> = Point::ALL
            .iter()
            .map(|point| {
                let role = format!("{:?}", point.role()).to_lowercase();
                format!("| {} | `{}` | {role} | {} |", *point as u16, point.name(), point.moment())
            })
            .collect();
        assert_eq!(rows, expected, "write them as they should be:\n{}\n", expected.join("\n"));
    }
}
