//! Nothing but a place for measurements: `cargo bench --manifest-path benches/Cargo.toml`.
