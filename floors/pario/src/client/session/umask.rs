//! The process's umask, read without changing it for other threads.
//!
//! The kernel shows it only in `/proc/self/status`. The file is kept open, since opening it costs as much as reading it, and every created
//! file needs the umask.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use pario_sys::process::fork_generation;

/// Default if the umask cannot be read.
const USUAL: u32 = 0o022;
/// The line is near the beginning.
const HEAD_BYTES: usize = 512;

/// The open file, and the process that opened it: after a fork it still shows the parent's status.
static STATUS: Mutex<Option<(u64, File)>> = Mutex::new(None);

/// The current umask.
pub(in crate::client) fn umask() -> u32 {
    let mut status = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    let here = fork_generation();
    let kept = status.as_ref().filter(|(of, _)| *of == here).and_then(|(_, file)| read(file));
    if let Some(mask) = kept {
        return mask;
    }
    // Not opened yet, or the host program closed descriptors that it did not open.
    *status = File::open("/proc/self/status").ok().map(|file| (here, file));
    status.as_ref().and_then(|(_, file)| read(file)).unwrap_or(USUAL)
}

fn read(file: &File) -> Option<u32> {
    let mut head = [0u8; HEAD_BYTES];
    let count = file.read_at(&mut head, 0).ok()?;
    parse(&head[..count])
}

fn parse(status: &[u8]) -> Option<u32> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"))?;
    u32::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_wherever_it_stands() {
        assert_eq!(parse(b"Name:\ta\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(parse(b"Name:\ta\n"), None);
        assert_eq!(parse(b"Umask:\tx\n"), None);
    }

    #[test]
    fn it_is_what_children_inherit() {
        let said = std::process::Command::new("sh").args(["-c", "umask"]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(umask(), u32::from_str_radix(said.trim(), 8).unwrap());
        assert_eq!(
            umask(),
            u32::from_str_radix(said.trim(), 8).unwrap(),
            "from the file that is open already"
        );
    }
}
