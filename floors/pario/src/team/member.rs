//! [`TeamMember`]: one thread of a team, and the collective calls.

use std::io::{IoSlice, IoSliceMut};

use pario_sys::lent::{LentMemory, TargetList};

use super::call::{Arguments, Hint, TeamCall, TeamFunction, TeamPlace};
use super::core::MemberEnd;
use super::error::{TeamCode, TeamError, TeamResult};
use super::file::{CommonTarget, TeamFile};
use super::position::Position;
use super::round::Caller;

/// One thread of a team. Every method but [`TeamMember::tell`] is collective: all members call it, and get the same result.
#[derive(Debug)]
pub struct TeamMember {
    file: TeamFile,
    caller: Result<Caller, TeamError>,
}

impl TeamMember {
    pub(super) fn new(file: TeamFile, caller: Result<Caller, TeamError>) -> TeamMember {
        TeamMember { file, caller }
    }

    /// The handle.
    #[must_use]
    pub fn file(&self) -> &TeamFile {
        &self.file
    }

    /// The position below the place where the file was opened.
    #[must_use]
    pub fn position(&self) -> Position {
        self.caller.as_ref().map_or(Position::ALONE, |caller| caller.position)
    }

    /// Writes this member's bytes at the pointer, behind those of lower members; the pointer moves by what all wrote.
    ///
    /// # Errors
    /// The first error of any member; see [`TeamError`].
    pub fn write_all(&self, bytes: &[u8], hint: Hint) -> TeamResult<u64> {
        self.write_list(&[IoSlice::new(bytes)], TeamPlace::Pointer, Arguments::Different, hint)
    }

    /// Writes this member's bytes at an offset of its own.
    ///
    /// # Errors
    /// As [`TeamMember::write_all`].
    pub fn write_at_all(&self, offset: u64, bytes: &[u8], hint: Hint) -> TeamResult<u64> {
        self.write_list(&[IoSlice::new(bytes)], TeamPlace::At(offset), Arguments::Different, hint)
    }

    /// Writes one buffer, given by all members, at the pointer; the members share the work.
    ///
    /// # Errors
    /// As [`TeamMember::write_all`].
    pub fn write_com_all(&self, bytes: &[u8], hint: Hint) -> TeamResult<u64> {
        self.write_list(&[IoSlice::new(bytes)], TeamPlace::Pointer, Arguments::Common, hint)
    }

    /// Writes one buffer, given by all members, at an offset.
    ///
    /// # Errors
    /// As [`TeamMember::write_all`].
    pub fn write_com_at_all(&self, offset: u64, bytes: &[u8], hint: Hint) -> TeamResult<u64> {
        self.write_list(&[IoSlice::new(bytes)], TeamPlace::At(offset), Arguments::Common, hint)
    }

    /// Writes a list of buffers: all forms of `write_…_all`.
    ///
    /// # Errors
    /// As [`TeamMember::write_all`].
    pub fn write_list(
        &self,
        buffers: &[IoSlice<'_>],
        place: TeamPlace<'_>,
        arguments: Arguments,
        hint: Hint,
    ) -> TeamResult<u64> {
        self.call(&TeamCall::write(buffers, place, arguments, hint))
    }

    /// Reads into this member's memory from the pointer on, behind what lower members read. At the end of the file all members get
    /// [`TeamCode::EndOfFile`], each with its count, and the pointer is at the end.
    ///
    /// # Errors
    /// As [`TeamMember::write_all`].
    pub fn read_all(&self, target: &mut [u8], hint: Hint) -> TeamResult<u64> {
        self.read_list(&mut [IoSliceMut::new(target)], TeamPlace::Pointer, hint)
    }

    /// Reads into this member's memory from an offset of its own on.
    ///
    /// # Errors
    /// As [`TeamMember::read_all`].
    pub fn read_at_all(&self, offset: u64, target: &mut [u8], hint: Hint) -> TeamResult<u64> {
        self.read_list(&mut [IoSliceMut::new(target)], TeamPlace::At(offset), hint)
    }

    /// Reads into a list of buffers.
    ///
    /// # Errors
    /// As [`TeamMember::read_all`].
    pub fn read_list(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        place: TeamPlace<'_>,
        hint: Hint,
    ) -> TeamResult<u64> {
        self.read_targets(TargetList::new(buffers), place, Arguments::Different, hint)
    }

    /// Reads into one memory from the pointer on; the members share the work.
    ///
    /// # Errors
    /// As [`TeamMember::read_all`]; the count is that of the whole call.
    pub fn read_com_all(&self, target: CommonTarget<'_>, hint: Hint) -> TeamResult<u64> {
        self.read_common(target, TeamPlace::Pointer, hint)
    }

    /// Reads into one memory from an offset on.
    ///
    /// # Errors
    /// As [`TeamMember::read_com_all`].
    pub fn read_com_at_all(&self, offset: u64, target: CommonTarget<'_>, hint: Hint) -> TeamResult<u64> {
        self.read_common(target, TeamPlace::At(offset), hint)
    }

    /// All forms of `read_…_all`, for memory that is described by addresses. Of a common call the memory of one member is used.
    ///
    /// # Errors
    /// As [`TeamMember::read_all`].
    pub fn read_targets(
        &self,
        targets: TargetList<'_>,
        place: TeamPlace<'_>,
        arguments: Arguments,
        hint: Hint,
    ) -> TeamResult<u64> {
        self.call(&TeamCall::read(targets, place, arguments, hint))
    }

    fn read_common(&self, target: CommonTarget<'_>, place: TeamPlace<'_>, hint: Hint) -> TeamResult<u64> {
        match target {
            CommonTarget::Memory(memory) => {
                let mut list = [IoSliceMut::new(memory)];
                self.read_targets(TargetList::new(&mut list), place, Arguments::Common, hint)
            }
            CommonTarget::Length(bytes) => {
                let mut call = TeamCall::read(TargetList::new(&mut []), place, Arguments::Common, hint);
                (call.bytes, call.memory) = (bytes, LentMemory::Nothing);
                self.call(&call)
            }
        }
    }

    /// Takes part in a write or read with arguments that the caller refuses: all members get the error and nothing is transferred.
    ///
    /// # Errors
    /// Always `refusal`, or an earlier error of the call.
    pub fn refuse(&self, kind: RefusedCall, refusal: TeamError) -> TeamResult<u64> {
        let RefusedCall { is_write, arguments, at_pointer, hint } = kind;
        let function = match is_write {
            true => TeamFunction::Write { arguments, at_pointer },
            false => TeamFunction::Read { arguments, at_pointer },
        };
        self.call(&TeamCall { hint, refusal: Some(refusal), ..TeamCall::plain(function) })
    }

    /// Sets the pointer; all members give the same offset.
    ///
    /// # Errors
    /// As [`TeamMember::write_all`].
    pub fn seek_all(&self, offset: u64) -> TeamResult<()> {
        let refusal = super::call::check_end(offset, 0).err();
        let call = TeamCall { seek_to: offset, refusal, ..TeamCall::plain(TeamFunction::Seek) };
        self.call(&call).map(drop)
    }

    /// The pointer behind all calls of this member that have ended; not collective.
    ///
    /// # Errors
    /// The handle is closed.
    pub fn tell(&self) -> TeamResult<u64> {
        Ok(self.file.tell())
    }

    /// Puts on stable storage what has been written, and returns errors of writes that went behind.
    ///
    /// # Errors
    /// As above.
    pub fn sync_all(&self) -> TeamResult<()> {
        self.call(&TeamCall::plain(TeamFunction::Sync)).map(drop)
    }

    /// Closes the handle for all.
    ///
    /// # Errors
    /// An error of a write that went behind; the handle is closed all the same.
    pub fn close_all(&self) -> TeamResult<()> {
        self.call(&TeamCall::plain(TeamFunction::Close)).map(drop)
    }

    /// Ends this member; a later call of the others names it.
    pub fn leave(mut self) {
        self.end(MemberEnd::Left);
    }

    pub(super) fn call(&self, call: &TeamCall<'_>) -> TeamResult<u64> {
        match &self.caller {
            Ok(caller) => self.file.core.call(caller, call),
            Err(error) => Err(error.clone()),
        }
    }

    fn end(&mut self, end: MemberEnd) {
        let Ok(caller) = self.caller else { return };
        // A member by position is made anew for each call, and is missed by none.
        if caller.set != 0 {
            self.caller = Err(TeamError::new(TeamCode::Lost, "this member has left its team"));
            self.file.core.member_ended(&caller, end);
        }
    }
}

impl Drop for TeamMember {
    fn drop(&mut self) {
        self.end(if std::thread::panicking() { MemberEnd::Panicked } else { MemberEnd::Dropped });
    }
}

/// A call with refused arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedCall {
    /// Whether it is a write.
    pub is_write: bool,
    /// Whether it is a `_com_` call.
    pub arguments: Arguments,
    /// Whether it is a call without an offset.
    pub at_pointer: bool,
    /// Its hint.
    pub hint: Hint,
}
