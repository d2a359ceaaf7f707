//! Index of a container in memory: which bytes of the file lie where in which data log. Pure.
//!
//! Never: reads or writes files. Always: changes arrive in ascending order, so that the last one wins at every byte; segments do not
//! overlap.

use std::collections::BTreeMap;
use std::ops::Range;

use super::entry::{DataEntry, Order, WriterNumber};

/// Bytes of the file that lie one after the other in one data log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// File offset.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) writer: WriterNumber,
    /// Position in the data log.
    pub(crate) place: u64,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// Value of the map; its key is the file offset.
#[derive(Clone, Copy, Debug)]
struct Stored {
    end: u64,
    place: u64,
    /// The newest order of its bytes.
    order: Order,
    writer: WriterNumber,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LogIndex {
    segments: BTreeMap<u64, Stored>,
    length: u64,
    newest_cut: Order,
    /// The shortest length that the file ever had here.
    lowest_cut: Option<u64>,
}

impl LogIndex {
    /// An empty index of a file of `length` bytes.
    pub(crate) fn of_length(length: u64) -> LogIndex {
        LogIndex { length, ..LogIndex::default() }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    #[cfg(test)]
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The segments of a range, cut to it, in ascending order; what lies between them are zeros.
    pub(crate) fn lookup(&self, range: Range<u64>) -> Vec<Segment> {
        let before =
            self.segments.range(..range.start).next_back().filter(|(_, found)| range.start < found.end);
        let inside = self.segments.range(range.start..range.end.max(range.start));
        let cut = |(start, found): (&u64, &Stored)| {
            let (from, to) = ((*start).max(range.start), found.end.min(range.end));
            Segment {
                offset: from,
                length: to - from,
                writer: found.writer,
                place: found.place + (from - start),
            }
        };
        before.into_iter().chain(inside).map(cut).filter(|segment| 0 < segment.length).collect()
    }

    /// Bytes of `range` were written by `writer` at `place` of its log; newer than all before.
    pub(crate) fn insert(&mut self, range: Range<u64>, order: Order, writer: WriterNumber, place: u64) {
        if range.is_empty() {
            return;
        }
        self.clear(&range);
        self.length = self.length.max(range.end);
        let mut new = Stored { end: range.end, place, order, writer };
        let mut start = range.start;
        let before = self.segments.range(..range.start).next_back().map(|(start, found)| (*start, *found));
        if let Some((before_start, before)) = before
            && before.end == start
            && before.writer == writer
            && before.place + (before.end - before_start) == place
        {
            new.place = before.place;
            new.order = new.order.max(before.order);
            start = before_start;
        }
        if let Some(after) = self.segments.get(&new.end).copied()
            && after.writer == writer
            && new.place + (new.end - start) == after.place
        {
            self.segments.remove(&new.end);
            new.end = after.end;
            new.order = new.order.max(after.order);
        }
        self.segments.insert(start, new);
    }

    /// All pieces of an entry.
    pub(crate) fn insert_entry(&mut self, entry: DataEntry, order: Order, writer: WriterNumber) {
        for (offset, place) in entry.pieces() {
            self.insert(offset..offset + entry.length, order, writer, place);
        }
    }

    /// The file was truncated or extended to `bytes`; newer than all before.
    pub(crate) fn cut(&mut self, bytes: u64, order: Order) {
        self.clear(&(bytes..u64::MAX));
        self.length = bytes;
        self.newest_cut = order;
        self.lowest_cut = Some(self.lowest_cut.map_or(bytes, |lowest| lowest.min(bytes)));
    }

    /// This index on top of an older one.
    pub(crate) fn laid_over(self, mut base: LogIndex) -> LogIndex {
        if let Some(lowest) = self.lowest_cut {
            base.cut(lowest, self.newest_cut);
        }
        for (start, found) in self.segments {
            base.insert(start..found.end, found.order, found.writer, found.place);
        }
        base.length = self.length;
        base
    }

    /// Whether a write of `range` could have happened at `order`, in the past, with the same result: no change since then touches it.
    pub(crate) fn is_unchanged_since(&self, range: &Range<u64>, order: Order) -> bool {
        let before =
            self.segments.range(..range.start).next_back().filter(|(_, found)| range.start < found.end);
        let mut touched = before.into_iter().chain(self.segments.range(range.start..range.end));
        self.newest_cut < order && touched.all(|(_, found)| found.order < order)
    }

    /// Removes what is known of a range.
    fn clear(&mut self, range: &Range<u64>) {
        if let Some((start, found)) = self.segments.range_mut(..range.start).next_back()
            && range.start < found.end
        {
            let (start, old) = (*start, *found);
            found.end = range.start;
            if range.end < old.end {
                let place = old.place + (range.end - start);
                self.segments.insert(range.end, Stored { place, ..old });
            }
        }
        while let Some((&start, &found)) = self.segments.range(range.start..range.end).next() {
            self.segments.remove(&start);
            if range.end < found.end {
                let place = found.place + (range.end - start);
                self.segments.insert(range.end, Stored { place, ..found });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: WriterNumber = WriterNumber(1);
    const B: WriterNumber = WriterNumber(2);

    fn list(index: &LogIndex) -> Vec<(u64, u64, u32, u64)> {
        let all = index.lookup(0..u64::MAX);
        all.iter().map(|found| (found.offset, found.length, found.writer.0, found.place)).collect()
    }

    #[test]
    fn the_newest_wins_at_every_byte() {
        let mut index = LogIndex::default();
        index.insert(0..100, Order(1), A, 1000);
        index.insert(30..40, Order(2), B, 0);
        assert_eq!(list(&index), [(0, 30, 1, 1000), (30, 10, 2, 0), (40, 60, 1, 1040)]);
        index.insert(20..50, Order(3), B, 10);
        assert_eq!(list(&index), [(0, 20, 1, 1000), (20, 30, 2, 10), (50, 50, 1, 1050)]);
        index.cut(25, Order(4));
        assert_eq!(list(&index), [(0, 20, 1, 1000), (20, 5, 2, 10)]);
        assert_eq!(index.length(), 25);
        index.cut(60, Order(5));
        assert_eq!((index.length(), index.segments()), (60, 2), "longer by zeros");
        assert_eq!(index.lookup(22..24)[0], Segment { offset: 22, length: 2, writer: B, place: 12 });
        assert_eq!(index.lookup(25..60), []);
    }

    #[test]
    fn neighbours_in_file_and_log_are_one_segment() {
        let mut index = LogIndex::default();
        index.insert(10..20, Order(1), A, 0);
        index.insert(30..40, Order(2), A, 20);
        index.insert(20..30, Order(3), A, 10);
        assert_eq!(list(&index), [(10, 30, 1, 0)]);
        index.insert(40..50, Order(4), A, 31);
        index.insert(50..60, Order(5), B, 41);
        assert_eq!(index.segments(), 3, "another place, another log");
    }

    #[test]
    fn an_older_order_may_be_used_where_no_change_came_between() {
        let mut index = LogIndex::default();
        index.insert(0..10, Order(5), A, 0);
        index.insert(100..110, Order(7), B, 0);
        assert!(index.is_unchanged_since(&(20..30), Order(6)));
        assert!(index.is_unchanged_since(&(5..30), Order(6)), "overwrites an older one");
        assert!(!index.is_unchanged_since(&(5..30), Order(5)));
        assert!(!index.is_unchanged_since(&(90..101), Order(6)));
        assert!(!index.is_unchanged_since(&(105..120), Order(6)));
        index.cut(1000, Order(8));
        assert!(!index.is_unchanged_since(&(20..30), Order(8)));
        assert!(index.is_unchanged_since(&(20..30), Order(9)));
    }

    #[test]
    fn an_index_is_laid_over_an_older_one() {
        let mut base = LogIndex::default();
        base.insert(0..100, Order(1), A, 0);
        let mut own = LogIndex::of_length(100);
        own.insert(90..95, Order(2), B, 0);
        own.cut(40, Order(3));
        own.insert(60..70, Order(4), B, 5);
        own.insert(10..12, Order(5), B, 15);
        let both = own.laid_over(base);
        assert_eq!(list(&both), [(0, 10, 1, 0), (10, 2, 2, 15), (12, 28, 1, 12), (60, 10, 2, 5)]);
        assert_eq!(both.length(), 70);
    }

    const REACH: usize = 120;

    /// A byte array with the place that each byte comes from.
    #[derive(Default)]
    struct Model {
        bytes: Vec<Option<(WriterNumber, u64)>>,
    }

    impl Model {
        fn write(&mut self, offset: usize, length: usize, writer: WriterNumber, place: u64) {
            self.bytes.resize(self.bytes.len().max(offset + length), None);
            for number in 0..length {
                self.bytes[offset + number] = Some((writer, place + number as u64));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn it_equals_a_byte_array(changes in proptest::collection::vec((0..REACH, 1..40usize, 0..4u32, 1..4usize), 1..60)) {
            let (mut index, mut model) = (LogIndex::default(), Model::default());
            let mut ends = [0u64; 4];
            for (number, (offset, length, writer, count)) in changes.into_iter().enumerate() {
                let order = Order(number as u64 + 1);
                if writer == 3 {
                    index.cut(offset as u64, order);
                    model.bytes.resize(offset, None);
                    continue;
                }
                let place = ends[writer as usize];
                let writer = WriterNumber(writer);
                let stride = if count == 1 { 0 } else { length as u64 + 3 };
                let (offset64, length64) = (offset as u64, length as u64);
                let entry = DataEntry { offset: offset64, place, length: length64, stride, count: count as u64, sum: 0 };
                index.insert_entry(entry, order, writer);
                ends[writer.0 as usize] = entry.log_end();
                for (at, place) in entry.pieces() {
                    model.write(usize::try_from(at).unwrap(), length, writer, place);
                }
            }
            prop_assert_eq!(index.length(), model.bytes.len() as u64);
            let mut found = vec![None; model.bytes.len()];
            for segment in index.lookup(0..index.length()) {
                for number in 0..segment.length {
                    let at = usize::try_from(segment.offset + number).unwrap();
                    prop_assert!(found[at].is_none(), "segments overlap");
                    found[at] = Some((segment.writer, segment.place + number));
                }
            }
            prop_assert_eq!(found, model.bytes);
        }
    }
}
