//! Stripe size of a shared file, and the places of its bytes: which component has them, and where.
//!
//! ```text
//!  file        | block 0 | block 1 | block 2 | block 3 | block 4 |  …
//!  component 0 | block 0 |         | block 3 |                        a range of the file is one range of each component
//!  component 1 |         block 1   |         | block 4 |
//!  component 2 |                block 2 |
//! ```
//! Pure: tables in the tests are the specification.

use std::ops::Range;

/// Stripe where the usual request is unknown.
const UNKNOWN: u64 = 32 << 10;
/// Requests up to this are one stripe.
const WHOLE_MAX: u64 = 1 << 20;
/// Stripes are multiples of this.
const GRAIN: u64 = 4 << 10;
/// Smallest stripe of a divided request.
const DIVIDED_MIN: u64 = 64 << 10;
/// Data of one message at most.
pub(super) const MESSAGE_BYTES_MAX: u64 = 4 << 20;

/// The stripe for requests of this size over so many homes.
#[must_use]
pub fn stripe_bytes(request: Option<u64>, homes: usize) -> u64 {
    match request {
        None | Some(0) => UNKNOWN,
        Some(bytes) if bytes <= WHOLE_MAX => bytes.next_multiple_of(GRAIN),
        Some(bytes) => {
            let share = bytes.div_ceil(homes.max(1) as u64);
            share.saturating_add(GRAIN - 1) / GRAIN * GRAIN
        }
        .clamp(DIVIDED_MIN, WHOLE_MAX),
    }
}

/// Stripe and number of components of a file; a plain file is one component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileStriping {
    pub(super) stripe: u64,
    pub(super) components: usize,
}

/// One component's part of an access: contiguous in the component, in pieces of the buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FilePart {
    pub(super) component: usize,
    /// Offset in the component.
    pub(super) at: u64,
    /// Ranges of the caller's buffer, in the order of the component.
    pub(super) ranges: Vec<Range<usize>>,
}

impl FilePart {
    pub(super) fn bytes(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Offset of its first byte in the file, of an access at `base`.
    pub(super) fn file_offset(&self, base: u64) -> u64 {
        base + self.ranges.first().map_or(0, |range| range.start as u64)
    }

    /// The ranges after the first `count` bytes.
    pub(super) fn rest(&self, mut count: usize) -> Vec<Range<usize>> {
        let mut rest = Vec::new();
        for range in &self.ranges {
            let skip = count.min(range.len());
            count -= skip;
            if range.start + skip < range.end {
                rest.push(range.start + skip..range.end);
            }
        }
        rest
    }
}

impl FileStriping {
    /// All bytes in one component.
    pub(super) fn whole() -> FileStriping {
        FileStriping { stripe: u64::MAX, components: 1 }
    }

    /// The component and the offset in it, if all bytes lie in one block.
    pub(super) fn one_place(&self, at: u64, bytes: usize) -> Option<(usize, u64)> {
        if self.components == 1 {
            return Some((0, at));
        }
        let inside = at % self.stripe;
        (inside.saturating_add(bytes as u64) <= self.stripe).then(|| self.place(at))
    }

    /// Component of a byte, and its offset there.
    fn place(&self, at: u64) -> (usize, u64) {
        if self.components == 1 {
            return (0, at);
        }
        let (block, inside) = (at / self.stripe, at % self.stripe);
        let count = self.components as u64;
        let component = usize::try_from(block % count).unwrap_or(0);
        (component, block / count * self.stripe + inside)
    }

    /// Parts of a range, each at most one message long, in the order of their first bytes.
    pub(super) fn parts(&self, at: u64, bytes: usize) -> Vec<FilePart> {
        let mut parts: Vec<FilePart> = Vec::new();
        let mut open: Vec<Option<usize>> = vec![None; self.components];
        let mut done = 0usize;
        while done < bytes {
            let from = at + done as u64;
            let (component, local) = self.place(from);
            let mut length = (bytes - done) as u64;
            if self.components != 1 {
                length = length.min(self.stripe - from % self.stripe);
            }
            let last = open[component].map(|number| &mut parts[number]);
            let used = last.as_ref().map_or(0, |part| part.bytes() as u64);
            let room = MESSAGE_BYTES_MAX.saturating_sub(used);
            let length = length.min(if last.is_some() && 0 < room { room } else { MESSAGE_BYTES_MAX });
            let range = done..done + usize::try_from(length).unwrap_or(bytes - done);
            done = range.end;
            match last {
                Some(part) if 0 < room => match part.ranges.last_mut() {
                    Some(before) if before.end == range.start => before.end = range.end,
                    Some(_) | None => part.ranges.push(range),
                },
                Some(_) | None => {
                    open[component] = Some(parts.len());
                    parts.push(FilePart { component, at: local, ranges: vec![range] });
                }
            }
        }
        parts
    }

    /// The length of the file that a component of this length proves.
    pub(super) fn end_of(&self, component: usize, length: u64) -> u64 {
        if self.components == 1 || length == 0 {
            return length;
        }
        let last = length - 1;
        let (block, inside) = (last / self.stripe, last % self.stripe);
        (block * self.components as u64 + component as u64) * self.stripe + inside + 1
    }

    /// Length of a component of a file of this length, if all of it was written.
    pub(super) fn length_of(&self, component: usize, length: u64) -> u64 {
        if self.components == 1 {
            return length;
        }
        let (blocks, rest) = (length / self.stripe, length % self.stripe);
        let (rounds, left) = (blocks / self.components as u64, blocks % self.components as u64);
        let component = component as u64;
        let last = if component < left {
            self.stripe
        } else if component == left {
            rest
        } else {
            0
        };
        rounds * self.stripe + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stripe_follows_the_usual_request() {
        let k = 1u64 << 10;
        for (request, homes, stripe) in [
            (None, 4, 32 * k),
            (Some(0), 4, 32 * k),
            (Some(1), 1, 4 * k),
            (Some(4 * k), 4, 4 * k),
            (Some(30 * k), 4, 32 * k),
            (Some(30_720), 7, 32 * k),
            (Some(32 * k + 1), 4, 36 * k),
            (Some(1024 * k), 4, 1024 * k),
            (Some(1024 * k + 1), 4, 260 * k),
            (Some(1024 * k + 1), 1, 1024 * k),
            (Some(2048 * k), 64, 64 * k),
            (Some(64 << 20), 4, 1024 * k),
            (Some(u64::MAX), 4, 1024 * k),
            (Some(3 << 20), 3, 1024 * k),
            (Some(3 << 20), 5, 616 * k),
        ] {
            assert_eq!(stripe_bytes(request, homes), stripe, "{request:?} over {homes}");
        }
    }

    #[test]
    fn places_of_a_small_file() {
        let striping = FileStriping { stripe: 10, components: 3 };
        let part = |component, at, ranges: &[(usize, usize)]| FilePart {
            component,
            at,
            ranges: ranges.iter().map(|(from, to)| *from..*to).collect(),
        };
        assert_eq!(striping.one_place(25, 5), Some((2, 5)));
        assert_eq!(striping.one_place(25, 6), None);
        assert_eq!(striping.one_place(70, 0), Some((1, 20)));
        assert_eq!(striping.parts(0, 0), []);
        assert_eq!(striping.parts(33, 4), [part(0, 13, &[(0, 4)])]);
        assert_eq!(
            striping.parts(5, 40),
            [part(0, 5, &[(0, 5), (25, 35)]), part(1, 0, &[(5, 15), (35, 40)]), part(2, 0, &[(15, 25)])]
        );
        for (component, length, end) in
            [(0, 0, 0), (1, 0, 0), (0, 1, 1), (1, 1, 11), (2, 10, 30), (0, 11, 31), (2, 20, 60)]
        {
            assert_eq!(striping.end_of(component, length), end, "{component} {length}");
        }
        for (length, components) in
            [(0, [0, 0, 0]), (5, [5, 0, 0]), (10, [10, 0, 0]), (31, [11, 10, 10]), (59, [20, 20, 19])]
        {
            assert_eq!([0, 1, 2].map(|component| striping.length_of(component, length)), components);
        }
        assert_eq!(FileStriping::whole().parts(7, 3), [part(0, 7, &[(0, 3)])]);
    }

    #[test]
    fn a_part_is_at_most_one_message() {
        let bytes = 10 << 20;
        let parts = FileStriping::whole().parts(1, bytes);
        assert_eq!(parts.iter().map(FilePart::bytes).collect::<Vec<_>>(), [4 << 20, 4 << 20, 2 << 20]);
        assert_eq!(parts[1].at, 1 + (4 << 20));
        let striping = FileStriping { stripe: 3 << 20, components: 2 };
        let parts = striping.parts(0, 12 << 20);
        assert!(parts.iter().all(|part| part.bytes() as u64 <= MESSAGE_BYTES_MAX), "{parts:?}");
        assert_eq!(parts.iter().map(FilePart::bytes).sum::<usize>(), 12 << 20);
    }

    /// Every byte of every range has one place, and parts cover exactly the range.
    #[test]
    fn every_byte_has_one_place() {
        for components in 1..5usize {
            for stripe in [1u64, 3, 8] {
                let striping = FileStriping { stripe, components };
                for (at, bytes) in [(0u64, 40usize), (5, 1), (7, 23), (24, 24)] {
                    let mut seen = vec![None; bytes];
                    for part in striping.parts(at, bytes) {
                        for (local, byte) in (part.at..).zip(part.ranges.iter().cloned().flatten()) {
                            assert_eq!(seen[byte].replace((part.component, local)), None);
                            assert_eq!(striping.place(at + byte as u64), (part.component, local));
                        }
                    }
                    assert!(seen.iter().all(Option::is_some));
                }
            }
        }
    }
}
