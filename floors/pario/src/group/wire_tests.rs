//! Frames: pinned bytes, split at every position, and invalid.

use std::os::unix::net::UnixStream;

use super::*;

fn words() -> Vec<MemberMessage> {
    vec![
        MemberMessage::Join { rank: 2, size: 4, token: [7; TOKEN_BYTES], program: "./simulate".into() },
        MemberMessage::Contribute {
            channel: 3,
            call: CollectiveCall::Broadcast { root: 1 },
            bytes: Ok(b"abc".to_vec()),
        },
        MemberMessage::Contribute {
            channel: 3,
            call: CollectiveCall::Allgather,
            bytes: Err("too much".into()),
        },
        MemberMessage::LeaveChannel { channel: 9 },
        MemberMessage::Leave,
    ]
}

fn answers() -> Vec<HubMessage> {
    let fault = Fault::new(Code::Unreachable, "rank 1 died");
    vec![
        HubMessage::Welcome,
        HubMessage::Refused(fault.clone()),
        HubMessage::Full { channel: 1, parts: vec![vec![], vec![1, 2]], made: Some(5) },
        HubMessage::Failed { channel: 1, fault: fault.clone() },
        HubMessage::Closed { channel: 1, fault: fault.clone() },
        HubMessage::Broken(fault),
    ]
}

#[test]
fn what_is_said_is_understood_however_it_is_cut() {
    let bytes: Vec<u8> = words().iter().flat_map(MemberMessage::to_bytes).collect();
    for step in [1, 3, 17, bytes.len()] {
        let (left, right) = UnixStream::pair().unwrap();
        let (mut inbox, mut heard) = (FrameBuffer::new(), Vec::new());
        for piece in bytes.chunks(step) {
            send_all(left.as_fd(), &[piece]).unwrap();
            assert_eq!(inbox.feed(&right, Blocking::Wait), ReadOutcome::Bytes);
            while let Some(word) = inbox.next(JOIN_BYTES_MAX, MemberMessage::from_frame).unwrap() {
                heard.push(word);
            }
        }
        assert_eq!(heard, words());
        assert_eq!(inbox.feed(&right, Blocking::Never), ReadOutcome::NoData);
        drop(left);
        assert_eq!(inbox.feed(&right, Blocking::Wait), ReadOutcome::End);
    }
}

#[test]
fn answers_survive_the_way() {
    for answer in answers() {
        let bytes = answer.to_bytes();
        let head = GroupHeader::from_bytes(bytes.first_chunk().unwrap());
        assert_eq!(HubMessage::from_frame(head, &bytes[HEAD_BYTES..], 2).unwrap(), answer);
    }
}

#[test]
fn the_form_is_fixed() {
    let head = [3, 0, 0, 0, 2, 3, 1, 0, 3, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(words()[1].to_bytes(), [head.as_slice(), b"abc"].concat());
    let full = [10, 0, 0, 0, 18, 0, 1, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 2];
    assert_eq!(answers()[2].to_bytes(), full);
}

#[test]
fn what_cannot_be_is_refused() {
    let read = |bytes: &[u8]| {
        let mut inbox = FrameBuffer::new();
        inbox.bytes.extend_from_slice(bytes);
        inbox.next(JOIN_BYTES_MAX, MemberMessage::from_frame)
    };
    let good = words()[1].to_bytes();
    for (at, value) in [(4, 0), (4, 99), (5, 0), (6, 2), (3, 1)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(read(&bytes).unwrap_err().code, Code::Protocol, "byte {at} is {value}");
    }
    assert!(read(&frame(GroupHeader::new(JOIN, 4, 0, &[1; 15]), &[1; 15])).is_err(), "a token is missing");
    let round = answers()[2].to_bytes();
    let head = GroupHeader::from_bytes(round.first_chunk().unwrap());
    for (body, size) in [(&round[HEAD_BYTES..], 3), (&round[HEAD_BYTES..], 1), (&round[HEAD_BYTES..25], 2)] {
        assert!(HubMessage::from_frame(head, body, size).is_err());
    }
}

#[test]
fn names_of_programs_are_cut_and_have_no_control_characters() {
    let program = format!("a\nb{}", "ü".repeat(PROGRAM_BYTES_MAX));
    let bytes = MemberMessage::Join { rank: 0, size: 1, token: [0; TOKEN_BYTES], program }.to_bytes();
    assert!(bytes.len() <= HEAD_BYTES + TOKEN_BYTES + PROGRAM_BYTES_MAX);
    let head = GroupHeader::from_bytes(bytes.first_chunk().unwrap());
    let MemberMessage::Join { program, .. } = MemberMessage::from_frame(head, &bytes[HEAD_BYTES..]).unwrap()
    else {
        panic!()
    };
    assert!(program.starts_with("abü"), "{program}");
}
