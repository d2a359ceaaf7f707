//! Per-session state: replies to the last changes, so that a repeated request does not act twice, and the files that a session may be
//! writing.
//!
//! Always: a kept reply is in the same batch as the change it answers; at most `REPLIES_REMEMBERED` replies of a session and `SESSIONS_REMEMBERED`
//! sessions are kept, least recently used dropped first.

use std::collections::{BTreeSet, HashMap};

use pario_core::limits::{REPLIES_REMEMBERED, SESSIONS_REMEMBERED};
use pario_core::{Fault, InodeId, SessionId};
use pario_net::message::NameReply;

use super::batch::Batch;
use super::ledger::Ledger;
use super::name_space::RequestOrigin;
use super::rows::{self, NameCounters, ReplyRow};

/// Rows read per page in a scan of all rows of a kind.
pub const SCAN_ROWS: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub struct Sessions {
    known: HashMap<SessionId, KnownSession>,
    writing: HashMap<SessionId, BTreeSet<InodeId>>,
    clock: u64,
}

#[derive(Debug)]
struct KnownSession {
    /// Highest request with a kept reply; `None` until it was read after a restart.
    highest: Option<u64>,
    used: u64,
}

/// Changes in memory for a kept reply, made once its batch is appended.
#[derive(Debug)]
pub struct KeptReply {
    origin: RequestOrigin,
    evicted: Option<SessionId>,
}

impl Sessions {
    /// Reads the state from before a restart.
    pub fn load(ledger: &Ledger) -> Result<Sessions, Fault> {
        let mut sessions = Sessions::default();
        scan(ledger, &rows::sessions(), |key, value| {
            let used = rows::decode(key, value)?;
            sessions.clock = sessions.clock.max(used);
            sessions.known.insert(SessionId(rows::number_of(key)?), KnownSession { highest: None, used });
            Ok(())
        })?;
        scan(ledger, &rows::writers(), |key, _| {
            let (inode, session) = rows::writer_of(key)?;
            sessions.writing.entry(session).or_default().insert(inode);
            Ok(())
        })?;
        Ok(sessions)
    }

    /// The reply kept for a request, if it was carried out before.
    pub fn kept(
        &mut self,
        ledger: &Ledger,
        origin: RequestOrigin,
    ) -> Result<Option<ReplyRow<NameReply>>, Fault> {
        let Some(known) = self.known.get_mut(&origin.session) else { return Ok(None) };
        let highest = match known.highest {
            Some(highest) => highest,
            None => *known.highest.insert(highest_kept(ledger, origin.session)?),
        };
        if highest < origin.request {
            return Ok(None);
        }
        let key = rows::reply(origin.session, slot(origin.request));
        let Some(value) = ledger.get(&key)? else { return Ok(None) };
        let row: ReplyRow<NameReply> = rows::decode(&key, &value)?;
        Ok((row.request == origin.request).then_some(row))
    }

    /// Adds a reply to the batch of the change that it answers.
    pub fn keep(
        &self,
        ledger: &Ledger,
        origin: RequestOrigin,
        (batch, counters): (&mut Batch, &mut NameCounters),
        (created, reply): (bool, &NameReply),
    ) -> Result<KeptReply, Fault> {
        let row = ReplyRow { request: origin.request, created, reply: reply.clone() };
        batch.put(&rows::reply(origin.session, slot(origin.request)), &rows::encode(&row));
        if self.known.contains_key(&origin.session) {
            return Ok(KeptReply { origin, evicted: None });
        }
        batch.put(&rows::session(origin.session), &rows::encode(&counters.next_stamp));
        counters.next_stamp += 1;
        let evicted = if self.known.len() < SESSIONS_REMEMBERED { None } else { self.longest_unused() };
        if let Some(session) = evicted {
            delete_replies(ledger, session, batch)?;
        }
        Ok(KeptReply { origin, evicted })
    }

    /// The batch of a kept reply was appended.
    pub fn was_kept(&mut self, keeping: &KeptReply) {
        if let Some(session) = keeping.evicted {
            self.known.remove(&session);
        }
        self.clock += 1;
        let origin = keeping.origin;
        let known = self.known.entry(origin.session).or_insert(KnownSession { highest: Some(0), used: 0 });
        known.used = self.clock;
        known.highest = known.highest.max(Some(origin.request));
    }

    /// Whether a session is noted as a writer of a file.
    #[must_use]
    pub fn is_writing(&self, session: SessionId, inode: InodeId) -> bool {
        self.writing.get(&session).is_some_and(|inodes| inodes.contains(&inode))
    }

    /// Notes a writer, or that it is none any more.
    pub fn set_writing(&mut self, session: SessionId, inode: InodeId, is_writing: bool) {
        let inodes = self.writing.entry(session).or_default();
        if is_writing {
            inodes.insert(inode);
        } else {
            inodes.remove(&inode);
        }
        if inodes.is_empty() {
            self.writing.remove(&session);
        }
    }

    /// The files of which a session is noted as a writer.
    pub fn written_by(&self, session: SessionId) -> impl Iterator<Item = InodeId> + '_ {
        self.writing.get(&session).into_iter().flatten().copied()
    }

    /// The sessions that are noted as writers of a file.
    pub fn writers_of(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        self.writing.iter().filter(move |(_, inodes)| inodes.contains(&inode)).map(|(session, _)| *session)
    }

    /// Sessions with kept replies.
    pub fn known(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.known.keys().copied()
    }

    /// Batch that deletes a session's rows.
    pub fn forget_rows(&self, ledger: &Ledger, session: SessionId) -> Result<Batch, Fault> {
        let mut batch = Batch::default();
        batch.set_frees();
        if self.known.contains_key(&session) {
            delete_replies(ledger, session, &mut batch)?;
        }
        for inode in self.written_by(session) {
            batch.delete(&rows::writer(inode, session));
        }
        Ok(batch)
    }

    /// Drops a session after its rows are deleted.
    pub fn forget(&mut self, session: SessionId) {
        self.known.remove(&session);
        self.writing.remove(&session);
    }

    fn longest_unused(&self) -> Option<SessionId> {
        self.known.iter().min_by_key(|(_, known)| known.used).map(|(session, _)| *session)
    }
}

/// Calls `visit` with every row of a prefix.
pub fn scan(
    ledger: &Ledger,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = ledger.page(prefix, after.as_deref(), SCAN_ROWS)?;
        for (key, value) in &page.rows {
            visit(key, value)?;
        }
        match page.rows.into_iter().next_back() {
            Some((key, _)) if page.more => after = Some(key),
            _ => return Ok(()),
        }
    }
}

fn highest_kept(ledger: &Ledger, session: SessionId) -> Result<u64, Fault> {
    let mut highest = 0;
    scan(ledger, &rows::replies(session), |key, value| {
        let row: ReplyRow<NameReply> = rows::decode(key, value)?;
        highest = highest.max(row.request);
        Ok(())
    })?;
    Ok(highest)
}

fn delete_replies(ledger: &Ledger, session: SessionId, batch: &mut Batch) -> Result<(), Fault> {
    batch.delete(&rows::session(session));
    scan(ledger, &rows::replies(session), |key, _| {
        batch.delete(key);
        Ok(())
    })
}

fn slot(request: u64) -> u16 {
    const _: () = assert!(REPLIES_REMEMBERED <= 1 << 16, "a slot is a u16");
    #[expect(clippy::cast_possible_truncation, reason = "smaller than REPLIES_KEPT")]
    let slot = (request % REPLIES_REMEMBERED as u64) as u16;
    slot
}
