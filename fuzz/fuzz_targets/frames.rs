//! Any bytes in any pieces: frames come out the same, or the same error does.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pario_core::limits::FRAME_BODY_BYTES_MAX;
use pario_net::frame::{Assembler, GREETING_BODY_BYTES_MAX};

/// Frames found, as head number, body and data, and whether the bytes broke the rules.
type Found = (Vec<(u64, Vec<u8>, Vec<u8>)>, bool);

fn assemble(bytes: &[u8], step: usize, limit: usize) -> Found {
    let (mut assembler, mut frames, mut rest) = (Assembler::default(), Vec::new(), bytes);
    while !rest.is_empty() {
        let target = assembler.target();
        let count = target.len().min(step).min(rest.len());
        target[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
        match assembler.advance(count, limit) {
            Ok(Some(frame)) => frames.push((frame.head.request, frame.body, frame.data)),
            Ok(None) => {}
            Err(_) => return (frames, true),
        }
    }
    (frames, false)
}

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (step, greeted, bytes) = input;
    let limit = if greeted { FRAME_BODY_BYTES_MAX } else { GREETING_BODY_BYTES_MAX };
    let whole = assemble(bytes, usize::MAX, limit);
    assert_eq!(whole, assemble(bytes, 1 + usize::from(step), limit));
});
