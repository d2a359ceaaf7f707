//! Random reads and writes by several clients, compared with a byte array, one operation at a time: after a write has returned, every
//! later read by any client sees exactly it; lengths are exact; names lead to the right files.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;

use common::{STORES, SeededRandom, TRANSPORTS, Trace, difference, histories, pattern, small};
use pario::core::Code;
use pario::{Application, Checksums, EmbedOptions, File, Partition, SchedulerSpec};

/// Files stay below this.
const FILE_BYTES_MAX: u64 = 700 << 10;
const NAMES: [&str; 4] = ["a", "b", "dir/c", "dir/d"];
const STEPS: u64 = 120;
/// Half of all histories have no scheduler, as most partitions.
const POLICIES: [&str; 8] = ["fifo", "fifo", "fifo", "fifo", "mlf", "mlf", "wfq", "deadline"];
const HANDLES_MAX: usize = 10;

struct TestHandle {
    client: usize,
    file: usize,
    handle: File,
}

/// The partition and what it should hold.
struct HistoryFixture<'a> {
    chance: SeededRandom,
    trace: &'a Trace,
    stripe: u64,
    servers: u16,
    clients: Vec<Partition>,
    handles: Vec<TestHandle>,
    /// Contents of every file ever created.
    files: Vec<Vec<u8>>,
    names: BTreeMap<&'static str, usize>,
}

#[test]
fn several_clients_agree_with_a_byte_array() {
    histories(54, |seed, trace| {
        let mut world = HistoryFixture::new(seed, trace);
        for _ in 0..STEPS {
            world.step();
        }
        world.end();
    });
}

impl<'a> HistoryFixture<'a> {
    fn new(seed: u64, trace: &'a Trace) -> HistoryFixture<'a> {
        let mut chance = SeededRandom::new(seed);
        // The fixed seeds cover all combinations.
        let (transport, store) = match usize::try_from(seed) {
            Ok(seed) if seed < 1 << 20 => (TRANSPORTS[seed % 3], STORES[seed / 3 % 4]),
            _ => (chance.pick(&TRANSPORTS), chance.pick(&STORES)),
        };
        let servers = chance.pick(&[1u16, 2, 3, 4, 5]);
        let stripe = chance.pick(&[4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10]);
        let count = 1 + chance.index(3);
        let policy = chance.pick(&POLICIES);
        let scheduler = SchedulerSpec { policy: policy.to_owned(), ..SchedulerSpec::default() };
        let checksums = chance.pick(&[Checksums::On, Checksums::Off]);
        let options = EmbedOptions { transport, store, scheduler, checksums, ..small(servers, stripe) };
        trace.step(format!(
            "{transport:?} {store:?} {policy}, {servers} servers, stripe {stripe}, {count} clients, checksums {checksums:?}"
        ));
        let first = Partition::embed(&options).expect("a partition in this process");
        first.create_dir("dir").unwrap();
        let mut clients = vec![first];
        while clients.len() < count {
            let name = format!("application {}", clients.len());
            clients.push(clients[0].on_behalf_of(Application::new(&name, 2)));
        }
        let (handles, files, names) = (Vec::new(), Vec::new(), BTreeMap::new());
        HistoryFixture { chance, trace, stripe, servers, clients, handles, files, names }
    }

    fn step(&mut self) {
        if self.handles.is_empty() {
            return self.open();
        }
        match self.chance.below(100) {
            0..35 => self.write(),
            35..65 => self.read(),
            65..70 => self.set_len(),
            70..77 => self.open(),
            77..83 => self.close(),
            83..86 => self.sync(),
            86..91 => self.look(),
            91..94 => self.unlink(),
            94..97 => self.rename(),
            _ => self.whole(),
        }
    }

    fn pick(&mut self) -> usize {
        self.chance.index(self.handles.len())
    }

    fn client(&mut self) -> usize {
        self.chance.index(self.clients.len())
    }

    /// An offset biased to block boundaries, below `end`.
    fn offset(&mut self, end: u64) -> u64 {
        let any = self.chance.below(end);
        match self.chance.below(4) {
            0 => any / self.stripe * self.stripe,
            1 => (any / self.stripe * self.stripe).saturating_sub(1 + self.chance.below(8)),
            2 => 0,
            _ => any,
        }
    }

    fn length(&mut self) -> u64 {
        let stripe = self.stripe;
        let most = match self.chance.below(6) {
            0 => 16,
            1 => 5000,
            2 => stripe + 1,
            3 => return stripe,
            4 => stripe * 3,
            _ => 400 << 10,
        };
        1 + self.chance.below(most)
    }

    fn write(&mut self) {
        let at = self.pick();
        let offset = self.offset(FILE_BYTES_MAX - 1);
        let bytes = self.length().min(FILE_BYTES_MAX - offset);
        let data = pattern(usize::try_from(bytes).unwrap(), self.chance.next_u64());
        let way = self.chance.below(8);
        let TestHandle { client, file, handle } = &self.handles[at];
        self.trace.step(format!("client {client} writes {bytes} at {offset} of file {file}, way {way}"));
        match way {
            0 => {
                let (head, tail) = data.split_at(data.len() / 3);
                let parts = [std::io::IoSlice::new(head), std::io::IoSlice::new(tail)];
                handle.write_vectored_at(offset, &parts).unwrap();
            }
            1 => drop(handle.start_write_at(offset, data.clone()).unwrap().wait().unwrap()),
            _ => handle.write_at(offset, &data).unwrap(),
        }
        let contents = &mut self.files[*file];
        let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset + bytes).unwrap());
        contents.resize(contents.len().max(end), 0);
        contents[start..end].copy_from_slice(&data);
        if self.chance.once_in(3) {
            self.check(at, offset, bytes + 10);
        }
    }

    fn read(&mut self) {
        let at = self.pick();
        let offset = self.offset(FILE_BYTES_MAX);
        let bytes = self.length();
        self.check(at, offset, bytes);
        if self.chance.once_in(3) {
            // A sequential reader: triggers read-ahead.
            for n in 1..4 {
                self.check(at, offset + n * bytes, bytes);
            }
        }
    }

    fn check(&mut self, at: usize, offset: u64, bytes: u64) {
        let way = self.chance.below(8);
        let TestHandle { client, file, handle } = &self.handles[at];
        self.trace.step(format!("client {client} reads {bytes} at {offset} of file {file}, way {way}"));
        let contents = &self.files[*file];
        let place = |at: u64| usize::try_from(at).unwrap().min(contents.len());
        let expected = &contents[place(offset)..place(offset + bytes)];
        let mut found = vec![0xee; usize::try_from(bytes).unwrap()];
        match way {
            0 => found = handle.start_read_at(offset, found).unwrap().wait().unwrap(),
            1 => {
                let (head, tail) = found.split_at_mut(usize::try_from(bytes / 3).unwrap());
                let mut parts = [std::io::IoSliceMut::new(head), std::io::IoSliceMut::new(tail)];
                let count = handle.read_vectored_at(offset, &mut parts).unwrap();
                found.truncate(count);
            }
            _ => {
                let count = handle.read_at(offset, &mut found).unwrap();
                found.truncate(count);
            }
        }
        if let Some(what) = difference(expected, &found) {
            panic!("{bytes} bytes at {offset} of file {file} read by client {client}: {what}");
        }
    }

    fn whole(&mut self) {
        let at = self.pick();
        self.check(at, 0, FILE_BYTES_MAX + 1);
        let TestHandle { file, handle, .. } = &self.handles[at];
        assert_eq!(handle.len().unwrap(), self.files[*file].len() as u64, "length of file {file}");
    }

    fn set_len(&mut self) {
        let at = self.pick();
        let bytes = if self.chance.once_in(3) { 0 } else { self.offset(FILE_BYTES_MAX) };
        let TestHandle { client, file, handle } = &self.handles[at];
        self.trace.step(format!("client {client} sets the length of file {file} to {bytes}"));
        handle.set_len(bytes).unwrap();
        self.files[*file].resize(usize::try_from(bytes).unwrap(), 0);
    }

    fn open(&mut self) {
        if HANDLES_MAX <= self.handles.len() {
            return self.close();
        }
        let (client, name) = (self.client(), self.chance.pick(&NAMES));
        let (create, truncate) = (!self.chance.once_in(4), self.chance.once_in(4));
        let new = self.chance.once_in(8);
        self.trace
            .step(format!("client {client} opens {name}, create {create} truncate {truncate} new {new}"));
        let mut options = self.clients[client].options().read(true).write(true);
        options = options.create(create).truncate(truncate);
        if new {
            options = options.create_new(true);
        }
        if self.chance.once_in(3) {
            let count = 1 + self.chance.index(usize::from(self.servers));
            let first = self.chance.index(usize::from(self.servers));
            options = options.stripe_count(u16::try_from(count).unwrap());
            options = options.first_server(u16::try_from(first).unwrap());
        }
        let opened = options.open(name);
        let file = match (self.names.get(name), create || new) {
            (Some(_), _) if new => return assert_eq!(opened.unwrap_err().code(), Code::Exists),
            (None, false) => return assert_eq!(opened.unwrap_err().code(), Code::NotFound),
            (Some(file), _) => *file,
            (None, true) => {
                self.files.push(Vec::new());
                self.names.insert(name, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        if truncate {
            self.files[file].clear();
        }
        self.trace.step(format!("  it is file {file}"));
        self.handles.push(TestHandle { client, file, handle: opened.unwrap() });
    }

    fn close(&mut self) {
        let at = self.pick();
        let TestHandle { client, file, handle } = self.handles.swap_remove(at);
        self.trace.step(format!("client {client} closes file {file}"));
        handle.close().unwrap();
    }

    fn sync(&mut self) {
        let at = self.pick();
        let TestHandle { client, file, handle } = &self.handles[at];
        self.trace.step(format!("client {client} syncs file {file}"));
        handle.sync().unwrap();
    }

    /// `stat` and listing show exact lengths, with any writer.
    fn look(&mut self) {
        let (client, name) = (self.client(), self.chance.pick(&NAMES));
        self.trace.step(format!("client {client} looks at {name}"));
        let size = self.clients[client].metadata(name).map(|attr| attr.size);
        match self.names.get(name) {
            Some(file) => assert_eq!(size.unwrap(), self.files[*file].len() as u64, "size of file {file}"),
            None => assert_eq!(size.unwrap_err().code(), Code::NotFound),
        }
        let listed: Vec<(String, u64)> = self.clients[client]
            .read_dir("dir")
            .unwrap()
            .map(|entry| {
                entry.map(|entry| (String::from_utf8(entry.name).unwrap(), entry.attr.size)).unwrap()
            })
            .collect();
        let inside = self.names.iter().filter_map(|(name, file)| Some((name.strip_prefix("dir/")?, file)));
        let expected: Vec<(String, u64)> =
            inside.map(|(name, file)| (name.to_owned(), self.files[*file].len() as u64)).collect();
        assert_eq!(listed, expected);
    }

    fn unlink(&mut self) {
        let (client, name) = (self.client(), self.chance.pick(&NAMES));
        self.trace.step(format!("client {client} removes {name}"));
        let removed = self.clients[client].remove_file(name);
        match self.names.remove(name) {
            Some(_) => removed.unwrap(),
            None => assert_eq!(removed.unwrap_err().code(), Code::NotFound),
        }
    }

    fn rename(&mut self) {
        let client = self.client();
        let (from, to) = (self.chance.pick(&NAMES), self.chance.pick(&NAMES));
        self.trace.step(format!("client {client} renames {from} to {to}"));
        let renamed = self.clients[client].rename(from, to);
        match self.names.remove(from) {
            Some(file) => {
                renamed.unwrap();
                self.names.insert(to, file);
            }
            None => assert_eq!(renamed.unwrap_err().code(), Code::NotFound),
        }
    }

    /// All handles are closed; a later client sees all data.
    fn end(mut self) {
        for at in 0..self.handles.len() {
            self.check(at, 0, FILE_BYTES_MAX + 1);
        }
        while !self.handles.is_empty() {
            self.close();
        }
        let late = self.clients[0].another_client();
        for (name, file) in &self.names {
            self.trace.step(format!("a late client reads {name}, file {file}"));
            let handle = late.open(name).unwrap();
            let mut found = vec![0xee; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
            let count = handle.read_at(0, &mut found).unwrap();
            if let Some(what) = difference(&self.files[*file], &found[..count]) {
                panic!("{name}, file {file}, read by a late client: {what}");
            }
        }
    }
}
