//! Where a file has data: the servers are asked, so that holes need not be read.
//!
//! Never: reports a hole where there may be data. Always: waits for earlier writes, as a read does.

use std::ops::Range;
use std::sync::Arc;

use pario_core::{Fault, LocalOffset, ServerIndex};
use pario_net::message::{Reply, Request};

use crate::client::file::handle::File;
use crate::client::file::lease::LeasedAccess;
use crate::client::file::locks::access_range;
use crate::client::file::locks::{AccessKind, Guarded};
use crate::client::file::state::OpenFile;
use crate::client::session::state::unexpected_reply;
use crate::error::Result;

impl File {
    /// The parts of `range` that may hold data, in order, none adjacent to another; all other bytes, and bytes beyond the file's end, are
    /// zeros that no server stores. Earlier writes of this process are included, writes of other processes as for a read.
    ///
    /// ```
    /// let partition = pario::Partition::in_process(2)?;
    /// let file = partition.create("sparse")?;
    /// file.write_at(1 << 40, b"far")?;
    /// let parts = file.data_ranges(0..u64::MAX)?;
    /// assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() < 1 << 30);
    /// assert!(parts.iter().any(|part| part.contains(&(1 << 40))));
    /// # Ok::<(), pario::Error>(())
    /// ```
    pub fn data_ranges(&self, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        self.inner.check_open()?;
        self.inner.check_readable()?;
        Ok(data_ranges(&self.inner.file, range)?)
    }
}

fn data_ranges(file: &Arc<OpenFile>, range: Range<u64>) -> std::result::Result<Vec<Range<u64>>, Fault> {
    file.context.session.check_process()?;
    let (_lock, access) = access_range(file, (&range, None), AccessKind::Read, Guarded::No)?;
    let size = file.size_for(&access, range.end)?;
    let range = range.start..range.end.min(size);
    if range.is_empty() {
        return Ok(Vec::new());
    }
    // A server's store does not know data in caches of other nodes or in plain files.
    if !file.context.backing.has_leases() || file.context.session.serves_plain_files() {
        return Ok(vec![range]);
    }
    if file.data.unflushed.is_pending(&range) {
        file.data.unflushed.drain()?;
    }
    let mut found = Vec::new();
    for server in file.context.layout.servers() {
        let local = file.context.layout.local_range(server, range.clone());
        found.push((server, data_on(file, &access, server, local)?));
    }
    Ok(in_file(file, &range, &found))
}

/// Data ranges of a range of one server's object.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn data_on(
    file: &OpenFile,
    access: &LeasedAccess<'_>,
    server: ServerIndex,
    local: Range<u64>,
) -> std::result::Result<Vec<Range<u64>>, Fault> {
    let (mut parts, mut at) = (Vec::new(), local.start);
    while at < local.end {
        let object = file.context.object(access.generation);
        let request = Request::FindData { object, at: LocalOffset(at), bytes: local.end - at };
        let answer =
            file.context.session.call(server, &request).map_err(|fault| fault.at(file.context.describe()))?;
        match answer.reply {
            Reply::DataParts { parts: more, searched_to: upto } if at < upto => {
                parts.extend(more.into_iter().map(|(start, end)| start.max(at)..end.min(local.end)));
                at = upto;
            }
            other => return Err(unexpected_reply(&other).at(file.context.describe())),
        }
    }
    Ok(parts)
}

/// Ranges of objects as ranges of the file, neighbours joined.
fn in_file(file: &OpenFile, range: &Range<u64>, found: &[(ServerIndex, Vec<Range<u64>>)]) -> Vec<Range<u64>> {
    let whole = |(server, parts): &(ServerIndex, Vec<Range<u64>>)| {
        let local = file.context.layout.local_range(*server, range.clone());
        local.is_empty() || parts.as_slice() == std::slice::from_ref(&local)
    };
    if found.iter().all(whole) {
        return vec![range.clone()];
    }
    let mut all = Vec::new();
    for (server, parts) in found {
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let place = |local: u64| file.context.layout.file_offset(*server, LocalOffset(local));
            let Some((start, last)) = place(part.start).zip(place(part.end - 1)) else { continue };
            let pieces = file.context.layout.pieces_on(*server, start..last + 1);
            all.extend(pieces.map(|piece| piece.file_offset..piece.file_offset + piece.bytes));
        }
    }
    all.sort_unstable_by_key(|part| part.start);
    all.dedup_by(|next, part| {
        let joins = next.start <= part.end;
        if joins {
            part.end = part.end.max(next.end);
        }
        joins
    });
    all
}
