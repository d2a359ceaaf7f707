//! Repeated requests, kept replies, and writers, over restarts.

use pario_core::limits::{REPLIES_REMEMBERED, SESSIONS_REMEMBERED};
use pario_core::{Code, InodeId, SessionId};

use super::world::{NamesFixture, attr_of, code_of, parse};
use crate::names::WriterSession;

#[test]
fn a_repeated_change_does_not_act_twice() {
    let mut world = NamesFixture::new();
    world.run("mkdir d").unwrap();
    let create = parse("exclusive d/f");
    let first = world.ask(&create).unwrap();
    assert!(first.created);
    assert_eq!(world.repeat(&create).unwrap(), first);
    world.reopen();
    assert_eq!(world.repeat(&create).unwrap(), first);
    world.shut_down();
    world.reopen();
    assert_eq!(world.repeat(&create).unwrap(), first);

    let rename = parse("rename d/f d/g");
    let done = world.ask(&rename).unwrap();
    world.run("create d/f").unwrap();
    world.request -= 1;
    assert_eq!(world.repeat(&rename).unwrap(), done);
    world.run("stat d/f").unwrap();

    world.request += 5;
    let remove = parse("remove d/g");
    assert!(world.ask(&remove).unwrap().unlinked.is_some());
    assert_eq!(world.repeat(&remove).unwrap().unlinked, None);
    world.session = SessionId(8);
    assert_eq!(code_of(world.repeat(&remove)), Code::NotFound);
}

#[test]
fn what_failed_or_changed_nothing_is_tried_again() {
    let mut world = NamesFixture::new();
    let remove = parse("remove f");
    assert_eq!(code_of(world.ask(&remove)), Code::NotFound);
    let number = world.request;
    world.run("create f").unwrap();
    world.request = number;
    world.repeat(&remove).unwrap();
}

#[test]
fn the_last_replies_of_a_session_are_kept_and_no_more() {
    let mut world = NamesFixture::new();
    let first = world.run("mkdir d0").unwrap();
    for number in 1..REPLIES_REMEMBERED {
        world.run(&format!("mkdir d{number}")).unwrap();
    }
    world.reopen();
    let last = world.request;
    world.request = 1;
    assert_eq!(world.repeat(&parse("mkdir d0")).unwrap(), first);
    world.request = last;
    world.run("mkdir more").unwrap();
    world.request = 1;
    assert_eq!(code_of(world.repeat(&parse("mkdir d0"))), Code::Exists);
    assert_eq!(rows_of_sessions(&mut world), 1 + REPLIES_REMEMBERED);
}

#[test]
fn the_longest_unused_session_is_forgotten_first() {
    let mut world = NamesFixture::new();
    let name = |number: usize| format!("mkdir d{number}");
    for number in 0..SESSIONS_REMEMBERED {
        world.session = SessionId(100 + number as u64);
        world.request = 0;
        world.run(&name(number)).unwrap();
    }
    // The oldest is used once more, so the second oldest is dropped.
    world.session = SessionId(100);
    world.run("mkdir again").unwrap();
    world.session = SessionId(1);
    world.run("mkdir new").unwrap();
    assert_eq!(rows_of_sessions(&mut world), SESSIONS_REMEMBERED + SESSIONS_REMEMBERED + 1);
    for (number, kept) in [(0, true), (1, false), (2, true)] {
        world.session = SessionId(100 + number as u64);
        world.request = 1;
        assert_eq!(world.repeat(&parse(&name(number))).is_ok(), kept, "session {number}");
    }
}

#[test]
fn writers_are_remembered_until_they_are_forgotten() {
    let mut world = NamesFixture::new();
    let writer =
        |session| WriterSession { session: SessionId(session), host: "h".into(), pid: 5, start_ticks: 6 };
    let (a, b) = (world.attr("create a").inode, world.attr("create b").inode);
    world.names().note_writer(a, &writer(1)).unwrap();
    world.names().note_writer(a, &writer(1)).unwrap();
    world.names().note_writer(a, &writer(2)).unwrap();
    world.names().note_writer(b, &writer(2)).unwrap();
    world.reopen();
    assert_eq!(world.names().writers().unwrap(), [(a, writer(1)), (a, writer(2)), (b, writer(2))]);
    world.names().forget_writer(a, SessionId(1)).unwrap();
    world.names().forget_writer(a, SessionId(1)).unwrap();
    world.names().forget_session(SessionId(2)).unwrap();
    world.reopen();
    assert_eq!(world.names().writers().unwrap(), []);
    world.names().note_writer(a, &writer(3)).unwrap();
    world.run("remove a").unwrap();
    world.names().finish_remove(a).unwrap();
    assert_eq!(world.names().writers().unwrap(), []);
}

#[test]
fn a_forgotten_session_leaves_nothing() {
    let mut world = NamesFixture::new();
    let before = attr_of(&world.run("mkdir d").unwrap());
    let session = world.session;
    world.names().forget_session(session).unwrap();
    assert_eq!(rows_of_sessions(&mut world), 0);
    assert_eq!(code_of(world.repeat(&parse("mkdir d"))), Code::Exists);
    assert_eq!(world.names().attr(InodeId(2)).unwrap(), before);
}

/// Rows kept for sessions.
fn rows_of_sessions(world: &mut NamesFixture) -> usize {
    let mut count = 0;
    for prefix in [b"r", b"s"] {
        crate::names::sessions::scan(&world.names().tree.ledger, prefix, |_, _| {
            count += 1;
            Ok(())
        })
        .unwrap();
    }
    count
}
