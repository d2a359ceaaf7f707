//! The workers of a copy: a fixed number of threads that take pieces of files, the oldest file first.
//!
//! Never: holds more than [`JOBS_QUEUED_MAX`] queued files. Always: a file is opened by a worker that needs work, so that few
//! files are open at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::copy::CopyRun;
use super::file::{AfterPiece, FileCopy, FileJob};

/// Files found and not yet opened.
const JOBS_QUEUED_MAX: usize = 1024;

/// State shared by the workers.
#[derive(Debug, Default)]
struct Board {
    jobs: VecDeque<FileJob>,
    open: VecDeque<Arc<FileCopy>>,
    found_all: bool,
    /// Workers that open a file or move a piece: they may add work.
    busy: usize,
}

/// Queue of files found by the walk.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    board: Mutex<Board>,
    changed: Condvar,
}

impl Jobs {
    /// Adds a file; waits while the queue is full.
    pub(super) fn push(&self, job: FileJob) {
        let mut board = self.lock();
        while JOBS_QUEUED_MAX <= board.jobs.len() {
            board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
        board.jobs.push_back(job);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().found_all = true;
        self.changed.notify_all();
    }

    /// The next task; `None`: all done.
    fn next_task(&self) -> Option<CopyTask> {
        let mut board = self.lock();
        loop {
            while let Some(copy) = board.open.front().cloned() {
                match copy.take_piece() {
                    Some(piece) => {
                        board.busy += 1;
                        return Some(CopyTask::Piece(copy, piece));
                    }
                    None => drop(board.open.pop_front()),
                }
            }
            if let Some(job) = board.jobs.pop_front() {
                board.busy += 1;
                self.changed.notify_all();
                return Some(CopyTask::Open(job));
            }
            if board.found_all && board.busy == 0 {
                self.changed.notify_all();
                return None;
            }
            board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, opened: Option<Arc<FileCopy>>) {
        let mut board = self.lock();
        board.busy -= 1;
        board.open.extend(opened);
        self.changed.notify_all();
    }
}

enum CopyTask {
    Open(FileJob),
    Piece(Arc<FileCopy>, u64),
}

/// Runs `walk` on this thread, which finds files, and the workers beside it until all are copied.
pub(super) fn work(run: &CopyRun<'_>, walk: impl FnOnce(&Jobs)) {
    let jobs = Jobs::default();
    std::thread::scope(|scope| {
        for _ in 0..run.options.jobs.max(1) {
            scope.spawn(|| worker(run, &jobs));
        }
        walk(&jobs);
        jobs.close();
    });
}

fn worker(run: &CopyRun<'_>, jobs: &Jobs) {
    let mut buffer = Vec::new();
    while let Some(task) = jobs.next_task() {
        let opened = match task {
            CopyTask::Open(job) => open(run, job),
            CopyTask::Piece(copy, piece) => {
                let moved = run.check().and_then(|()| copy.move_piece(run, piece, &mut buffer));
                if let AfterPiece::Last = copy.piece_done(moved) {
                    finish(run, &copy);
                }
                None
            }
        };
        jobs.done(opened);
    }
}

fn open(run: &CopyRun<'_>, job: FileJob) -> Option<Arc<FileCopy>> {
    match run.check().and_then(|()| FileCopy::open(job)) {
        Ok(copy) if copy.pieces() == 0 => {
            finish(run, &copy);
            None
        }
        Ok(copy) => Some(Arc::new(copy)),
        Err(error) => {
            run.fail(error);
            None
        }
    }
}

fn finish(run: &CopyRun<'_>, copy: &FileCopy) {
    if let Err(error) = copy.finish(run) {
        run.fail(error);
    }
}
