//! Which path each part of a write takes: pure, without connections or files.
//!
//! Never: a direct part where a record of this client is pending. Always: parts of one path that are neighbours in the file are one part.

use std::ops::Range;

use pario_core::{Layout, ServerIndex, StripePiece};

/// Smallest run that is written directly: below, the system call costs more than the second copy.
const DIRECT_BYTES_MIN: u64 = 128 << 10;

/// How a server can be reached by a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteRoute {
    /// It shares no memory with this process, or takes messages only.
    Message,
    /// It drains records from the outbox.
    Record,
    /// The same, and it lends descriptors for writing.
    Lent,
}

/// Whether parts on servers that lend are written directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteRule {
    /// Direct is the cheaper path: the parts of the call are large, or a record would be waited for.
    pub(super) prefers_direct: bool,
    /// A record of this client is pending in the range: a direct write would overtake it.
    pub(super) is_pending: bool,
}

/// The parts of one range, by path.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct WritePlan {
    pub(super) direct: Vec<StripePiece>,
    pub(super) records: RecordRanges,
    /// Servers that are reached by message have parts of the range.
    pub(super) messages: bool,
}

/// Ranges to be committed as records, in order; the first needs no allocation.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct RecordRanges {
    first: Option<Range<u64>>,
    more: Vec<Range<u64>>,
}

impl RecordRanges {
    fn add(&mut self, part: Range<u64>) {
        match self.more.last_mut().or(self.first.as_mut()) {
            Some(last) if last.end == part.start => last.end = part.end,
            Some(_) => self.more.push(part),
            None => self.first = Some(part),
        }
    }
}

impl IntoIterator for RecordRanges {
    type Item = Range<u64>;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Range<u64>>, std::vec::IntoIter<Range<u64>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

/// Plans a write of `range`. `route` is asked once per part.
pub(super) fn plan<E>(
    layout: &Layout,
    range: Range<u64>,
    rule: WriteRule,
    mut route: impl FnMut(ServerIndex) -> Result<WriteRoute, E>,
) -> Result<WritePlan, E> {
    let mut plan = WritePlan::default();
    for piece in parts(layout, range) {
        match route(piece.server)? {
            WriteRoute::Message => plan.messages = true,
            WriteRoute::Lent if rule.prefers_direct && !rule.is_pending => plan.direct.push(piece),
            WriteRoute::Lent | WriteRoute::Record => {
                plan.records.add(piece.file_offset..piece.file_offset + piece.bytes);
            }
        }
    }
    Ok(plan)
}

/// Pieces of blocks; on one server neighbouring blocks are one piece.
pub(in crate::client) fn parts(layout: &Layout, range: Range<u64>) -> impl Iterator<Item = StripePiece> {
    let whole = (layout.count() == 1).then(|| {
        let (server, local) = layout.locate(range.start);
        StripePiece { server, local, file_offset: range.start, bytes: range.end - range.start }
    });
    let pieces = whole.is_none().then(|| layout.pieces(range));
    whole.into_iter().chain(pieces.into_iter().flatten())
}

/// Whether each server holds its part of a range in large runs.
pub(super) fn is_large(layout: &Layout, offset: u64, bytes: u64) -> bool {
    let stripe = layout.stripe_bytes();
    let blocks = (offset + bytes.saturating_sub(1)) / stripe - offset / stripe + 1;
    DIRECT_BYTES_MIN * blocks.min(u64::from(layout.count())) <= bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 64 << 10;

    fn layout(servers: u16) -> Layout {
        Layout::new(BLOCK, servers, 0, servers).unwrap()
    }

    /// The parts of a plan: direct pieces, records, and whether there are messages.
    #[track_caller]
    fn check(
        routes: &[WriteRoute],
        range: Range<u64>,
        rule: WriteRule,
        expected: (&[Range<u64>], &[Range<u64>], bool),
    ) {
        let layout = layout(u16::try_from(routes.len()).unwrap());
        let found = plan(&layout, range.clone(), rule, |server| Ok::<_, ()>(routes[server.at()])).unwrap();
        let direct: Vec<Range<u64>> =
            found.direct.iter().map(|piece| piece.file_offset..piece.file_offset + piece.bytes).collect();
        let records: Vec<Range<u64>> = found.records.into_iter().collect();
        assert_eq!((&*direct, &*records, found.messages), expected, "{routes:?} {range:?} {rule:?}");
    }

    #[test]
    fn every_part_takes_its_path() {
        use WriteRoute::{Lent, Message, Record};
        let direct = WriteRule { prefers_direct: true, is_pending: false };
        let small = WriteRule { prefers_direct: false, is_pending: false };
        let pending = WriteRule { prefers_direct: true, is_pending: true };
        let one = |range: Range<u64>| vec![range];
        let (all, block) = (0..4 * BLOCK, |n: u64| n * BLOCK..(n + 1) * BLOCK);
        // One server: neighbouring blocks are one part.
        check(&[Lent], all.clone(), direct, (&one(all.clone()), &[], false));
        check(&[Lent], all.clone(), small, (&[], &one(all.clone()), false));
        check(&[Lent], all.clone(), pending, (&[], &one(all.clone()), false));
        check(&[Record], all.clone(), direct, (&[], &one(all.clone()), false));
        check(&[Message], all.clone(), direct, (&[], &[], true));
        // Several servers: pieces are direct one by one, records are joined, messages are a fact of the whole range.
        check(&[Lent, Lent], 0..2 * BLOCK, direct, (&[block(0), block(1)], &[], false));
        check(&[Record, Record], all.clone(), direct, (&[], &one(all.clone()), false));
        check(&[Lent, Record], all.clone(), direct, (&[block(0), block(2)], &[block(1), block(3)], false));
        check(&[Lent, Message], all.clone(), small, (&[], &[block(0), block(2)], true));
        check(&[Message, Message], all, pending, (&[], &[], true));
        // Inside a block, and across one border.
        check(&[Record, Message], 10..20, small, (&[], &one(10..20), false));
        check(&[Record, Message], BLOCK - 5..BLOCK + 5, small, (&[], &one(BLOCK - 5..BLOCK), true));
    }

    #[test]
    fn an_error_of_a_route_is_the_plan_s() {
        let rule = WriteRule { prefers_direct: false, is_pending: false };
        let found = plan(&layout(2), 0..2 * BLOCK, rule, |server| match server.at() {
            0 => Ok(WriteRoute::Record),
            _ => Err("down"),
        });
        assert_eq!(found, Err("down"));
    }

    #[test]
    fn a_call_is_large_by_its_part_on_each_server() {
        assert!(!is_large(&layout(1), 0, DIRECT_BYTES_MIN - 1));
        assert!(is_large(&layout(1), 0, DIRECT_BYTES_MIN));
        assert!(!is_large(&layout(4), 0, DIRECT_BYTES_MIN), "two blocks on two servers");
        assert!(is_large(&layout(4), 0, 4 * DIRECT_BYTES_MIN));
    }
}
