//! The experiments' applications, as the paper has them.

use super::model::{App, NS, VirtualNanos};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bytes of the file that an application of the paper reads.
pub(crate) const FILE_BYTES: u64 = 4 * GIB;
/// Clients of such an application.
pub(crate) const CLIENTS: u64 = 32;
/// Granularities of the sweeps: 8 KiB to 4 MiB.
pub(crate) const GRANULARITIES: [u64; 10] =
    [8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB];
/// Numbers of clients of the scaling experiment.
pub(crate) const CLIENT_NUMBERS: [u64; 7] = [2, 4, 8, 16, 32, 64, 96];
/// Granularity of the scaling experiment, and of the large reader beside `cat` where one number is wanted.
pub(crate) const MIDDLE_GRANULARITY: u64 = 32 * KIB;
/// When `cat` starts beside the large reader.
const CAT_START: VirtualNanos = 15 * NS;

/// Measurements of the paper without its scheduler, in seconds.
pub(crate) mod paper {
    /// Two decomposed readers at 8 KiB: "more than 1 hour and half".
    pub(crate) const TWO_READERS_S: f64 = 5400.0;
    /// The ten applications of Table 2 until the last was done, as the issue of this benchmark rounds it.
    pub(crate) const TEN_APPS_S: f64 = 595.0;
    /// Table 2, column NFS, POSIX.
    pub(crate) const TEN_NFS_S: [f64; 10] =
        [490.0, 409.0, 595.5, 51.0, 531.0, 208.0, 57.0, 39.0, 558.0, 192.0];
    /// Table 2, column NFS+aIOLi, POSIX.
    pub(crate) const TEN_AIOLI_S: [f64; 10] = [134.0, 107.0, 104.0, 14.5, 48.5, 47.0, 6.0, 19.0, 143.5, 84.0];
}

/// One client reads a file from its beginning to its end.
pub(crate) fn lone() -> Vec<App> {
    vec![App::reader("lone", GIB, 1, 32 * KIB)]
}

/// One application, a file dealt to its clients.
pub(crate) fn one(granularity: u64) -> Vec<App> {
    vec![App::reader("reader", FILE_BYTES, CLIENTS, granularity)]
}

/// Two of them.
pub(crate) fn two(granularity: u64) -> Vec<App> {
    ["first", "second"].map(|name| App::reader(name, FILE_BYTES, CLIENTS, granularity)).into()
}

/// One of them, and a `cat` of 16 MiB that starts 15 s later.
pub(crate) fn beside_cat(granularity: u64) -> Vec<App> {
    let large = App::reader("large", FILE_BYTES, CLIENTS, granularity);
    vec![large, App::reader("cat", 16 * MIB, 1, 32 * KIB).starting(CAT_START)]
}

/// One application with `clients` clients.
pub(crate) fn scaled(clients: u64) -> Vec<App> {
    vec![App::reader("reader", GIB, clients, MIDDLE_GRANULARITY)]
}

/// The ten applications of Table 2.
pub(crate) fn ten() -> Vec<App> {
    vec![
        App::reader("read 2 GiB, 32 clients, 128 KiB", 2 * GIB, 32, 128 * KIB),
        App::writer("write 2 GiB, 32 clients, 128 KiB", 2 * GIB, 32, 128 * KIB),
        App::reader("read 256 MiB, 16 clients, 8 KiB", 256 * MIB, 16, 8 * KIB),
        App::writer("write 128 MiB, 8 clients, 64 KiB", 128 * MIB, 8, 64 * KIB),
        App::reader("read 32 MiB, 4 KiB", 32 * MIB, 1, 4 * KIB),
        App::writer("write 32 MiB, 4 KiB", 32 * MIB, 1, 4 * KIB),
        App::reader("read 4 MiB, 32 KiB", 4 * MIB, 1, 32 * KIB),
        App::writer("write 4 MiB, 32 KiB", 4 * MIB, 1, 32 * KIB),
        App::reader("read 1 GiB, 2 MiB", GIB, 1, 2 * MIB),
        App::writer("write 512 MiB, 2 MiB", 512 * MIB, 1, 2 * MIB),
    ]
}

/// The small ones of the ten: interactive users may wait for them.
pub(crate) const TEN_SMALL: [usize; 4] = [4, 5, 6, 7];

/// A granularity in words, for tables and names of figures: `8k`, `4m`.
pub(crate) fn short(bytes: u64) -> String {
    if bytes < MIB { format!("{}k", bytes / KIB) } else { format!("{}m", bytes / MIB) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_applications_move_six_gigabytes() {
        let bytes: u64 = ten().iter().map(|app| app.bytes).sum();
        assert_eq!(bytes, 6088 * MIB);
        assert!(TEN_SMALL.iter().all(|at| ten()[*at].bytes <= 32 * MIB));
    }

    #[test]
    fn sizes_are_short_words() {
        assert_eq!(
            (short(8 * KIB), short(512 * KIB), short(4 * MIB)),
            ("8k".into(), "512k".into(), "4m".into())
        );
    }
}
