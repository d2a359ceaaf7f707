//! Random teams against a byte array: sizes, nests, functions, lengths, hints and settings that change from call to call.
//!
//! `PARIO_SEED` repeats a history; `PARIO_HISTORIES` sets their number.

use std::io::{IoSlice, IoSliceMut};

use pario::team::{Arguments, CommonTarget, Hint, Position, TeamCode, TeamFile, TeamMember, TeamPlace};

use super::common::{Place, at_positions, pattern};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn pick(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn length(&mut self) -> usize {
        let limit = [1, 100, 5000, 40_000, 200_000][usize::try_from(self.pick(5)).expect("as chosen")];
        usize::try_from(self.pick(limit)).expect("as chosen")
    }

    /// Threads of a team, possibly nested, at most eight.
    fn team(&mut self) -> Vec<Position> {
        if self.pick(3) != 0 {
            let size = u32::try_from(1 + self.pick(8)).expect("as chosen");
            return (0..size).map(|number| Position::of(number, size)).collect();
        }
        let outer = u32::try_from(1 + self.pick(3)).expect("as chosen");
        let inner = |place: Position, random: &mut Random| -> Vec<Position> {
            let size = u32::try_from(random.pick(4)).expect("as chosen").min(2);
            match size {
                0 => vec![place],
                _ => (0..size).map(|number| place.inner(number, size).expect("as chosen")).collect(),
            }
        };
        (0..outer).flat_map(|number| inner(Position::of(number, outer), self)).collect()
    }
}

/// What one member does in one call.
#[derive(Clone, Debug)]
struct Part {
    pieces: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum Step {
    Write { parts: Vec<Part>, at_pointer: bool },
    Read { lengths: Vec<usize>, offsets: Option<Vec<u64>> },
    WriteCommon { bytes: Vec<u8>, offset: Option<u64> },
    ReadCommon { length: usize, offset: Option<u64>, owner: usize },
    Seek(u64),
    Sync,
}

struct Model {
    bytes: Vec<u8>,
    pointer: u64,
}

impl Model {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).expect("as chosen");
        if !bytes.is_empty() && self.bytes.len() < start + bytes.len() {
            self.bytes.resize(start + bytes.len(), 0);
        }
        if !bytes.is_empty() {
            self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn read(&self, offset: u64, length: usize) -> &[u8] {
        let start = usize::try_from(offset).expect("as chosen").min(self.bytes.len());
        &self.bytes[start..(start + length).min(self.bytes.len())]
    }
}

fn step(random: &mut Random, members: usize, model: &Model) -> Step {
    let end = model.bytes.len() as u64 + 1000;
    match random.pick(10) {
        0 => Step::Seek(random.pick(end)),
        1 => Step::Sync,
        2 => {
            let offset = (random.pick(2) == 0).then(|| random.pick(end));
            let (seed, length) = (random.pick(1000), random.length());
            Step::WriteCommon { bytes: pattern(seed, length), offset }
        }
        3 => Step::ReadCommon {
            length: random.length(),
            offset: (random.pick(2) == 0).then(|| random.pick(end)),
            owner: usize::try_from(random.pick(members as u64)).expect("as chosen"),
        },
        4..=5 => {
            let lengths = (0..members).map(|_| random.length()).collect();
            let offsets = (random.pick(2) == 0).then(|| (0..members).map(|_| random.pick(end)).collect());
            Step::Read { lengths, offsets }
        }
        _ => {
            let at_pointer = random.pick(2) == 0;
            // Offsets of one call do not overlap: the result would not be defined.
            let mut at = random.pick(end);
            let mut part = |random: &mut Random| {
                let count = 1 + random.pick(3);
                let mut piece = || {
                    at += if random.pick(2) == 0 { random.pick(3000) } else { 0 };
                    let (seed, length) = (random.pick(1000), random.length());
                    let piece = (at, pattern(seed, length));
                    at += length as u64;
                    piece
                };
                Part { pieces: (0..count).map(|_| piece()).collect() }
            };
            let mut parts: Vec<Part> = (0..members).map(|_| part(random)).collect();
            if random.pick(2) == 0 {
                parts.reverse();
            }
            Step::Write { parts, at_pointer }
        }
    }
}

/// One member's call; checked against what the model says.
fn act(step: &Step, number: usize, member: &TeamMember, hint: Hint, model: &Model) {
    match step {
        Step::Seek(offset) => member.seek_all(*offset).expect("as chosen"),
        Step::Sync => member.sync_all().expect("as chosen"),
        Step::WriteCommon { bytes, offset: None } => {
            assert_eq!(member.write_com_all(bytes, hint).expect("as chosen"), bytes.len() as u64)
        }
        Step::WriteCommon { bytes, offset: Some(at) } => {
            assert_eq!(member.write_com_at_all(*at, bytes, hint).expect("as chosen"), bytes.len() as u64)
        }
        Step::Write { parts, at_pointer } => {
            let pieces = &parts[number].pieces;
            let list: Vec<IoSlice<'_>> = pieces.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
            let offsets: Vec<u64> = pieces.iter().map(|(offset, _)| *offset).collect();
            let place = if *at_pointer { TeamPlace::Pointer } else { TeamPlace::Each(&offsets) };
            let written = member.write_list(&list, place, Arguments::Different, hint).expect("as chosen");
            assert_eq!(written, pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        }
        Step::ReadCommon { length, offset, owner } => {
            let mut memory = vec![0; *length];
            let target = match number == *owner {
                true => CommonTarget::Memory(&mut memory),
                false => CommonTarget::Length(*length as u64),
            };
            let result = match offset {
                Some(at) => member.read_com_at_all(*at, target, hint),
                None => member.read_com_all(target, hint),
            };
            let expected = model.read(offset.unwrap_or(model.pointer), *length);
            check_read(result, expected.len(), expected.len() < *length);
            assert!(number != *owner || memory[..expected.len()] == *expected);
        }
        Step::Read { lengths, offsets } => {
            let mut memory = vec![0; lengths[number]];
            let (head, tail) = memory.split_at_mut(lengths[number] / 3);
            let mut list = [IoSliceMut::new(head), IoSliceMut::new(tail)];
            let before: usize = lengths[..number].iter().sum();
            let (place, start) = match offsets {
                Some(offsets) => (TeamPlace::At(offsets[number]), offsets[number]),
                None => (TeamPlace::Pointer, model.pointer + before as u64),
            };
            let result = member.read_list(&mut list, place, hint);
            let expected = model.read(start, lengths[number]);
            let is_short = (0..lengths.len()).any(|other| {
                let before: usize = lengths[..other].iter().sum();
                let start = offsets.as_ref().map_or(model.pointer + before as u64, |offsets| offsets[other]);
                model.read(start, lengths[other]).len() < lengths[other]
            });
            check_read(result, expected.len(), is_short);
            assert!(memory[..expected.len()] == *expected, "bytes of thread {number}");
        }
    }
}

fn check_read(result: pario::team::TeamResult<u64>, count: usize, is_short: bool) {
    match result {
        Ok(got) => assert_eq!((got, is_short), (count as u64, false)),
        Err(error) => {
            assert_eq!(
                (error.code(), error.count(), is_short),
                (TeamCode::EndOfFile, count as u64, true),
                "{error}"
            );
        }
    }
}

fn apply(step: &Step, model: &mut Model) {
    match step {
        Step::Seek(offset) => model.pointer = *offset,
        Step::Sync => {}
        Step::WriteCommon { bytes, offset } => {
            model.write(offset.unwrap_or(model.pointer), bytes);
            model.pointer += if offset.is_none() { bytes.len() as u64 } else { 0 };
        }
        Step::Write { parts, at_pointer } => {
            for (offset, bytes) in parts.iter().flat_map(|part| &part.pieces) {
                model.write(if *at_pointer { model.pointer } else { *offset }, bytes);
                model.pointer += if *at_pointer { bytes.len() as u64 } else { 0 };
            }
        }
        Step::ReadCommon { length, offset, .. } => {
            let read = model.read(model.pointer, *length).len() as u64;
            model.pointer += if offset.is_none() { read } else { 0 };
        }
        Step::Read { lengths, offsets } => {
            let read = model.read(model.pointer, lengths.iter().sum()).len() as u64;
            model.pointer += if offsets.is_none() { read } else { 0 };
        }
    }
}

fn settings(random: &mut Random) -> String {
    let mut settings = Vec::new();
    if random.pick(2) == 0 {
        settings.push(format!("saturation={}", 1 + random.pick(300_000)));
    }
    if random.pick(2) == 0 {
        settings.push(format!("active={}", 1 + random.pick(4)));
    }
    if random.pick(3) == 0 {
        settings.push("write_behind=off".to_owned());
    }
    if random.pick(3) == 0 {
        settings.push(format!("buffer={}", random.pick(50_000)));
    }
    settings.join(",")
}

fn history(seed: u64, place: &Place) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.next();
    let settings = settings(&mut random);
    let file: TeamFile = place.create(&settings);
    let mut model = Model { bytes: Vec::new(), pointer: 0 };
    for _ in 0..3 {
        let positions = random.team();
        // Several calls of one team: members may be some calls apart.
        let mut steps = Vec::new();
        let mut after = Model { bytes: model.bytes.clone(), pointer: model.pointer };
        for _ in 0..1 + random.pick(4) {
            let step = step(&mut random, positions.len(), &after);
            let before = Model { bytes: after.bytes.clone(), pointer: after.pointer };
            apply(&step, &mut after);
            let hint = [Hint::Unknown, Hint::Contiguous, Hint::NotContiguous]
                [usize::try_from(random.pick(3)).expect("as chosen")];
            steps.push((step, hint, before));
        }
        let slow = random.pick(positions.len() as u64 * 2);
        at_positions(&file, &positions, |number, member| {
            for (step, hint, before) in &steps {
                if number as u64 == slow {
                    std::thread::yield_now();
                }
                act(step, number, &member, *hint, before);
            }
        });
        model = after;
        assert_eq!(file.tell(), model.pointer, "pointer, seed {seed}, {settings}");
    }
    file.close().expect("as chosen");
    assert!(place.content() == model.bytes, "content, seed {seed}, {settings}");
}

#[test]
fn any_team_does_what_a_byte_array_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let histories = number("PARIO_HISTORIES").unwrap_or(300);
    let seeds = number("PARIO_SEED").map_or(1..histories + 1, |seed| seed..seed + 1);
    let places = Place::all();
    for seed in seeds {
        for place in &places {
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| history(seed, place)));
            assert!(ran.is_ok(), "repeat with PARIO_SEED={seed}");
        }
    }
}
