//! Two-phase into one plain file that all ranks can open, as MPI libraries do it: the reference of the other methods.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault};
use pario_view::{Datatype, View, ViewAccess};

use super::TwoPhase;
use super::counts::TwoPhaseCounts;
use super::target::PlainTarget;
use crate::collective::{Hints, illegal};
use crate::error::Result;
use crate::group::{CollectiveCall, Group};

/// How a [`PlainFile`] is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainMode {
    /// Created if missing, truncated if it exists; for reading and writing.
    Create,
    /// Existing file, for reading and writing.
    Write,
    /// Existing file, for reading.
    Read,
}

/// A plain file on any file system that all ranks of a group can open, accessed by two-phase.
///
/// ```
/// use pario::collective::{PlainFile, PlainMode};
/// use pario::{Alone, Datatype, Hints};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("field");
/// let file = PlainFile::open_all(&Alone::group(), &path, PlainMode::Create, &Hints::default())?;
/// let byte = Datatype::elementary(1)?;
/// file.set_view(0, &byte, &byte.resized(0, 4)?)?;            // every fourth byte
/// file.write_at_all(0, b"abc")?;
/// file.close()?;
/// assert_eq!(std::fs::read(&path)?, b"a\0\0\0b\0\0\0c");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PlainFile {
    group: Arc<dyn Group>,
    target: PlainTarget,
    mode: PlainMode,
    view: Mutex<Arc<View>>,
    two_phase: TwoPhase,
}

impl PlainFile {
    /// Opens a file together with all other members of `group`; all must pass the same arguments.
    pub fn open_all(
        group: &Arc<dyn Group>,
        path: impl AsRef<Path>,
        mode: PlainMode,
        hints: &Hints,
    ) -> Result<PlainFile> {
        let path = path.as_ref();
        let group = group.duplicate()?;
        let said = format!("{path:?} {mode:?} {hints:?}");
        group.same("the path, mode and hints of a file", said.as_bytes())?;
        // Rank 0 creates or truncates it; the others open the result.
        let mine = if group.rank() == 0 { Some(open(path, mode)) } else { None };
        group.agree(
            mine.as_ref()
                .map_or(Ok(()), |file| file.as_ref().map(|_| ()).map_err(|fault| fault.clone().into())),
        )?;
        let later = if mode == PlainMode::Create { PlainMode::Write } else { mode };
        let file = mine.unwrap_or_else(|| open(path, later));
        group.agree(file.as_ref().map(|_| ()).map_err(|fault| fault.clone().into()))?;
        let two_phase = TwoPhase::new(&group, hints)?;
        let target = PlainTarget { file: file?, path: path.to_owned() };
        Ok(PlainFile { group, target, mode, view: Mutex::new(Arc::new(View::whole())), two_phase })
    }

    /// Sets the view of this process: the part of the file that `filetype` covers, repeated from byte `displacement` on;
    /// collective.
    pub fn set_view(&self, displacement: i64, etype: &Datatype, filetype: &Datatype) -> Result<()> {
        let access = if self.mode == PlainMode::Read { ViewAccess::Read } else { ViewAccess::Write };
        let made = View::new(displacement, etype, filetype, access).map_err(|error| illegal(&error));
        self.group.agree_in(
            CollectiveCall::SetView,
            made.as_ref().map(|_| ()).map_err(|fault| fault.clone().into()),
        )?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(made?);
        Ok(())
    }

    /// The view in force.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Collective write at an offset, in elementary types of the view; data may be empty.
    pub fn write_at_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        let view = self.view();
        let place = if self.mode == PlainMode::Read {
            let text = format!("{} is open for reading only", self.target.path.display());
            Err(Fault::new(Code::NotWritable, text).into())
        } else {
            self.locate(&view, offset, data.len())
        };
        self.two_phase.write(&self.target, place.map(|stream| (&*view, stream)), data)
    }

    /// Collective read at an offset; returns the number of bytes before the end of the file.
    pub fn read_at_all(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let view = self.view();
        let place = self.locate(&view, offset, target.len());
        self.two_phase.read(&self.target, place.map(|stream| (&*view, stream)), target)
    }

    /// The counters so far.
    pub fn counts(&self) -> TwoPhaseCounts {
        self.two_phase.counts()
    }

    /// Writes the group's data to stable storage; collective.
    pub fn sync(&self) -> Result<()> {
        let mine = self.target.file.sync_data().map_err(|error| self.target.fault(&error).into());
        self.group.agree(mine)
    }

    /// Closes the file; collective.
    pub fn close(self) -> Result<()> {
        self.group.agree(Ok(()))
    }

    fn locate(&self, view: &View, offset: u64, bytes: usize) -> Result<std::ops::Range<u64>> {
        let start = offset.checked_mul(view.etype_bytes());
        let end =
            start.and_then(|start| start.checked_add(bytes as u64)).filter(|end| *end <= view.stream_bytes());
        start.zip(end).map(|(start, end)| start..end).ok_or_else(|| {
            let place = self.target.path.display();
            let text = format!("{place}: {bytes} bytes at offset {offset} are beyond the view");
            Fault::new(Code::TooLarge, text).into()
        })
    }
}

fn open(path: &Path, mode: PlainMode) -> std::result::Result<fs::File, Fault> {
    let create = mode == PlainMode::Create;
    let mut options = fs::OpenOptions::new();
    options.read(true).write(mode != PlainMode::Read).create(create).truncate(create);
    options.open(path).map_err(|error| Fault::from_io(&error, path.display()))
}
