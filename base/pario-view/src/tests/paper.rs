//! The example of the AHPIOS paper: four processes, each of which sees every fourth byte.

use crate::{
    COMPARE_STEPS, Datatype, FileExtent, OverlapAnswer, View, ViewAccess, ViewShare, disjoint, tiles,
};

fn view(process: i64) -> View {
    let byte = Datatype::elementary(1).unwrap();
    let filetype = byte.resized(0, 4).unwrap();
    View::new(process, &byte, &filetype, ViewAccess::Write).unwrap()
}

#[test]
fn bytes_0_to_3_of_process_0_are_bytes_0_4_8_12_of_the_file() {
    let extents: Vec<FileExtent> = view(0).extents(0..4).collect();
    assert_eq!(extents, [0, 4, 8, 12].map(|file_offset| FileExtent { file_offset, bytes: 1 }));
    assert_eq!(view(0).stream_offset(12), Some(3));
    assert_eq!(view(0).stream_offset(13), None);
    assert_eq!(view(0).stream_at_or_after(13), Some(4));
}

#[test]
fn two_aggregators_get_the_parts_that_the_paper_lists() {
    // The file interval 0..16 is split into 0..8 and 8..16; process 0 has (0,1), (4,1) there and (8,1), (12,1) here.
    let view = view(0);
    let parts = |file| view.slice(0..4, file).map(|part| (part.file_offset, part.bytes)).collect::<Vec<_>>();
    assert_eq!(parts(0..8), [(0, 1), (4, 1)]);
    assert_eq!(parts(8..16), [(8, 1), (12, 1)]);
}

#[test]
fn together_they_are_the_whole_file() {
    let views: Vec<View> = (0..4).map(view).collect();
    let shares: Vec<ViewShare<'_>> = views.iter().map(ViewShare::whole).collect();
    assert_eq!(disjoint(&shares, COMPARE_STEPS), OverlapAnswer::Yes);
    assert_eq!(tiles(&shares, 0..16, COMPARE_STEPS), OverlapAnswer::Yes);
    assert_eq!(tiles(&shares, 0..1 << 60, COMPARE_STEPS), OverlapAnswer::Yes);
    assert_eq!(tiles(&shares[1..], 0..16, COMPARE_STEPS), OverlapAnswer::No);
}
