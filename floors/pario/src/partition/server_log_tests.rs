//! A log under a flood of lines stays bounded.

use super::*;
use std::os::unix::fs::symlink;
use tracing::callsite::Callsite;

struct CallSite;

impl Callsite for CallSite {
    fn set_interest(&self, _: tracing::subscriber::Interest) {}
    fn metadata(&self) -> &tracing::Metadata<'_> {
        unreachable!("only its identity is used")
    }
}

/// Log call sites; each needs its own address.
static CALL_SITES: [(CallSite, u8); 2] = [(CallSite, 0), (CallSite, 1)];

fn cause(number: usize) -> Identifier {
    tracing::callsite::Identifier(&CALL_SITES[number].0)
}

fn at(ms: u64) -> Nanos {
    Nanos(1_000_000_000_000).plus_ms(ms)
}

#[test]
fn a_flood_is_a_line_a_second_with_a_count() {
    let mut causes = Causes::default();
    let written: Vec<String> =
        (0..10_000).filter_map(|ms| causes.admit(cause(0), "unknown peer", at(ms))).collect();
    assert_eq!(written[..4], ["", "", "", ""]);
    assert_eq!(written.len(), 4 + 9, "{written:?}");
    assert!(written[5..].iter().all(|more| more == " (999 more in 1 s)"), "{written:?}");
    assert!(causes.pending_lines(at(10_000), PENDING_WRITE_AFTER_MS).is_empty());
    assert_eq!(
        causes.pending_lines(at(19_001), PENDING_WRITE_AFTER_MS),
        ["unknown peer (999 such lines in 10 s)"]
    );
    assert!(causes.pending_lines(at(99_000), 0).is_empty());
    assert_eq!(causes.admit(cause(0), "unknown peer", at(99_000)), Some(String::new()));
}

#[test]
fn one_cause_does_not_silence_another() {
    let mut causes = Causes::default();
    while causes.admit(cause(0), "a", at(0)).is_some() {}
    assert_eq!(causes.admit(cause(1), "b", at(0)), Some(String::new()));
}

#[test]
fn a_full_log_becomes_the_old_one_and_what_a_peer_said_stays_one_line() {
    let root = tempfile::tempdir().unwrap();
    let dir = Arc::new(Dir::open(root.path()).unwrap());
    let length = |name| std::fs::metadata(root.path().join(name)).map_or(0, |found| found.len());
    let log = ServerLog::default();
    // Not by `move_into`: standard error is this test program's.
    log.state().file = Some(LogFile::open(&dir).unwrap());
    log.write_line(None, "evil\nINFO forged\u{1b}[2J\n");
    let text = std::fs::read_to_string(root.path().join(LOG_FILE)).unwrap();
    assert_eq!(text, "evil\\nINFO forged\\u{1b}[2J\n");
    log.write_line(None, &"x".repeat(3 * LINE_BYTES_MAX));
    assert_eq!(length(LOG_FILE), text.len() as u64 + LINE_BYTES_MAX as u64 + 1);
    std::fs::File::options()
        .append(true)
        .open(root.path().join(LOG_FILE))
        .unwrap()
        .set_len(LOG_BYTES_MAX - 10)
        .unwrap();
    let error = rustix::io::dup(rustix::stdio::stderr()).unwrap();
    log.write_line(None, "a line of the next log");
    rustix::stdio::dup2_stderr(&error).unwrap();
    assert_eq!((length(LOG_FILE), length(OLD_LOG_FILE)), (23, LOG_BYTES_MAX - 10));
}

#[test]
fn a_planted_log_is_refused_and_not_written() {
    let root = tempfile::tempdir().unwrap();
    let (victim, log) = (root.path().join("authorized_keys"), root.path().join(LOG_FILE));
    std::fs::write(&victim, "key\n").unwrap();
    let dir = Arc::new(Dir::open(root.path()).unwrap());
    symlink(&victim, &log).unwrap();
    assert!(LogFile::open(&dir).is_err());
    std::fs::remove_file(&log).unwrap();
    std::fs::hard_link(&victim, &log).unwrap();
    assert!(LogFile::open(&dir).unwrap_err().to_string().contains("one name"));
    assert_eq!(std::fs::read(&victim).unwrap(), b"key\n");
}
