//! The open files of a side, its calls, and the check of its bytes.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario::containers::{self, LogOptions};
use pario::team::{Arguments, Hint, Position, TargetKind, TeamFile, TeamOptions, TeamPlace, TeamSettings};

use super::job::TeamTask;
use super::pattern::{TeamPattern, ThreadPart, first_wrong};
use super::side::TeamSide;
use crate::error::BenchError;
use crate::job::JobOutcome;

/// Bytes of a call that checks or merges.
const COPY_BYTES: u64 = 1 << 20;
/// Looks at the turn before the processor is given to another thread.
const SPINS: u32 = 2000;

/// Direction of the calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TeamAccess {
    Write,
    Read,
}

/// Shared by the threads of a job.
#[derive(Clone, Debug)]
pub(super) enum OpenedFiles {
    /// One plain file.
    One(Arc<File>),
    /// One plain file, by threads in turn.
    InTurn(Arc<File>, Arc<AtomicU64>),
    /// One for each thread.
    Each(Arc<Vec<File>>),
    Team(TeamFile),
}

impl OpenedFiles {
    pub(super) fn open(job: &TeamTask<'_>, file: u32, access: TeamAccess) -> Result<OpenedFiles, BenchError> {
        let path = plain_path(job, file);
        let plain = |path: &Path| match access {
            TeamAccess::Write => {
                let mut options = File::options();
                options.read(true).write(true).create(true).truncate(true);
                options.open(path).map_err(BenchError::at("creating", path))
            }
            TeamAccess::Read => File::open(path).map_err(BenchError::at("opening", path)),
        };
        // After the merge there is one file to read.
        let is_merged = job.side == TeamSide::Merged && access == TeamAccess::Read;
        Ok(match job.side {
            TeamSide::Ordered => OpenedFiles::InTurn(Arc::new(plain(&path)?), Arc::default()),
            TeamSide::Separate | TeamSide::Merged if !is_merged => {
                let files = (0..job.threads).map(|thread| plain(&own_path(job, file, thread)));
                OpenedFiles::Each(Arc::new(files.collect::<Result<_, _>>()?))
            }
            TeamSide::Serial | TeamSide::OneFile | TeamSide::Separate | TeamSide::Merged => {
                OpenedFiles::One(Arc::new(plain(&path)?))
            }
            TeamSide::Plain | TeamSide::Partition | TeamSide::Log => {
                OpenedFiles::Team(open_team(job, file, access)?)
            }
        })
    }

    /// Call number `call` of a thread.
    pub(super) fn write(
        &self,
        job: &TeamTask<'_>,
        (thread, call): (u32, u64),
        part: &ThreadPart,
        buffer: &[u8],
    ) -> Result<(), BenchError> {
        let offset = part.offset(call);
        let write_all = |file: &File, offset: u64| {
            file.write_all_at(buffer, offset).map_err(BenchError::when("writing a plain file"))
        };
        match self {
            OpenedFiles::One(file) => {
                write_all(file, if job.side == TeamSide::Serial { part.ahead(call) } else { offset })
            }
            OpenedFiles::Each(files) => write_all(&files[thread as usize], call * buffer.len() as u64),
            OpenedFiles::InTurn(file, turn) => {
                let number = call * u64::from(job.threads) + u64::from(thread);
                wait_for_turn(turn, number, job.threads);
                let written = write_all(file, offset);
                turn.store(number + 1, Ordering::Release);
                written
            }
            OpenedFiles::Team(file) => {
                let member = file.at(Position::of(thread, job.threads));
                let written = match &job.pattern {
                    TeamPattern::Common { .. } => member.write_com_all(buffer, Hint::Contiguous),
                    TeamPattern::Again { .. } => member.write_at_all(offset, buffer, Hint::Contiguous),
                    TeamPattern::Parts { .. } => member.write_all(buffer, Hint::Contiguous),
                    TeamPattern::Shape(_) => {
                        let (slices, offsets) = lists(part, buffer, call);
                        let place = TeamPlace::Each(&offsets);
                        member.write_list(&slices, place, Arguments::Different, Hint::Unknown)
                    }
                };
                written.map(drop).map_err(team_error)
            }
        }
    }

    pub(super) fn read(
        &self,
        job: &TeamTask<'_>,
        (thread, call): (u32, u64),
        part: &ThreadPart,
        buffer: &mut [u8],
    ) -> Result<(), BenchError> {
        let offset = part.offset(call);
        let when = BenchError::when;
        match self {
            OpenedFiles::One(file) | OpenedFiles::InTurn(file, _) => {
                let offset = if job.side == TeamSide::Serial { part.ahead(call) } else { offset };
                file.read_exact_at(buffer, offset).map_err(when("reading a plain file"))
            }
            OpenedFiles::Each(files) => {
                let offset = call * buffer.len() as u64;
                files[thread as usize].read_exact_at(buffer, offset).map_err(when("reading a plain file"))
            }
            OpenedFiles::Team(file) => {
                let member = file.at(Position::of(thread, job.threads));
                let read = match &job.pattern {
                    TeamPattern::Parts { .. } => member.read_all(buffer, Hint::Contiguous),
                    TeamPattern::Again { .. } => member.read_at_all(offset, buffer, Hint::Contiguous),
                    TeamPattern::Common { .. } | TeamPattern::Shape(_) => {
                        return Err(BenchError::Worker("this pattern is not read".to_owned()));
                    }
                };
                read.map(drop).map_err(team_error)
            }
        }
    }

    pub(super) fn close(self, job: &TeamTask<'_>, number: u32) -> Result<(), BenchError> {
        let sync = |file: &File| {
            if job.sync { file.sync_data().map_err(BenchError::when("syncing a plain file")) } else { Ok(()) }
        };
        match self {
            OpenedFiles::One(file) | OpenedFiles::InTurn(file, _) => sync(&file),
            OpenedFiles::Each(files) => {
                if job.side == TeamSide::Merged {
                    return merge(job, number, &files).and_then(|merged| sync(&merged));
                }
                files.iter().try_for_each(sync)
            }
            OpenedFiles::Team(file) => {
                if job.sync {
                    file.sync().map_err(team_error)?;
                }
                file.close().map_err(team_error)
            }
        }
    }
}

fn open_team(job: &TeamTask<'_>, file: u32, access: TeamAccess) -> Result<TeamFile, BenchError> {
    let mut settings = TeamSettings::parse(&job.settings).map_err(team_error)?;
    let is_log = job.side == TeamSide::Log;
    settings.target = Some(if is_log { TargetKind::Log } else { TargetKind::Plain });
    let is_write = access == TeamAccess::Write;
    let options = TeamOptions::default().read(true).write(is_write).create(is_write).truncate(is_write);
    let options = options.settings(settings);
    let opened = match &job.partition {
        Some(partition) => TeamFile::open_in(partition, file_name(file), &options),
        None => TeamFile::open(plain_path(job, file), &options),
    };
    opened.map_err(team_error)
}

/// Buffers and offsets of a call.
fn lists<'a>(part: &ThreadPart, buffer: &'a [u8], call: u64) -> (Vec<IoSlice<'a>>, Vec<u64>) {
    let ahead = part.ahead(call);
    let mut rest = buffer;
    let mut slices = Vec::with_capacity(part.pieces.len());
    for (_, bytes) in &part.pieces {
        let (piece, behind) = rest.split_at(*bytes);
        slices.push(IoSlice::new(piece));
        rest = behind;
    }
    (slices, part.pieces.iter().map(|(offset, _)| offset + ahead).collect())
}

/// As threads of OpenMP wait for `ordered`: spinning while there is a processor for each of them.
fn wait_for_turn(turn: &AtomicU64, number: u64, threads: u32) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spins = if threads as usize <= processors { SPINS } else { 0 };
    let mut looks = 0;
    while turn.load(Ordering::Acquire) != number {
        if looks < spins {
            looks += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// One file of those of the threads, part by part.
fn merge(job: &TeamTask<'_>, number: u32, files: &[File]) -> Result<File, BenchError> {
    use std::io::Seek;
    let path = plain_path(job, number);
    let mut merged = File::create(&path).map_err(BenchError::at("creating", &path))?;
    let bytes = job.pattern.step_bytes(job.threads) / u64::from(job.threads);
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    for mut file in files {
        file.rewind().map_err(BenchError::when("merging"))?;
    }
    for _ in 0..job.pattern.calls() {
        for mut file in files {
            file.read_exact(&mut buffer).map_err(BenchError::when("merging"))?;
            merged.write_all(&buffer).map_err(BenchError::at("merging into", &path))?;
        }
    }
    Ok(merged)
}

/// Whether every byte of a file is right.
pub(super) fn check(job: &TeamTask<'_>, number: u32) -> Result<(), BenchError> {
    let bytes = job.pattern.file_bytes(job.threads);
    let wrong = |at: u64| {
        let text = format!("{}: byte {at} of the file is not what was written there", job.side.word());
        Err(BenchError::Wrong(text))
    };
    if job.side.is_team() {
        let file = open_team(job, number, TeamAccess::Read)?;
        let length = file.size().map_err(team_error)?;
        if length != bytes {
            return wrong(length.min(bytes));
        }
        let read = |buffer: &mut [u8], at: u64| file.read_at(at, buffer).map(drop).map_err(team_error);
        if let Some(at) = first_wrong_of(bytes, read)? {
            return wrong(at);
        }
        return file.close().map_err(team_error);
    }
    let open = |path: &Path| File::open(path).map_err(BenchError::at("opening", path));
    if job.side == TeamSide::Separate {
        // Part by part, since the parts of the other threads are in other files.
        let part = job.pattern.step_bytes(job.threads) / u64::from(job.threads);
        let mut buffer = vec![0; usize::try_from(part).unwrap_or(usize::MAX)];
        for thread in 0..job.threads {
            let mut file = open(&own_path(job, number, thread))?;
            for call in 0..job.pattern.calls() {
                file.read_exact(&mut buffer).map_err(BenchError::when("checking"))?;
                let offset = (call * u64::from(job.threads) + u64::from(thread)) * part;
                if let Some(at) = first_wrong(&buffer, offset) {
                    return wrong(at);
                }
            }
        }
        return Ok(());
    }
    let file = open(&plain_path(job, number))?;
    let read = |buffer: &mut [u8], at: u64| {
        file.read_exact_at(buffer, at).map_err(BenchError::when("checking a plain file"))
    };
    first_wrong_of(bytes, read)?.map_or(Ok(()), wrong)
}

fn first_wrong_of(
    bytes: u64,
    read: impl Fn(&mut [u8], u64) -> Result<(), BenchError>,
) -> Result<Option<u64>, BenchError> {
    let mut at = 0;
    while at < bytes {
        let mut buffer = vec![0; usize::try_from(COPY_BYTES.min(bytes - at)).unwrap_or(usize::MAX)];
        read(&mut buffer, at)?;
        if let Some(wrong) = first_wrong(&buffer, at) {
            return Ok(Some(wrong));
        }
        at += buffer.len() as u64;
    }
    Ok(None)
}

/// Removes a file, as far as there is one.
pub(super) fn remove(job: &TeamTask<'_>, number: u32) -> Result<(), BenchError> {
    let gone = |removed: std::io::Result<()>, path: &Path| match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::at("removing", path)(error))
        }
        _ => Ok(()),
    };
    let path = plain_path(job, number);
    if let Some(partition) = &job.partition {
        return Ok(partition.remove_file(file_name(number))?);
    }
    if job.side.is_separate() {
        for thread in 0..job.threads {
            let path = own_path(job, number, thread);
            gone(std::fs::remove_file(&path), &path)?;
        }
    }
    match path.is_dir() {
        true => gone(std::fs::remove_dir_all(&path), &path),
        false => gone(std::fs::remove_file(&path), &path),
    }
}

/// Makes plain files of containers; the bytes of their indexes are counted first.
pub(super) fn flatten(job: &TeamTask<'_>) -> Result<JobOutcome, BenchError> {
    let failed = |error: containers::LogError| BenchError::Worker(error.to_string());
    let mut outcome = JobOutcome::default();
    for number in 0..job.files {
        let path = plain_path(job, number);
        let report = containers::check(&path, false).map_err(failed)?;
        *outcome.counts.entry("index_bytes".to_owned()).or_default() += report.index_bytes;
        *outcome.counts.entry("entries".to_owned()).or_default() += report.entries;
        containers::flatten(&LogOptions::default(), &path).map_err(failed)?;
    }
    Ok(outcome)
}

fn team_error(error: pario::team::TeamError) -> BenchError {
    BenchError::Worker(error.to_string())
}

fn file_name(number: u32) -> String {
    format!("team-{number}")
}

fn plain_path(job: &TeamTask<'_>, number: u32) -> PathBuf {
    job.path.with_file_name(format!("{}-{number}", job.side.word()))
}

fn own_path(job: &TeamTask<'_>, number: u32, thread: u32) -> PathBuf {
    job.path.with_file_name(format!("{}-{number}-of-{thread}", job.side.word()))
}
