//! Counts that could never be written out.

use pario_core::{Layout, ServerIndex};

use crate::{
    ArrayOrder, Datatype, Elements, FileExtent, ServerPart, StructMember, SubarrayDimension, View,
    ViewAccess, ViewError, ViewPart,
};

const FAR: i64 = 1 << 40;

fn double() -> Datatype {
    Datatype::named(8, 8).unwrap()
}

#[test]
fn a_vector_of_2_to_the_40_is_seeked_at_once() {
    let vector = Datatype::vector(FAR, 1, 4, &double()).unwrap();
    assert_eq!((vector.size(), vector.ub()), (8 << 40, ((FAR - 1) * 4 + 1) * 8));
    let view = View::new(64, &double(), &vector, ViewAccess::Write).unwrap();
    let middle = 8 << 39;
    let extents: Vec<FileExtent> = view.extents(middle + 3..middle + 11).collect();
    let at = 64 + (32 << 39);
    assert_eq!(
        extents,
        [FileExtent { file_offset: at + 3, bytes: 5 }, FileExtent { file_offset: at + 32, bytes: 3 }]
    );
    assert_eq!(view.stream_offset(at + 5), Some(middle + 5));
    assert_eq!(view.stream_at_or_after(at + 9), Some(middle + 8));
    let parts: Vec<ViewPart> = view.slice(0..view.stream_bytes(), at..at + 8).collect();
    assert_eq!(parts, [ViewPart { stream_offset: middle, file_offset: at, bytes: 8 }]);
    assert_eq!(view.bytes_in(0..8 << 40, 64..64 + (32 << 40)), 8 << 40);
}

#[test]
fn the_end_of_the_first_repetition_joins_the_next() {
    let vector = Datatype::vector(FAR, 1, 2, &double()).unwrap();
    let view = View::new(0, &double(), &vector, ViewAccess::Write).unwrap();
    let end = 8 << 40;
    let extents: Vec<FileExtent> = view.extents(end - 16..end + 16).collect();
    let last = (FAR.cast_unsigned() - 1) * 16;
    let expected = [(last - 16, 8), (last, 16), (last + 24, 8)];
    assert_eq!(extents, expected.map(|(file_offset, bytes)| FileExtent { file_offset, bytes }));
}

#[test]
fn a_server_far_away_is_reached_without_walking() {
    let layout = Layout::new(1 << 20, 4, 0, 4).unwrap();
    // One double per MiB: each is on the next server.
    let vector = Datatype::hvector(FAR, 1, 1 << 20, &double()).unwrap();
    let view = View::new(0, &double(), &vector, ViewAccess::Write).unwrap();
    let stream = 8 * (1 << 39)..8 << 40;
    let mut parts = view.on_server(&layout, ServerIndex(2), stream);
    let part = parts.next().unwrap();
    let row = 1u64 << 37;
    let expected = ServerPart {
        stream_offset: 8 * ((1 << 39) + 2),
        file_offset: ((1 << 39) + 2) << 20,
        local: pario_core::LocalOffset(row << 20),
        bytes: 8,
    };
    assert_eq!(part, expected);
    // One double per row of blocks: all on server 0, none elsewhere, answered in O(1).
    let rows = Datatype::hvector(FAR, 1, 4 << 20, &double()).unwrap();
    let view = View::new(0, &double(), &rows, ViewAccess::Write).unwrap();
    assert!(!view.touches_server(&layout, ServerIndex(3), 0..8 << 40));
    assert_eq!(view.on_server(&layout, ServerIndex(0), 0..8 << 40).take(3).count(), 3);
}

#[test]
fn what_a_loop_puts_into_a_block_is_one_row() {
    let layout = Layout::new(1 << 20, 4, 0, 4).unwrap();
    let vector = Datatype::hvector(FAR, 1, 16, &double()).unwrap();
    let view = View::new(0, &double(), &vector, ViewAccess::Write).unwrap();
    let rows: Vec<_> = view.rows_on_server(&layout, ServerIndex(1), 0..4 << 20).collect();
    let counts: Vec<_> = rows.iter().map(|row| (row.count, row.stride)).collect();
    // A block has 65,536; the first is returned alone.
    assert_eq!(counts, [(1, 0), (65_535, 16)].repeat(2));
    assert_eq!(rows[1].part(65_534).local.0 + 16, rows[2].first.local.0);
}

#[test]
fn arrays_of_2_to_the_60_bytes_keep_their_shape() {
    let part = |size, subsize, start| SubarrayDimension { size, subsize, start };
    let dimensions = [part(1 << 19, 1 << 18, 5), part(1 << 19, 1 << 18, 7), part(1 << 19, 1 << 18, 11)];
    for order in [ArrayOrder::C, ArrayOrder::Fortran] {
        let cube = Datatype::subarray(&dimensions, order, &double()).unwrap();
        assert_eq!((cube.size(), cube.extent()), (8 << 54, 8 << 57));
        let view = View::new(0, &double(), &cube, ViewAccess::Write).unwrap();
        let row = 8u64 << 18;
        let first =
            if order == ArrayOrder::C { (5 << 38) + (7 << 19) + 11 } else { (11 << 38) + (7 << 19) + 5 };
        assert_eq!(view.file_offset(0), Some(8 * first));
        assert_eq!(
            view.file_offset(row * (1 << 18) + row + 8),
            Some(8 * (first + (1 << 38) + (1 << 19) + 1))
        );
    }
}

#[test]
fn memory_of_many_elements_is_one_run_or_one_loop() {
    let elements = Elements::new(&double(), FAR).unwrap();
    assert_eq!((elements.bytes(), elements.contiguous_at()), (8 << 40, Some(0)));
    let pair = Datatype::structure(&[
        StructMember { count: 1, displacement: 0, datatype: double() },
        StructMember { count: 1, displacement: 8, datatype: Datatype::named(1, 1).unwrap() },
    ])
    .unwrap();
    let pairs = Elements::new(&pair, FAR).unwrap();
    assert_eq!(pairs.bounds(), 0..(FAR - 1) * 16 + 9);
    let far = pairs.runs((9 << 39) + 1..(9 << 39) + 10).map(|run| (run.at, run.bytes)).collect::<Vec<_>>();
    assert_eq!(far, [((16 << 39) + 1, 8), ((16 << 39) + 16, 1)]);
}

#[test]
fn a_view_ends_where_files_must() {
    let view = View::contiguous(i64::MAX - 10, 1).unwrap();
    assert_eq!(view.stream_bytes(), 10);
    assert_eq!(view.file_offset(9), Some(i64::MAX.cast_unsigned() - 1));
    assert_eq!(view.file_offset(10), None);
    let pieces =
        View::new(i64::MAX - 100, &double(), &double().resized(0, 24).unwrap(), ViewAccess::Write).unwrap();
    assert_eq!(pieces.stream_bytes(), 4 * 8);
    assert_eq!(pieces.extents(0..u64::MAX).count(), 4);
    let error = View::contiguous(i64::MAX, 1).unwrap_err();
    assert_eq!(error, ViewError::TooFar { displacement: i64::MAX.cast_unsigned(), end: 1 });
}
