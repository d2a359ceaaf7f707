//! Damage at rest: truncated objects, and on request stored bytes that do not match their checksums.
//!
//! Never: changes anything; reports bytes without a checksum as damaged. Always: reports the compared and the skipped checks.

use std::collections::HashMap;
use std::path::PathBuf;

use pario_core::{FileAttr, InodeId, LocalOffset, ObjectId, ServerIndex};
use pario_net::message::{Reply, Request};
use serde_json::{Value, json};

use super::questions::{self, named, unexpected_reply};
use super::watch::check_stopped;
use super::{Watch, absent};
use crate::handle::Partition;
use crate::transfer::TransferResult;

/// Objects per answer.
const PAGE_ENTRIES: u32 = 1024;
/// Bytes compared per request: few enough that a slow disk answers within the deadline.
const STEP_BYTES: u64 = 16 << 20;

/// Bytes that differ from those written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The server.
    pub server: ServerIndex,
    /// The object.
    pub object: ObjectId,
    /// Range in the object.
    pub range: std::ops::Range<u64>,
    /// The kind.
    pub kind: DamageKind,
    /// Offset of the first byte in the file, if known.
    pub file_offset: Option<u64>,
    /// The file, if known.
    pub path: Option<PathBuf>,
}

/// Kinds of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// The object was cut short.
    Cut,
    /// Bytes do not match their checksum.
    Checksum,
}

/// Checked objects and their damage.
#[derive(Default, Debug)]
pub struct AtRest {
    /// The damage.
    pub damage: Vec<Damage>,
    /// Objects.
    pub objects: u64,
    /// Objects with a compared length.
    pub compared: u64,
    /// Result of the checksum comparison, if requested.
    pub deep: Option<DeepCheck>,
}

/// Blocks compared with their checksums.
#[derive(Clone, Copy, Default, Debug)]
pub struct DeepCheck {
    /// Blocks that match.
    pub right: u64,
    /// Blocks without a checksum.
    pub unknown: u64,
    /// Blocks that do not match.
    pub wrong: u64,
    /// Servers without checksums.
    pub without: u64,
    /// Bytes compared.
    pub bytes: u64,
}

impl AtRest {
    /// Examines the objects of these servers; if `deep`, also their bytes.
    pub fn examine(
        partition: &Partition,
        servers: &[ServerIndex],
        deep: bool,
        watch: &dyn Watch,
    ) -> TransferResult<AtRest> {
        let mut found = AtRest::default();
        for server in servers {
            check_stopped(watch)?;
            found.check_lengths(partition, *server)?;
        }
        if deep {
            found.deep = Some(DeepCheck::default());
            servers.iter().try_for_each(|server| found.compare(partition, *server, watch))?;
        }
        found.name(partition)?;
        Ok(found)
    }

    fn check_lengths(&mut self, partition: &Partition, server: ServerIndex) -> TransferResult {
        let mount = partition.mount_handle();
        let mut after = None;
        loop {
            let answer = mount.call(server, &Request::CheckLengths { after, limit: PAGE_ENTRIES });
            let reply = named(partition, answer)?.reply;
            let Reply::Lengths { cut, examined, compared, more } = reply else {
                return named(partition, Err(unexpected_reply("CheckLengths")));
            };
            self.objects += examined;
            self.compared += compared;
            self.damage.extend(cut.into_iter().map(|(object, (length, written))| Damage {
                server,
                object,
                range: length..written,
                kind: DamageKind::Cut,
                file_offset: None,
                path: None,
            }));
            after = more;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn compare(&mut self, partition: &Partition, server: ServerIndex, watch: &dyn Watch) -> TransferResult {
        let mut objects = Vec::new();
        let listed = questions::each_object(partition, server, |object, bytes| objects.push((object, bytes)));
        named(partition, listed)?;
        let mut keeps = true;
        for (object, bytes) in objects {
            let mut at = 0;
            while at < bytes && keeps {
                check_stopped(watch)?;
                let step = STEP_BYTES.min(bytes - at);
                keeps = self.compare_step(partition, server, object, at..at + step)?;
                watch.compared(step);
                at += step;
            }
        }
        if !keeps {
            self.deep.get_or_insert_default().without += 1;
        }
        Ok(())
    }

    /// False: the server keeps no checksums.
    fn compare_step(
        &mut self,
        partition: &Partition,
        server: ServerIndex,
        object: ObjectId,
        range: std::ops::Range<u64>,
    ) -> TransferResult<bool> {
        let request =
            Request::Verify { object, at: LocalOffset(range.start), bytes: range.end - range.start };
        let answer = partition.mount_handle().call(server, &request);
        let reply = named(partition, answer)?.reply;
        let Reply::Verified { kept, granule, right, unknown, damaged: wrong } = reply else {
            return named(partition, Err(unexpected_reply("Verify")));
        };
        if kept {
            let deep = self.deep.get_or_insert_default();
            deep.right += right;
            deep.unknown += unknown;
            deep.wrong += wrong.len() as u64;
            deep.bytes += range.end - range.start;
        }
        for at in wrong {
            self.note_wrong(server, object, at..at + granule);
        }
        Ok(kept)
    }

    /// Adjacent ranges are joined.
    fn note_wrong(&mut self, server: ServerIndex, object: ObjectId, range: std::ops::Range<u64>) {
        let follows = |last: &Damage| {
            (last.server, last.object, last.kind, last.range.end)
                == (server, object, DamageKind::Checksum, range.start)
        };
        match self.damage.last_mut() {
            Some(last) if follows(last) => last.range.end = range.end,
            Some(_) | None => self.damage.push(Damage {
                server,
                object,
                range,
                kind: DamageKind::Checksum,
                file_offset: None,
                path: None,
            }),
        }
    }

    /// Looks up the damaged files.
    fn name(&mut self, partition: &Partition) -> TransferResult {
        if self.damage.is_empty() {
            return Ok(());
        }
        let inodes = self.damage.iter().map(|damage| damage.object.inode).collect();
        let names = absent::names_of(partition, inodes)?;
        let mut attrs: HashMap<InodeId, Option<FileAttr>> = HashMap::new();
        for damage in &mut self.damage {
            let inode = damage.object.inode;
            let attr = match attrs.get(&inode) {
                Some(known) => *known,
                None => {
                    let attr = named(partition, questions::inode(partition, inode))?;
                    attrs.insert(inode, attr);
                    attr
                }
            };
            damage.path = names.get(&inode).cloned();
            let lies_there = |attr: &FileAttr| attr.layout.servers().any(|server| server == damage.server);
            damage.file_offset = attr
                .filter(lies_there)
                .map(|attr| attr.layout.file_length(damage.server, damage.range.start + 1) - 1);
        }
        Ok(())
    }

    /// As JSON.
    #[must_use]
    pub fn facts(&self) -> Value {
        json!({
            "objects": self.objects,
            "lengths_compared": self.compared,
            "deep": self.deep.map(|deep| json!({
                "bytes": deep.bytes,
                "blocks_right": deep.right,
                "blocks_unknown": deep.unknown,
                "blocks_wrong": deep.wrong,
                "servers_without_checksums": deep.without,
            })),
            "damage": self.damage.iter().map(Damage::facts).collect::<Vec<_>>(),
        })
    }
}

impl Damage {
    fn facts(&self) -> Value {
        json!({
            "damage": match self.kind { DamageKind::Cut => "cut", DamageKind::Checksum => "checksum" },
            "server": self.server,
            "inode": self.object.inode,
            "generation": self.object.generation,
            "start": self.range.start,
            "end": self.range.end,
            "file_offset": self.file_offset,
            "path": self.path.as_ref().map(|path| path.to_string_lossy()),
            "text": self.to_string(),
        })
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: ", path.display())?,
            None => write!(f, "inode {}: ", self.object.inode)?,
        }
        let std::ops::Range { start, end } = self.range;
        write!(f, "server {}, object {}: bytes {start}..{end} ", self.server, self.object)?;
        if let Some(offset) = self.file_offset {
            write!(f, "(from byte {offset} of the file on) ")?;
        }
        f.write_str(match self.kind {
            DamageKind::Cut => "are lost: the object was cut short; restore the file from a copy",
            DamageKind::Checksum => "do not match their checksum; restore the file from a copy",
        })
    }
}
