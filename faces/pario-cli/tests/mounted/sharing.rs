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
