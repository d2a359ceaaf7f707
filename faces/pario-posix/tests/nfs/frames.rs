//! Frames that lie, and valid frames changed at random: the export answers or ends the connection, and serves the next client.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use nfs3_client::nfs3_types::nfs3::stable_how;
use nfs3_client::nfs3_types::rpc::{call_body, fragment_header, msg_body, opaque_auth, rpc_msg};
use nfs3_client::nfs3_types::xdr_codec::Pack;

use crate::client::{ExportedPartition, credential};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// A pseudo-random sequence (xorshift).
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        for shift in [13, -7, 17] {
            self.0 ^= if 0 < shift { self.0 << shift } else { self.0 >> -shift };
        }
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

fn frame(program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let body = call_body {
        rpcvers: 2,
        prog: program,
        vers: 3,
        proc: procedure,
        cred: credential(0, 0, &[1]),
        verf: opaque_auth::default(),
    };
    let mut call = Vec::new();
    rpc_msg { xid: 7, body: msg_body::CALL(body) }.pack(&mut call).unwrap();
    call.extend_from_slice(args);
    let mut frame = Vec::new();
    fragment_header::new(u32::try_from(call.len()).unwrap(), true).pack(&mut frame).unwrap();
    [frame, call].concat()
}

/// Sends bytes and ends; returns the replies.
fn send(exported: &ExportedPartition, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(exported.export.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The export may have ended the connection already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    if let Err(error) = stream.read_to_end(&mut replies) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the export is silent");
    }
    replies
}

/// State of acceptance of a reply: 0 success, 1 no program, 2 version, 3 no procedure, 4 garbage.
fn accepted(reply: &[u8]) -> Option<u32> {
    reply.get(24..28).map(|field| u32::from_be_bytes(field.try_into().unwrap()))
}

#[test]
fn frames_that_lie_end_their_connection_only() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let null = frame(NFS, 0, &[]);
    assert_eq!(accepted(&send(&exported, &null)), Some(0));
    for lie in [
        &[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4][..],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x80, 0x0f, 0xff, 0xff, 0],
        &[0x80, 0, 0, 0],
        &[0x80, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 1],
        &[0; 4096],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"",
    ] {
        assert!(send(&exported, lie).is_empty(), "{lie:?}");
    }
    let fragments: Vec<u8> =
        null[4..].chunks(4).flat_map(|piece| [&[0, 0, 0, 4][..], piece].concat()).collect();
    let fragments = [&fragments[..], &[0x80, 0, 0, 0]].concat();
    assert_eq!(accepted(&send(&exported, &fragments)), Some(0), "a call in fragments");
    assert_eq!(accepted(&send(&exported, &frame(100_021, 1, &[]))), Some(1), "no lock manager");
    assert_eq!(accepted(&send(&exported, &frame(NFS, 22, &[]))), Some(3));
    assert_eq!(accepted(&send(&exported, &frame(MOUNT, 6, &[]))), Some(3));
    assert_eq!(accepted(&send(&exported, &frame(NFS, 1, &[0xff; 4]))), Some(4));
    let mut version = null.clone();
    version[4 + 19] = 4;
    assert_eq!(accepted(&send(&exported, &version)), Some(2), "NFSv4");
    user.create("f", 0o600).unwrap();
}

#[test]
fn a_call_that_is_sent_again_over_a_new_connection_is_carried_out_once() {
    let exported = ExportedPartition::new();
    let root = [&[0, 0, 0, 28][..], &exported.root().root.data].concat();
    let set = [0; 24];
    let make = frame(NFS, 9, &[&root[..], &[0, 0, 0, 4], b"made", &set].concat());
    let status = |reply: &[u8]| u32::from_be_bytes(reply[28..32].try_into().unwrap());
    let first = send(&exported, &make);
    assert_eq!(status(&first), 0);
    assert_eq!(send(&exported, &make), first, "the same reply");
    // Another call, and the same bytes twice on one connection, are calls of their own.
    let mut other = make.clone();
    other[7] += 1;
    assert_eq!(status(&send(&exported, &other)), 17);
    let remove = frame(NFS, 13, &[&root[..], &[0, 0, 0, 4], b"made"].concat());
    let twice = send(&exported, &[&remove[..], &remove].concat());
    let length =
        usize::try_from(u32::from_be_bytes(twice[..4].try_into().unwrap()) & 0x7fff_ffff).unwrap() + 4;
    let mut results = [status(&twice), status(&twice[length..])];
    results.sort_unstable();
    assert_eq!(results, [0, 2], "removed once");
}

/// Valid arguments of each procedure, with the handles of the root, a directory and a file.
fn valid_frames(exported: &ExportedPartition) -> Vec<Vec<u8>> {
    let mut user = exported.root();
    let dir = user.make_dir("d", 0o755).unwrap();
    let file = user.create("f", 0o644).unwrap();
    user.write(&file, 0, &[5; 5000], stable_how::UNSTABLE).unwrap();
    let handle = |handle: &[u8]| [&[0, 0, 0, 28][..], handle].concat();
    let (root, dir, file) = (handle(&user.root.data), handle(&dir.data), handle(&file.data));
    let name = |name: &[u8; 4]| [&[0, 0, 0, 4][..], name].concat();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let set = words(&[1, 0o644, 0, 0, 0, 0, 0]);
    let calls: Vec<(u32, Vec<u8>)> = vec![
        (1, file.clone()),
        (2, [&file[..], &set, &words(&[0])].concat()),
        (3, [&root[..], &name(b"name")].concat()),
        (4, [&file[..], &words(&[0x3f])].concat()),
        (5, file.clone()),
        (6, [&file[..], &words(&[0, 0, 4096])].concat()),
        (7, [&file[..], &words(&[0, 0, 8, 2, 8]), &[1; 8]].concat()),
        (8, [&dir[..], &name(b"made"), &words(&[0]), &set].concat()),
        (9, [&dir[..], &name(b"dirs"), &set].concat()),
        (10, [&dir[..], &name(b"link"), &set, &name(b"goal")].concat()),
        (11, [&dir[..], &name(b"pipe"), &words(&[7]), &set].concat()),
        (12, [&dir[..], &name(b"made")].concat()),
        (13, [&dir[..], &name(b"dirs")].concat()),
        (14, [&dir[..], &name(b"link"), &dir, &name(b"goal")].concat()),
        (15, [&file[..], &dir, &name(b"hard")].concat()),
        (16, [&dir[..], &words(&[0, 0, 0, 0, 4096])].concat()),
        (17, [&dir[..], &words(&[0, 0, 0, 0, 4096, 8192])].concat()),
        (18, root.clone()),
        (19, root.clone()),
        (20, root),
        (21, [&file[..], &words(&[0, 0, 0])].concat()),
    ];
    let mut frames: Vec<Vec<u8>> = calls.iter().map(|(number, args)| frame(NFS, *number, args)).collect();
    frames.extend([1, 3].map(|number| frame(MOUNT, number, &name(b"/d/e"))));
    frames.extend([0, 2, 4, 5].map(|number| frame(MOUNT, number, &[])));
    frames
}

#[test]
fn every_procedure_accepts_its_valid_frame() {
    let exported = ExportedPartition::new();
    for valid in valid_frames(&exported) {
        assert_eq!(accepted(&send(&exported, &valid)), Some(0), "{valid:?}");
    }
}

#[test]
fn mutated_frames_never_end_the_export() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = setting("PARIO_SEED").unwrap_or(0x5eed);
    let rounds = setting("PARIO_FRAMES").unwrap_or(2000);
    println!("PARIO_SEED={seed} PARIO_FRAMES={rounds}");
    let exported = ExportedPartition::new();
    let frames = valid_frames(&exported);
    let mut sequence = Sequence(seed | 1);
    for _ in 0..rounds {
        let mut bytes = frames[sequence.below(frames.len())].clone();
        for _ in 0..=sequence.below(4) {
            // The mark mostly stays, so that the change reaches the decoders.
            let first = if sequence.below(8) == 0 { 0 } else { 4 };
            let place = first + sequence.below(bytes.len() - first);
            match sequence.below(4) {
                0 => bytes[place] ^= 1 << sequence.below(8),
                1 => bytes[place] = 0xff,
                2 => bytes[place] = 0,
                _ => bytes.truncate(place.max(5)),
            }
        }
        let length = u32::try_from(bytes.len() - 4).unwrap() | 1 << 31;
        if sequence.below(4) != 0 {
            bytes[..4].copy_from_slice(&length.to_be_bytes());
        }
        send(&exported, &bytes);
    }
    let mut user = exported.root();
    let file = user.create("still-there", 0o600).unwrap();
    user.write(&file, 0, b"abc", stable_how::FILE_SYNC).unwrap();
    assert_eq!(user.read(&file, 0, 3).unwrap().0, b"abc");
    assert_eq!(exported.export.defects(), 0);
}
