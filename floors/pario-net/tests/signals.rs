//! A closed connection raises no SIGPIPE: a preloaded library must not kill its host.
//!
//! While it is blocked, a signal stays pending even in a process that ignores it, so that this test can see one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use common::{KINDS, ends};
use pario_sys::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const SIGPIPE: i32 = 13;

fn is_raised(signals: &Signals) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() != 0
}

#[test]
fn a_dead_peer_raises_no_signal() {
    let signals = Signals::catch(&[SIGPIPE]).unwrap();
    // Seeing is believing: a plain vectored write does raise it.
    let (mut left, right) = UnixStream::pair().unwrap();
    drop(right);
    assert!(left.write_vectored(&[IoSlice::new(b"x")]).is_err());
    assert!(is_raised(&signals));
    assert_eq!(signals.wait().unwrap(), SIGPIPE);
    for kind in KINDS {
        let (client, server) = ends(kind);
        drop(server);
        let mut failed = false;
        // TCP notices only at the second attempt.
        for _ in 0..100 {
            failed |= client.send_all(&mut [IoSlice::new(&[0; 4096])], &[]).is_err();
        }
        assert!(failed, "{kind:?}");
        assert!(!is_raised(&signals), "{kind:?}");
    }
}
