//! Remote procedure calls (RFC 5531): heads of calls and replies, records on a connection, credentials.
//!
//! ```text
//!  record: mark (last bit, length) ─► fragment, … ─► call: number, program, version, procedure, credential, verifier, arguments
//! ```
//! Never: reserves memory for bytes that a record announces but has not sent. Always: a reply has the number of its call.

use std::io::{self, Read};

use super::xdr::{Decoded, MalformedXdr, XdrReader, XdrWriter};

/// The largest record: a write of 1 MiB with its heads.
pub(super) const RECORD_BYTES_MAX: usize = super::DATA_BYTES_MAX + 4096;
/// Fragments of one record.
const FRAGMENTS_MAX: usize = 64;
/// Memory is reserved in steps of this.
const READ_STEP: usize = 64 << 10;
const LAST_FRAGMENT: u32 = 1 << 31;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_PROTOCOL: u32 = 2;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// Limits of RFC 5531.
const AUTH_BYTES_MAX: usize = 400;
const MACHINE_BYTES_MAX: usize = 255;
const GROUPS_MAX: usize = 16;
/// User and group of a caller without an identity.
const ANONYMOUS: u32 = 65_534;

/// The user that a client claims to act for. NFSv3 proves nothing of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Credential {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Further groups.
    pub(super) groups: Vec<u32>,
}

impl Credential {
    fn anonymous() -> Credential {
        Credential { uid: ANONYMOUS, gid: ANONYMOUS, groups: Vec::new() }
    }

    /// The same without the rights of the superuser.
    pub(super) fn squashed(self) -> Credential {
        let squash = |id| if id == 0 { ANONYMOUS } else { id };
        if self.uid == 0 {
            return Credential::anonymous();
        }
        Credential {
            uid: self.uid,
            gid: squash(self.gid),
            groups: self.groups.into_iter().map(squash).collect(),
        }
    }

    /// Whether it has a group.
    pub(super) fn has_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Why a call is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallRefusal {
    /// RPC of another version.
    RpcVersion,
    /// A credential of a kind that is not supported, or of an address that is not allowed.
    Rejected,
    /// A malformed credential.
    BadCredential,
    UnknownProgram,
    /// Only version 3 is served.
    Version,
    UnknownProcedure,
    Garbage,
}

/// A decoded call.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) number: u32,
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) credential: Result<Credential, CallRefusal>,
    pub(super) args: XdrReader<'a>,
}

/// Decodes the head of a call. `Err(None)`: the message is not a call, and its connection ends; `Err(Some)`: the reply to send.
pub(super) fn decode_call(record: &[u8]) -> Result<Call<'_>, Option<Vec<u8>>> {
    let mut fields = XdrReader::new(record);
    let (Ok(number), Ok(CALL), Ok(rpc)) = (fields.u32(), fields.u32(), fields.u32()) else {
        return Err(None);
    };
    if rpc != RPC_PROTOCOL {
        return Err(Some(refuse(number, CallRefusal::RpcVersion)));
    }
    let head = || -> Decoded<Call<'_>> {
        let (program, version, procedure) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (flavor, body) = (fields.u32()?, fields.opaque(AUTH_BYTES_MAX)?);
        let (_flavor, _verifier) = (fields.u32()?, fields.opaque(AUTH_BYTES_MAX)?);
        let credential = match flavor {
            AUTH_NONE => Ok(Credential::anonymous()),
            AUTH_SYS => credential(body).map_err(|MalformedXdr| CallRefusal::BadCredential),
            _ => Err(CallRefusal::Rejected),
        };
        Ok(Call { number, program, version, procedure, credential, args: fields })
    };
    head().map_err(|MalformedXdr| None)
}

fn credential(body: &[u8]) -> Decoded<Credential> {
    let mut fields = XdrReader::new(body);
    let (_stamp, _machine) = (fields.u32()?, fields.opaque(MACHINE_BYTES_MAX)?);
    let (uid, gid, count) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let count = usize::try_from(count).map_err(|_| MalformedXdr)?;
    if GROUPS_MAX < count {
        return Err(MalformedXdr);
    }
    let groups = (0..count).map(|_| fields.u32()).collect::<Decoded<Vec<u32>>>()?;
    Ok(Credential { uid, gid, groups })
}

/// A reply that begins with the head of success; results follow.
pub(super) fn begin_reply(number: u32) -> XdrWriter {
    let mut reply = XdrWriter::default();
    // The record's mark comes last.
    for field in [0, number, REPLY, ACCEPTED, AUTH_NONE, 0, 0] {
        reply.u32(field);
    }
    reply
}

/// The bytes of a complete reply, with the record's mark.
pub(super) fn end_reply(reply: XdrWriter) -> Vec<u8> {
    let mut bytes = reply.into_bytes();
    let length = u32::try_from(bytes.len() - 4).unwrap_or(0);
    bytes[..4].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
    bytes
}

/// The reply to a call that is not carried out.
pub(super) fn refuse(number: u32, refusal: CallRefusal) -> Vec<u8> {
    let (state, rest): (u32, &[u32]) = match refusal {
        CallRefusal::RpcVersion => (DENIED, &[0, RPC_PROTOCOL, RPC_PROTOCOL]),
        CallRefusal::BadCredential => (DENIED, &[1, 1]),
        CallRefusal::Rejected => (DENIED, &[1, 2]),
        CallRefusal::UnknownProgram => (ACCEPTED, &[AUTH_NONE, 0, 1]),
        CallRefusal::Version => (ACCEPTED, &[AUTH_NONE, 0, 2, super::NFS_PROTOCOL, super::NFS_PROTOCOL]),
        CallRefusal::UnknownProcedure => (ACCEPTED, &[AUTH_NONE, 0, 3]),
        CallRefusal::Garbage => (ACCEPTED, &[AUTH_NONE, 0, 4]),
    };
    let mut reply = XdrWriter::default();
    for field in [0, number, REPLY, state].iter().chain(rest) {
        reply.u32(*field);
    }
    end_reply(reply)
}

/// Reads one record into `record`. False: the connection has ended between two records.
pub(super) fn read_record(source: &mut impl Read, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
    for fragment in 0..FRAGMENTS_MAX {
        let mut mark = [0; 4];
        match source.read_exact(&mut mark) {
            Ok(()) => {}
            Err(error) if fragment == 0 && error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        let mark = u32::from_be_bytes(mark);
        let length = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        if RECORD_BYTES_MAX - record.len() < length {
            let text = format!("a record of more than {RECORD_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        read_fragment(source, record, length)?;
        if mark & LAST_FRAGMENT != 0 {
            return Ok(true);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a record of more than {FRAGMENTS_MAX} fragments"),
    ))
}

fn read_fragment(source: &mut impl Read, record: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let end = record.len() + length;
    while record.len() < end {
        let begin = record.len();
        record.resize(end.min(begin + READ_STEP), 0);
        source.read_exact(&mut record[begin..])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_put_together_from_fragments() {
        let bytes = [&[0, 0, 0, 2, 1, 2][..], &[0x80, 0, 0, 1, 3], &[0x80, 0, 0, 0]].concat();
        let (mut source, mut record) = (&bytes[..], Vec::new());
        assert!(read_record(&mut source, &mut record).unwrap());
        assert_eq!(record, [1, 2, 3]);
        assert!(read_record(&mut source, &mut record).unwrap());
        assert!(record.is_empty());
        assert!(!read_record(&mut source, &mut record).unwrap());
    }

    #[test]
    fn records_that_lie_are_refused_and_cost_no_memory() {
        let mut record = Vec::new();
        let huge = [0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(read_record(&mut &huge[..], &mut record).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let cut = [0x80, 0x0f, 0xff, 0xff, 1, 2, 3];
        assert_eq!(read_record(&mut &cut[..], &mut record).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(record.capacity() <= READ_STEP);
        let endless = [0; 4 * (FRAGMENTS_MAX + 1)];
        assert_eq!(
            read_record(&mut &endless[..], &mut record).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn the_superuser_is_squashed_and_others_stay() {
        let root = Credential { uid: 0, gid: 0, groups: vec![0, 4] };
        assert_eq!(root.squashed(), Credential::anonymous());
        let user = Credential { uid: 5, gid: 0, groups: vec![0, 4] };
        assert_eq!(user.squashed(), Credential { uid: 5, gid: ANONYMOUS, groups: vec![ANONYMOUS, 4] });
    }
}
