//! A home with a full disk: the request names rank, place and size, others go on, and the file works on after room was made.

use std::path::{Path, PathBuf};
use std::process::Command;

use pario::core::Code;
use pario::distant::SharedFileOptions;

use crate::common::pattern;
use crate::members::{HomeDirs, as_homes};

const RECORD: usize = 64 << 10;

/// A small file system in memory; unmounted when dropped, also by a failed test.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, with a message, if it cannot be mounted.
    fn at(dir: &Path) -> Option<SmallDisk> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED, no small disk: not root");
            return None;
        }
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(dir).status();
        mounted.unwrap().success().then(|| SmallDisk(dir.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn needs_root_a_full_disk_is_told_with_rank_and_size_and_others_go_on() {
    let dirs = HomeDirs::new(2);
    let Some(_disk) = SmallDisk::at(&dirs.of(1)) else { return };
    for nodes in [[0, 0], [0, 1]] {
        as_homes(&nodes, &dirs, |group, distant| {
            let shared = distant.create(&SharedFileOptions::for_requests(RECORD as u64)).unwrap();
            let filler = dirs.of(1).join("filler");
            if group.rank() == 1 {
                std::fs::write(&filler, vec![1; 1 << 20]).unwrap();
            }
            group.barrier().unwrap();
            if group.rank() == 0 {
                // Odd blocks lie on the small disk.
                let blocks = (0..64u64).map(|number| 2 * number + 1);
                let written: Vec<_> = blocks
                    .map(|block| {
                        let request =
                            shared.start_write_at(block * RECORD as u64, pattern(RECORD, block)).unwrap();
                        (block, request.wait().map(|_| ()))
                    })
                    .collect();
                let (block, error) = written
                    .into_iter()
                    .find_map(|(block, result)| Some((block, result.err()?)))
                    .expect("the disk is full");
                assert_eq!(error.code(), Code::NoSpace, "{error}");
                let text = error.to_string();
                let at = block * RECORD as u64;
                assert!(text.starts_with("no space left: rank 1, "), "{text}");
                assert!(text.contains(&format!(", {RECORD} bytes at {at}: ")), "{text}");
                assert!(text.contains(&dirs.of(1).display().to_string()), "{text}");
                // The other home has room.
                shared.write_at(0, &pattern(RECORD, 7)).unwrap();
                std::fs::remove_file(&filler).unwrap();
                shared.write_at(block * RECORD as u64, &pattern(RECORD, block)).unwrap();
                let mut found = vec![0; RECORD];
                shared.read_at(block * RECORD as u64, &mut found).unwrap();
                assert!(found == pattern(RECORD, block));
            }
            group.barrier().unwrap();
            shared.destroy(distant).unwrap();
        });
    }
}
