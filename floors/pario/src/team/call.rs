//! The arguments of one member of a collective call.
//!
//! Always: arguments that no call can have are refused before the member waits, and reach all members as one error.

use std::io::IoSlice;

use pario_core::limits::FILE_BYTES_MAX;
use pario_sys::lent::{LentMemory, TargetList};

use super::error::{TeamCode, TeamError, TeamResult};

/// What the caller knows about the parts of all members together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Hint {
    /// Each part begins where the part of the member in front ends. Checked; a false hint costs an analysis and is counted.
    Contiguous,
    /// Parts are not neighbours: each is written or read as it is.
    NotContiguous,
    /// Analysed.
    #[default]
    Unknown,
}

/// Where the parts of a member lie in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamPlace<'a> {
    /// At the pointer, behind the parts of lower members.
    Pointer,
    /// One part, or the buffers of a list one after the other, from this offset on.
    At(u64),
    /// Each buffer of a list at an offset of its own.
    Each(&'a [u64]),
}

/// Whether members bring different parts, or all the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arguments {
    /// Each member has its own memory, lengths and offsets.
    Different,
    /// All members give the same memory, lengths and offsets: the members are lent to one access.
    Common,
}

/// The function that a member calls; all members of a call must call the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum TeamFunction {
    Write { arguments: Arguments, at_pointer: bool },
    Read { arguments: Arguments, at_pointer: bool },
    Seek,
    Sync,
    Close,
}

impl TeamFunction {
    pub(super) fn name(self) -> &'static str {
        match self {
            TeamFunction::Write { arguments: Arguments::Different, at_pointer: true } => "write_all",
            TeamFunction::Write { arguments: Arguments::Different, at_pointer: false } => "write_at_all",
            TeamFunction::Write { arguments: Arguments::Common, at_pointer: true } => "write_com_all",
            TeamFunction::Write { arguments: Arguments::Common, at_pointer: false } => "write_com_at_all",
            TeamFunction::Read { arguments: Arguments::Different, at_pointer: true } => "read_all",
            TeamFunction::Read { arguments: Arguments::Different, at_pointer: false } => "read_at_all",
            TeamFunction::Read { arguments: Arguments::Common, at_pointer: true } => "read_com_all",
            TeamFunction::Read { arguments: Arguments::Common, at_pointer: false } => "read_com_at_all",
            TeamFunction::Seek => "seek_all",
            TeamFunction::Sync => "sync_all",
            TeamFunction::Close => "close_all",
        }
    }

    pub(super) fn is_write(self) -> bool {
        matches!(self, TeamFunction::Write { .. })
    }

    pub(super) fn is_read(self) -> bool {
        matches!(self, TeamFunction::Read { .. })
    }

    pub(super) fn is_common(self) -> bool {
        let arguments = |arguments| arguments == Arguments::Common;
        matches!(self, TeamFunction::Write { arguments: a, .. } | TeamFunction::Read { arguments: a, .. } if arguments(a))
    }

    pub(super) fn is_at_pointer(self) -> bool {
        matches!(
            self,
            TeamFunction::Write { at_pointer: true, .. } | TeamFunction::Read { at_pointer: true, .. }
        )
    }
}

/// One member's arguments, checked.
#[derive(Debug)]
pub(super) struct TeamCall<'a> {
    pub(super) function: TeamFunction,
    pub(super) hint: Hint,
    pub(super) place: TeamPlace<'a>,
    pub(super) memory: LentMemory<'a>,
    /// Bytes of all buffers.
    pub(super) bytes: u64,
    /// Arguments that are refused: told to all members.
    pub(super) refusal: Option<TeamError>,
    /// The new pointer of a seek.
    pub(super) seek_to: u64,
}

impl<'a> TeamCall<'a> {
    /// A call that moves no bytes.
    pub(super) fn plain(function: TeamFunction) -> TeamCall<'a> {
        TeamCall {
            function,
            hint: Hint::Unknown,
            place: TeamPlace::Pointer,
            memory: LentMemory::Nothing,
            bytes: 0,
            refusal: None,
            seek_to: 0,
        }
    }

    pub(super) fn write(
        sources: &'a [IoSlice<'a>],
        place: TeamPlace<'a>,
        arguments: Arguments,
        hint: Hint,
    ) -> TeamCall<'a> {
        let function = TeamFunction::Write { arguments, at_pointer: place == TeamPlace::Pointer };
        TeamCall { hint, place, memory: LentMemory::Sources(sources), ..TeamCall::plain(function) }.checked()
    }

    pub(super) fn read(
        targets: TargetList<'a>,
        place: TeamPlace<'a>,
        arguments: Arguments,
        hint: Hint,
    ) -> TeamCall<'a> {
        let function = TeamFunction::Read { arguments, at_pointer: place == TeamPlace::Pointer };
        TeamCall { hint, place, memory: LentMemory::Targets(targets), ..TeamCall::plain(function) }.checked()
    }

    fn checked(mut self) -> TeamCall<'a> {
        let buffers = self.buffers();
        let mut bytes: u64 = 0;
        for buffer in 0..buffers {
            bytes = bytes.saturating_add(self.buffer_bytes(buffer));
        }
        self.bytes = bytes;
        let result = match self.place {
            TeamPlace::Pointer => check_end(0, bytes),
            TeamPlace::At(offset) => check_end(offset, bytes),
            TeamPlace::Each(offsets) if offsets.len() != buffers => Err(TeamError::new(
                TeamCode::BadArgument,
                format!("{buffers} buffers and {} offsets", offsets.len()),
            )),
            TeamPlace::Each(offsets) => {
                (0..buffers).try_for_each(|buffer| check_end(offsets[buffer], self.buffer_bytes(buffer)))
            }
        };
        self.refusal = result.err();
        self
    }

    pub(super) fn buffers(&self) -> usize {
        match &self.memory {
            LentMemory::Nothing => 0,
            LentMemory::Sources(sources) => sources.len(),
            LentMemory::Targets(targets) => targets.len(),
        }
    }

    pub(super) fn buffer_bytes(&self, buffer: usize) -> u64 {
        match &self.memory {
            LentMemory::Nothing => 0,
            LentMemory::Sources(sources) => sources[buffer].len() as u64,
            LentMemory::Targets(targets) => targets.bytes(buffer) as u64,
        }
    }
}

/// A range must end inside of the largest file.
pub(super) fn check_end(offset: u64, bytes: u64) -> TeamResult<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        Some(_) | None => Err(TeamError::new(
            TeamCode::BadArgument,
            format!("{bytes} bytes at offset {offset} end beyond the largest file offset"),
        )),
    }
}
