//! Two mounts of one partition: each sees what the other has completed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::fixture::MountFixture;

#[test]
fn needs_root_completed_writes_and_names_are_seen_by_both() {
    let fixture = MountFixture::new(2);
    let (one, two) = (fixture.dir(0), fixture.dir(1));
    let path = one.join("f");
    let writer = File::create(&path).unwrap();
    let reader = OpenOptions::new().read(true).write(true).open(two.join("f")).unwrap();
    for round in 0..60_u64 {
        let (from, to) = if round % 2 == 0 { (&writer, &reader) } else { (&reader, &writer) };
        let line = format!("{round:>9}\n");
        from.write_all_at(line.as_bytes(), round * 10).unwrap();
        assert_eq!(to.metadata().unwrap().len(), (round + 1) * 10);
        let mut seen = [0; 10];
        reader.read_exact_at(&mut seen, round * 10).unwrap();
        assert_eq!(seen, line.as_bytes());
    }
    fs::rename(two.join("f"), two.join("g")).unwrap();
    assert!(!path.exists() && one.join("g").exists());
    fs::create_dir(one.join("d")).unwrap();
    fs::hard_link(two.join("g"), two.join("d/h")).unwrap();
    assert_eq!(fs::metadata(one.join("g")).unwrap().nlink(), 2);
    writer.set_len(5).unwrap();
    assert_eq!(fs::read(two.join("d/h")).unwrap(), b"     ");
    drop((writer, reader));
    fixture.end();
}

#[test]
fn needs_root_appends_of_two_nodes_lie_one_behind_the_other() {
    const LINES: usize = 150;
    let fixture = MountFixture::new(2);
    let _ = File::create(fixture.dir(0).join("log")).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = fixture.dir(writer % 2).join("log");
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for line in 0..LINES {
                    file.write_all(format!("writer {writer} line {line} {}\n", "x".repeat(line)).as_bytes())
                        .unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(fixture.dir(1).join("log")).unwrap();
    for writer in 0..4 {
        let start = format!("writer {writer} line ");
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&start)).collect();
        let expected: Vec<String> = (0..LINES).map(|line| format!("{line} {}", "x".repeat(line))).collect();
        assert_eq!(lines, expected, "lines of writer {writer}");
    }
    assert_eq!(text.lines().count(), 4 * LINES);
    fixture.end();
}

/// A program that maps a file; it reads and writes through the mapping on request.
const MAPS: &str = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
mapped = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    word = line.strip().encode()
    if word == b'read':
        print(mapped[0:8].decode(), mapped[5000:5008].decode(), flush=True)
    else:
        mapped[0:8] = word
        mapped.flush()
        print('stored', flush=True)
";

/// The program, and its answers.
struct Mapper {
    child: std::process::Child,
    answers: std::io::BufReader<std::process::ChildStdout>,
}

impl Mapper {
    fn start(path: &std::path::Path) -> Mapper {
        use std::process::{Command, Stdio};
        let mut command = Command::new("python3");
        command.args(["-c", MAPS]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = std::io::BufReader::new(child.stdout.take().unwrap());
        Mapper { child, answers }
    }

    fn ask(&mut self, word: &str) -> String {
        use std::io::BufRead;
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn needs_root_a_mapping_sees_completed_writes_of_the_other_node() {
    let fixture = MountFixture::new(2);
    fs::write(fixture.dir(0).join("f"), vec![b'.'; 10_000]).unwrap();
    let mut mapper = Mapper::start(&fixture.dir(0).join("f"));
    let other = OpenOptions::new().read(true).write(true).open(fixture.dir(1).join("f")).unwrap();
    for round in 0..20_u64 {
        let word = format!("w{round:07}");
        other.write_all_at(word.as_bytes(), if round % 2 == 0 { 0 } else { 5000 }).unwrap();
        let seen = mapper.ask("read");
        assert_eq!(
            seen.split(' ').nth(usize::from(round % 2 != 0)),
            Some(word.as_str()),
            "round {round}: {seen}"
        );
        // Stores to the mapping are seen after msync.
        let stored = format!("s{round:07}");
        assert_eq!(mapper.ask(&stored), "stored");
        let mut bytes = [0; 8];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, stored.as_bytes(), "round {round}");
    }
    drop((mapper, other));
    fixture.end();
}

/// Both nodes store into the same page without a break: nothing may hang, and each node's own bytes are there at the end.
#[test]
fn needs_root_mappings_of_two_nodes_store_at_the_same_time() {
    let fixture = MountFixture::new(2);
    fs::write(fixture.dir(0).join("f"), vec![b'.'; 10_000]).unwrap();
    std::thread::scope(|scope| {
        for node in 0..2 {
            let path = fixture.dir(node).join("f");
            scope.spawn(move || {
                let mut mapper = Mapper::start(&path);
                for round in 0..40 {
                    assert_eq!(mapper.ask(&format!("n{node}r{round:05}")), "stored");
                    assert_eq!(mapper.ask("read").len(), 17);
                }
            });
        }
    });
    let bytes = fs::read(fixture.dir(1).join("f")).unwrap();
    assert!(bytes.starts_with(b"n0r00039") || bytes.starts_with(b"n1r00039"), "{:?}", &bytes[..8]);
    fixture.end();
}
