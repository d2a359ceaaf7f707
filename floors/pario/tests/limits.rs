//! Limits that a user sets are kept.

use pario::core::Code;
use pario::{EmbedOptions, EmbedStore, Partition};

/// A memory partition stores as many bytes as configured and no more, by every path.
#[test]
fn a_memory_partition_keeps_its_limit() {
    for call_bytes in [8 << 10, 1 << 20] {
        let options = EmbedOptions {
            servers: 2,
            store: EmbedStore::Memory,
            memory_bytes: 16 << 20,
            outbox_bytes: 1 << 20,
            ..EmbedOptions::default()
        };
        let partition = Partition::embed(&options).expect("a partition in this process");
        let file = partition.create("big").expect("a file");
        let data = vec![7; call_bytes];
        let calls = (64 << 20) / call_bytes;
        let refused = (0..calls).find_map(|call| file.write_at((call * call_bytes) as u64, &data).err());
        let error = refused.expect("64 MiB do not fit into 32 MiB");
        assert_eq!(error.code(), Code::NoSpace, "{error}");
        assert!(error.to_string().contains("server"), "the full server is named: {error}");
        // Freed space can be used by the same handle.
        file.set_len(0).expect("a cut");
        file.write_at(0, &data).expect("a write into freed room");
        file.close().expect("a close");
    }
}
