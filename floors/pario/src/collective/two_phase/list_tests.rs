//! Tests of the offset lists.

use pario_view::{Datatype, ViewAccess};
use proptest::prelude::*;

use super::*;

fn view(displacement: i64, filetype: &Datatype) -> View {
    View::new(displacement, &Datatype::elementary(1).unwrap(), filetype, ViewAccess::Read).unwrap()
}

/// Pieces of one to a few bytes, with gaps; some repetitions interleave, or even overlap.
fn views() -> impl Strategy<Value = View> {
    (0i64..50, 1i64..5, 1i64..6, 0i64..9, -8i64..12).prop_map(|(at, count, block, gap, change)| {
        let byte = Datatype::elementary(1).unwrap();
        let vector = Datatype::vector(count, block, block + gap, &byte).unwrap();
        let extent = (vector.extent() + change).max(1);
        view(at, &vector.resized(0, extent).unwrap())
    })
}

#[test]
fn a_list_of_a_few_pieces() {
    let byte = Datatype::elementary(1).unwrap();
    let view = view(10, &Datatype::vector(2, 3, 4, &byte).unwrap().resized(0, 8).unwrap());
    let reach = RankRange { view: &view, stream: 1..10 };
    // Bytes 11 12, 14 15 16, 18 19 20, 22 of the file.
    assert_eq!(reach.span(), 11..23);
    let mut list = reach.list(12..22);
    let mut packet = AggregatorPacket::default();
    assert!(!list.fill(&mut packet, Content::Data, 3 * ENTRY_BYTES + 1 + 3 + 2));
    let pinned = b"\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x06\0\0\0\x02\0\0\0";
    assert_eq!(packet.entries, pinned);
    assert_eq!((packet.runs.as_slice(), packet.data_bytes), (std::slice::from_ref(&(1..7)), 6));
    assert!(list.fill(&mut packet, Content::Data, 100));
    assert_eq!(packet.entries, b"\x08\0\0\0\x01\0\0\0");
    assert_eq!(packet.runs, std::slice::from_ref(&(7..8)));
    assert_eq!(reach.bytes_before(16), 4);
    assert_eq!((reach.bytes_before(0), reach.bytes_before(100)), (0, 9));
    let nothing = RankRange { view: &view, stream: 5..5 };
    assert_eq!((nothing.span(), nothing.list(0..1000).next(), nothing.bytes_before(3)), (0..0, None, 0));
}

#[test]
fn entries_outside_the_window_are_refused() {
    let list = |start: u32, bytes: u32| [start.to_le_bytes(), bytes.to_le_bytes()].concat();
    let read = |list: &[u8]| entries(list, 100).collect::<Result<Vec<_>, Fault>>();
    assert_eq!(read(&[list(0, 100), list(100, 0), list(7, 3)].concat()).unwrap(), [0..100, 100..100, 7..10]);
    for (start, bytes) in [(0, 101), (100, 1), (u32::MAX, u32::MAX)] {
        assert_eq!(read(&list(start, bytes)).unwrap_err().code, Code::Protocol);
    }
}

proptest! {
    #[test]
    fn every_byte_is_in_exactly_one_list(
        view in views(),
        start in 0u64..40,
        bytes in 0u64..200,
        window in 1u64..64,
        budget in 9usize..80,
        data in any::<bool>(),
    ) {
        let reach = RankRange { view: &view, stream: start..start + bytes };
        let content = if data { Content::Data } else { Content::List };
        let span = reach.span();
        let mut expected: Vec<(u64, u64)> = Vec::new();
        let mut stream = 0;
        for extent in view.extents(reach.stream.clone()) {
            expected.extend((0..extent.bytes).map(|at| (extent.file_offset + at, stream + at)));
            stream += extent.bytes;
        }
        prop_assert_eq!(span.start, expected.iter().map(|(at, _)| *at).min().unwrap_or(0));
        prop_assert_eq!(span.end, expected.iter().map(|(at, _)| *at + 1).max().unwrap_or(0));
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut packet = AggregatorPacket::default();
        let mut at = span.start / window * window;
        while at < span.end {
            let mut list = reach.list(at..at + window);
            let mut is_out = false;
            while !is_out {
                is_out = list.fill(&mut packet, content, budget);
                let cost = packet.entries.len() + if data { packet.data_bytes } else { 0 };
                prop_assert!(cost <= budget, "{} bytes in {}", cost, budget);
                prop_assert!(is_out || !packet.entries.is_empty(), "no progress");
                let memory: Vec<usize> = packet.runs.iter().cloned().flatten().collect();
                prop_assert_eq!(memory.len(), packet.data_bytes);
                let pieces = entries(&packet.entries, usize::try_from(window).unwrap());
                let pieces: Vec<Range<usize>> = pieces.collect::<Result<_, _>>().unwrap();
                if view.direction() == pario_view::Direction::Increasing {
                    prop_assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start), "not sorted");
                }
                let places = pieces.into_iter().flatten().map(|place| at + place as u64);
                found.extend(places.zip(memory.into_iter().map(|byte| byte as u64)));
            }
            at += window;
        }
        found.sort_unstable_by_key(|(_, stream)| *stream);
        prop_assert_eq!(found, expected);
    }
}
