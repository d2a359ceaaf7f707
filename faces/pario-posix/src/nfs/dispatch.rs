//! One record: decoded, carried out, answered.

use super::exported::Exported;
use super::replies::{CallKey, CallOrigin, KnownCall};
use super::rpc::{self, Call, CallRefusal, Credential};
use super::xdr::{MalformedXdr, XdrReader, XdrWriter};
use super::{NFS_PROTOCOL, creating, data, listing, mounting, names, objects};

const NFS_PROGRAM: u32 = 100_003;
const MOUNT_PROGRAM: u32 = 100_005;

/// SETATTR, and the procedures that change names: carried out twice they have another result.
fn changes_once(call: &Call<'_>) -> bool {
    call.program == NFS_PROGRAM && matches!(call.procedure, 2 | 8..=15)
}

/// The reply to a record; `None`: it is not a call, or it is carried out for another connection of the client, and the connection ends.
pub(super) fn answer(export: &Exported, origin: CallOrigin, record: &[u8]) -> Option<Vec<u8>> {
    let call = match rpc::decode_call(record) {
        Ok(call) => call,
        Err(reply) => return reply,
    };
    if !changes_once(&call) {
        return Some(reply_to(export, call));
    }
    let key = CallKey::new(origin, record);
    match export.replies.begin(key, origin) {
        KnownCall::New => {}
        KnownCall::UnderWay => return None,
        KnownCall::Answered(reply) => return Some(reply),
    }
    let reply = reply_to(export, call);
    export.replies.end(key, &reply);
    Some(reply)
}

fn reply_to(export: &Exported, call: Call<'_>) -> Vec<u8> {
    let number = call.number;
    let mut out = rpc::begin_reply(number);
    match carry_out(export, call, &mut out) {
        Ok(()) => rpc::end_reply(out),
        Err(refusal) => {
            tracing::debug!(?refusal, number, "a call is refused");
            rpc::refuse(number, refusal)
        }
    }
}

fn carry_out(export: &Exported, call: Call<'_>, out: &mut XdrWriter) -> Result<(), CallRefusal> {
    if !matches!(call.program, NFS_PROGRAM | MOUNT_PROGRAM) {
        return Err(CallRefusal::UnknownProgram);
    }
    if call.version != NFS_PROTOCOL {
        return Err(CallRefusal::Version);
    }
    // NULL needs no identity.
    if call.procedure == 0 {
        return Ok(());
    }
    let user = call.credential?;
    let user = if export.options.root_squash { user.squashed() } else { user };
    let mut args = call.args;
    if call.program == MOUNT_PROGRAM {
        return mounting::serve(export, call.procedure, &user, &mut args, out);
    }
    serve(export, call.procedure, &user, &mut args, out)
}

/// Carries out a procedure of NFS.
fn serve(
    export: &Exported,
    procedure: u32,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Result<(), CallRefusal> {
    let done = match procedure {
        1 => objects::get_attributes(export, args, out),
        2 => objects::set_attributes(export, user, args, out),
        3 => names::lookup(export, user, args, out),
        4 => objects::access(export, user, args, out),
        5 => objects::read_link(export, args, out),
        6 => data::read(export, user, args, out),
        7 => data::write(export, user, args, out),
        8 => creating::create(export, user, args, out),
        9 => creating::make_dir(export, user, args, out),
        10 => creating::symlink(export, user, args, out),
        11 => creating::make_node(export, user, args, out),
        12 => names::remove(export, user, args, out),
        13 => names::remove_dir(export, user, args, out),
        14 => names::rename(export, user, args, out),
        15 => creating::link(export, user, args, out),
        16 => listing::read_dir(export, user, args, out),
        17 => listing::read_dir_plus(export, user, args, out),
        18 => objects::file_system_space(export, args, out),
        19 => objects::file_system_limits(export, args, out),
        20 => objects::path_limits(export, args, out),
        21 => data::commit(export, user, args, out),
        _ => return Err(CallRefusal::UnknownProcedure),
    };
    done.map_err(|MalformedXdr| CallRefusal::Garbage)
}
