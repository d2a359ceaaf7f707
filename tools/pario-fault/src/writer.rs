//! A writer: a client process that makes random calls and journals each of them, until its standard input ends.
//!
//! Never: judges facts known only to the driver (which processes were killed). Always: a call is in the journal before it is made.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pario::core::{Clock, Code, Nanos, SeededRandom};
use pario::partition::Registry;
use pario::{File, MonotonicClock, Partition};

use crate::cluster::{NAME, pause};
use crate::journal::{CallResult, Journal, WriterCall, WriterFileId};
use crate::model::{Acknowledged, ByteSeed, FileModel};

/// Files of a writer at any time.
const FILES_MAX: usize = 6;
/// Longest file of one writer.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// Bytes of a slot in the file that all writers share; a writer has every `writers`-th slot.
const SLOT_BYTES: u64 = 20_000;
/// Slots of one writer.
const SLOTS: u64 = 24;
/// Maximum bytes of a writer, so that verifying takes about as long as writing.
const WRITTEN_BYTES_MAX: u64 = 48 << 20;
/// The file that all writers share.
const SHARED: WriterFileId = WriterFileId(0);

/// Arguments of a writer process.
#[derive(Clone, clap::Args, Debug)]
pub struct WriterArgs {
    /// The registry that lists the partition
    #[arg(long)]
    pub registry: PathBuf,
    /// Its journal, made anew
    #[arg(long)]
    pub journal: PathBuf,
    /// The seed of its calls and bytes
    #[arg(long)]
    pub seed: u64,
    /// Its number
    #[arg(long)]
    pub writer: u64,
    /// How many writers share a file
    #[arg(long)]
    pub writers: u64,
    /// The directory of the round, in the partition
    #[arg(long)]
    pub dir: String,
    /// Reads see every write that returned, since no server will be killed
    #[arg(long)]
    pub strict: bool,
}

struct WriterFile {
    path: String,
    handle: Option<File>,
    model: FileModel,
}

/// A failed call; the writer continues.
struct CallFailed;

struct FaultWriter {
    args: WriterArgs,
    partition: Partition,
    journal: Journal,
    random: SeededRandom,
    ink: ByteSeed,
    began: Nanos,
    calls: u64,
    made: u64,
    written: u64,
    files: BTreeMap<WriterFileId, WriterFile>,
}

/// Runs until standard input ends. An error is one of the journal: without it no check is possible.
pub fn run(args: WriterArgs) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        // Anything but an end is as good as the end.
        let _ = io::stdin().read(&mut [0; 1]);
        told.store(true, Ordering::Relaxed);
    });
    let Some(mut writer) = FaultWriter::start(args, &stop)? else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        writer.step()?;
    }
    writer.finish()
}

impl FaultWriter {
    /// `None`: stopped before the partition could be mounted.
    fn start(args: WriterArgs, stop: &AtomicBool) -> io::Result<Option<FaultWriter>> {
        let journal = Journal::create(&args.journal)?;
        let registry = Registry::open(&args.registry);
        let partition = loop {
            match Partition::mount_from(&registry, NAME) {
                Ok(partition) => break partition,
                Err(_) if !stop.load(Ordering::Relaxed) => pause(Duration::from_millis(20)),
                Err(_) => return Ok(None),
            }
        };
        let random = SeededRandom::new(args.seed ^ args.writer);
        let ink = ByteSeed::of(args.seed, args.writer);
        let began = MonotonicClock.now();
        let files = BTreeMap::new();
        Ok(Some(FaultWriter {
            args,
            partition,
            journal,
            random,
            ink,
            began,
            calls: 0,
            made: 0,
            written: 0,
            files,
        }))
    }

    fn step(&mut self) -> io::Result<()> {
        if !self.files.contains_key(&SHARED) {
            return self.create(SHARED, format!("{}/shared", self.args.dir));
        }
        let at = self.random.index(self.files.len());
        let id = *self.files.keys().nth(at).expect("one of them");
        match self.random.below(100) {
            _ if self.files[&id].handle.is_none() => self.open(id),
            0..45 => self.write(id),
            45..62 => self.read(id),
            62..74 => self.sync(id),
            74..82 => self.close(id),
            82..90 if self.files.len() < FILES_MAX => self.create_another(),
            90..94 if id != SHARED => self.rename(id),
            94..97 if id != SHARED => self.remove(id),
            // Computes.
            _ => {
                pause(Duration::from_micros(self.random.between(10, 3000)));
                Ok(())
            }
        }
    }

    fn create_another(&mut self) -> io::Result<()> {
        self.made += 1;
        let path = self.path(self.made);
        self.create(WriterFileId(self.made), path)
    }

    fn path(&self, number: u64) -> String {
        format!("{}/w{}-{number}", self.args.dir, self.args.writer)
    }

    fn create(&mut self, file: WriterFileId, path: String) -> io::Result<()> {
        let options = self.partition.options().read(true).write(true);
        let options = if file == SHARED { options.create(true) } else { options.create_new(true) };
        let name = path.clone();
        let opened = self.call(WriterCall::Create { file, name }, || options.open(&path))?;
        // A file is not used after a failed creation: whether it exists is unknown.
        if let Ok(handle) = opened {
            self.files.insert(file, WriterFile { path, handle: Some(handle), model: FileModel::default() });
        } else if file == SHARED {
            pause(Duration::from_millis(20));
        }
        Ok(())
    }

    fn open(&mut self, file: WriterFileId) -> io::Result<()> {
        let path = self.files[&file].path.clone();
        let options = self.partition.options().read(true).write(true);
        let mut absent = false;
        let opened = self.call(WriterCall::Open { file }, || {
            options.open(&path).inspect_err(|error| absent = error.code() == Code::NotFound)
        })?;
        if absent {
            self.journal.violation(&format!("{path} cannot be opened: it is not there"))?;
        }
        match opened {
            Ok(handle) => self.owned(file).handle = Some(handle),
            Err(CallFailed) => pause(Duration::from_millis(20)),
        }
        Ok(())
    }

    fn write(&mut self, file: WriterFileId) -> io::Result<()> {
        if WRITTEN_BYTES_MAX <= self.written {
            pause(Duration::from_millis(1));
            return Ok(());
        }
        let (offset, bytes) = self.choose_range(file);
        let number = self.calls + 1;
        let mut data = vec![0; usize::try_from(bytes).expect("fits memory")];
        self.ink.fill(number, offset, &mut data);
        let handle = self.take_handle(file);
        let wrote =
            self.call(WriterCall::Write { file, offset, bytes }, || handle.write_at(offset, &data))?;
        self.written += bytes;
        self.owned(file).model.wrote(number, offset..offset + bytes, wrote.is_ok());
        self.keep_handle(file, handle, wrote.is_ok());
        Ok(())
    }

    /// Range of a call: anywhere in a private file, in this writer's slots of the shared one.
    fn choose_range(&mut self, file: WriterFileId) -> (u64, u64) {
        if file == SHARED {
            let slot = self.random.below(SLOTS) * self.args.writers + self.args.writer % self.args.writers;
            let bytes = self.random.between(1, SLOT_BYTES + 1);
            return (slot * SLOT_BYTES + self.random.below(SLOT_BYTES + 1 - bytes), bytes);
        }
        let most = [200, 20_000, 200_000, 1 << 20][self.random.index(4)];
        let bytes = self.random.between(1, most);
        (self.random.below(FILE_BYTES_MAX - bytes), bytes)
    }

    fn read(&mut self, file: WriterFileId) -> io::Result<()> {
        let (offset, bytes) = self.choose_range(file);
        let mut found = vec![0; usize::try_from(bytes).expect("fits memory")];
        let handle = self.take_handle(file);
        let read =
            self.call(WriterCall::Read { file, offset, bytes }, || handle.read_at(offset, &mut found))?;
        self.keep_handle(file, handle, read.is_ok());
        let Ok(count) = read else { return Ok(()) };
        // Beyond the end there are no bytes; the model treats them as zeros.
        found[count..].fill(0);
        let promise = if self.args.strict { Acknowledged::Returned } else { Acknowledged::Synced };
        let judged = self.files[&file].model.judge(self.ink, promise, offset, &found);
        if let Err(wrong) = judged {
            self.journal.violation(&format!("{} read: {}", self.files[&file].path, wrong.text))?;
        }
        Ok(())
    }

    fn sync(&mut self, file: WriterFileId) -> io::Result<()> {
        let handle = self.take_handle(file);
        let synced = self.call(WriterCall::Sync { file }, || handle.sync())?;
        if synced.is_ok() {
            self.owned(file).model.synced();
        }
        self.keep_handle(file, handle, synced.is_ok());
        Ok(())
    }

    fn close(&mut self, file: WriterFileId) -> io::Result<()> {
        let handle = self.take_handle(file);
        if self.call(WriterCall::Close { file }, || handle.close())?.is_ok() {
            self.owned(file).model.synced();
        }
        Ok(())
    }

    fn rename(&mut self, file: WriterFileId) -> io::Result<()> {
        self.made += 1;
        let (from, to) = (self.files[&file].path.clone(), self.path(self.made));
        let call = WriterCall::Rename { file, to: to.clone() };
        let partition = self.partition.clone();
        if self.call(call, || partition.rename(&from, &to))?.is_ok() {
            self.owned(file).path = to;
        } else {
            self.files.remove(&file);
        }
        Ok(())
    }

    fn remove(&mut self, file: WriterFileId) -> io::Result<()> {
        let owned = self.files.remove(&file).expect("one of its files");
        let partition = self.partition.clone();
        self.call(WriterCall::Remove { file }, || partition.remove_file(&owned.path)).map(drop)
    }

    /// Closes all files.
    fn finish(mut self) -> io::Result<()> {
        let open: Vec<WriterFileId> =
            self.files.iter().filter(|(_, owned)| owned.handle.is_some()).map(|(id, _)| *id).collect();
        open.into_iter().try_for_each(|file| self.close(file))
    }

    /// Makes a call, with the journal before and after it.
    fn call<T>(
        &mut self,
        call: WriterCall,
        make: impl FnOnce() -> pario::Result<T>,
    ) -> io::Result<Result<T, CallFailed>> {
        self.calls += 1;
        self.journal.begin(self.calls, self.ms(), &call)?;
        let made = make();
        let outcome = match &made {
            Ok(_) => CallResult::Done,
            Err(error) => CallResult::Failed { code: format!("{:?}", error.code()), text: error.to_string() },
        };
        self.journal.end(self.calls, self.ms(), &outcome)?;
        if made.is_err() {
            self.files.values_mut().for_each(|owned| owned.model.unsettle_unsynced());
        }
        Ok(made.map_err(|_| CallFailed))
    }

    fn ms(&self) -> u64 {
        u64::try_from(MonotonicClock.now().since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    fn owned(&mut self, file: WriterFileId) -> &mut WriterFile {
        self.files.get_mut(&file).expect("one of its files")
    }

    fn take_handle(&mut self, file: WriterFileId) -> File {
        self.owned(file).handle.take().expect("an open file")
    }

    /// A handle that failed is dropped and the file opened again, as a program that recovers would.
    fn keep_handle(&mut self, file: WriterFileId, handle: File, worked: bool) {
        if worked {
            self.owned(file).handle = Some(handle);
        }
    }
}
