//! Files of all kinds, and threads that call together.

use std::path::PathBuf;

use pario::Partition;
use pario::containers::LogContainer;
use pario::team::{Position, TeamFile, TeamMember, TeamOptions, TeamSettings};

/// Keeps the place of a file.
pub(crate) enum Place {
    Plain(tempfile::TempDir),
    /// A container is at the path before the first open.
    Container(tempfile::TempDir),
    Partition(Partition),
}

impl Place {
    pub(crate) fn all() -> Vec<Place> {
        vec![Place::plain(), Place::container(), Place::partition()]
    }

    pub(crate) fn plain() -> Place {
        Place::Plain(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn container() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        LogContainer::create(&dir.path().join("file")).and_then(LogContainer::close).expect("a container");
        Place::Container(dir)
    }

    pub(crate) fn partition() -> Place {
        Place::Partition(Partition::in_process(3).expect("a partition"))
    }

    pub(crate) fn open(&self, options: &TeamOptions) -> TeamFile {
        match self {
            Place::Plain(_) | Place::Container(_) => TeamFile::open(self.path(), options).expect("opened"),
            Place::Partition(partition) => TeamFile::open_in(partition, "file", options).expect("opened"),
        }
    }

    /// A new file, with settings as in `PARIO_TEAM`.
    pub(crate) fn create(&self, settings: &str) -> TeamFile {
        self.open(&options(settings).truncate(true))
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Place::Plain(dir) | Place::Container(dir) => dir.path().join("file"),
            Place::Partition(_) => panic!("a plain file has a path"),
        }
    }

    /// The whole file, as another handle reads it.
    pub(crate) fn content(&self) -> Vec<u8> {
        let file = self.open(&TeamOptions::default().read(true));
        let mut bytes = vec![0; usize::try_from(file.size().expect("its size")).expect("small")];
        assert_eq!(file.read_at(0, &mut bytes).expect("read"), bytes.len());
        bytes
    }
}

pub(crate) fn options(settings: &str) -> TeamOptions {
    let settings = TeamSettings::parse(settings).expect("settings");
    TeamOptions::default().read(true).write(true).create(true).settings(settings)
}

/// Runs `work` on `size` threads, each with its member; results in order.
pub(crate) fn together<T: Send>(
    file: &TeamFile,
    size: u32,
    work: impl Fn(usize, TeamMember) -> T + Sync,
) -> Vec<T> {
    let positions: Vec<Position> = (0..size).map(|number| Position::of(number, size)).collect();
    at_positions(file, &positions, work)
}

/// The same at any positions.
pub(crate) fn at_positions<T: Send>(
    file: &TeamFile,
    positions: &[Position],
    work: impl Fn(usize, TeamMember) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |(number, position): (usize, &Position)| {
            let (file, position) = (file.clone(), *position);
            scope.spawn(move || work(number, file.at(position)))
        };
        let threads: Vec<_> = positions.iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (seed.wrapping_mul(31).wrapping_add(at * 7 + at / 251)).to_le_bytes()[0])
        .collect()
}
