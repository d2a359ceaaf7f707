//! Any head page and ring to the server's reader, walked as the taking thread walks it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pario_core::ServerIndex;
use pario_core::limits::OUTBOX_BYTES_MIN;
use pario_net::outbox::{OUTBOX_HEAD_BYTES, OUTBOX_MAGIC, OutboxReader, RecordKind};
use rustix::fs::{MemfdFlags, SealFlags};

/// What the client wrote: where its records end, where the server is to start, and the ring's first bytes.
type Input<'a> = (u16, u16, bool, &'a [u8]);

fn segment(input: &Input<'_>) -> std::os::fd::OwnedFd {
    let (tail, _, honest, ring) = input;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let descriptor = rustix::fs::memfd_create("fuzz", flags).expect("a memfd");
    let bytes = OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MIN;
    rustix::fs::ftruncate(&descriptor, bytes as u64).expect("room");
    let put = |at: usize, bytes: &[u8]| {
        rustix::io::pwrite(&descriptor, bytes, at as u64).expect("a write into memory");
    };
    put(0, &OUTBOX_MAGIC.to_le_bytes());
    put(8, &(OUTBOX_BYTES_MIN as u64).to_le_bytes());
    // Mostly aligned, so that the walk gets somewhere.
    let tail = if *honest { u64::from(*tail) * 64 } else { u64::from(*tail) };
    put(64, &tail.to_le_bytes());
    put(OUTBOX_HEAD_BYTES, &ring[..ring.len().min(OUTBOX_BYTES_MIN)]);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&descriptor, seals).expect("seals");
    descriptor
}

fuzz_target!(|input: Input<'_>| {
    let reader = OutboxReader::attach(segment(&input)).expect("the form is right");
    let from = u64::from(input.1);
    let Ok(tail) = reader.tail(from) else { return };
    let mut position = from;
    while position < tail {
        let Ok(Some(record)) = reader.record(position, tail) else { return };
        let head = record.head;
        if head.kind == RecordKind::Data {
            let range = head.offset..head.offset + u64::from(head.data_bytes);
            for server in 0..3 {
                for piece in head.layout.pieces_on(ServerIndex(server), range.clone()) {
                    let start = usize::try_from(piece.file_offset - head.offset).expect("inside the record");
                    let bytes = usize::try_from(piece.bytes).expect("inside the record");
                    let mut copy = vec![0; bytes];
                    reader.data(&record, start, bytes).copy_to(&mut copy);
                }
            }
        }
        assert!(0 < head.span(), "the walk goes on");
        position += head.span();
    }
    assert_eq!(position, tail, "records fill what was committed");
});
