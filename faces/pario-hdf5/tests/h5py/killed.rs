//! Programs that are killed: what had returned is there, and the file opens.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::world::{Served, World};

/// Writes datasets and attributes without end; prints the number of each one that is complete.
const WRITER: &str = r#"
import h5py, sys, itertools
f = h5py.File("k.h5", "a")
start = len(f)
last = "d%06d" % (start - 1)
if last in f and f[last].attrs.get("n") != start - 1:
    # The one before was killed while it made this dataset.
    del f[last]
    start -= 1
for i in itertools.count(start):
    d = f.create_dataset("d%06d" % i, data=[i] * 100)
    d.attrs["n"] = i
    if i % 5 == 4:
        f.move("d%06d" % (i - 1), "d%06d moved" % (i - 1))
    print(i, flush=True)
"#;

const READER: &str = r#"
import h5py
f = h5py.File("k.h5", "r")
found = 0
for i in range(LAST + 1):
    name = "d%06d" % i
    d = f[name] if name in f else f[name + " moved"]
    assert (d[:] == i).all(), name
    assert d.attrs["n"] == i, name
for name in f:
    f[name][:]
print("ok")
"#;

#[test]
fn a_killed_program_leaves_everything_that_had_returned() {
    kill_and_read(&World::new(), "k.h5", 6);
}

/// Kills a writer of the file `rounds` times; a reader finds everything that had returned.
pub(super) fn kill_and_read(world: &World, file: &str, rounds: i64) {
    let (writer, reader) = (WRITER.replace("k.h5", file), READER.replace("k.h5", file));
    let mut last = -1;
    for round in 0..rounds {
        let mut command = world.command(Served::Pario, &["-c", &writer]);
        let mut child = command.env_remove("PARIO_STATS").stdout(Stdio::piped()).spawn().unwrap();
        // Kept open: a closed pipe would end the program in its own way.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = last + 7 + round * 5;
        for line in lines.by_ref() {
            last = line.unwrap().parse().unwrap();
            if last >= wanted {
                break;
            }
        }
        assert!(last >= wanted, "the writer of round {round} ended by itself after {last}");
        // `timeout` passes no KILL on: the program itself is killed, by its id.
        let id = child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        for one in children.split_whitespace() {
            let done = std::process::Command::new("kill").args(["-9", one]).status().unwrap();
            assert!(done.success());
        }
        child.wait().unwrap();
        drop(lines);
        let reader = reader.replace("LAST", &last.to_string());
        assert_eq!(world.script(Served::Pario, &reader), "ok\n", "round {round}");
    }
}
