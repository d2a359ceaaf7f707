//! Proof that Pario served: the connector's name, counted callbacks, the tree in storage.

use super::world::{Served, World, count, shown};

const WRITE: &str = r#"
import h5py, numpy as np
f = h5py.File("out.h5", "w")
f["ocean/wave"] = np.arange(10, dtype="<i8")
f["ocean/wave"].attrs["units"] = "m"
f["names"] = ["a", "bb", "ccc"]
print(list(f["ocean"]), f["ocean/wave"][2:5], f["names"][1], f["ocean/wave"].attrs["units"])
f.close()
"#;

#[test]
fn a_file_is_a_tree_that_numpy_and_people_can_read() {
    let world = World::new();
    let output = world.run(Served::Pario, &["-c", WRITE]);
    assert_eq!(shown(&output.stdout), "['wave'] [2 3 4] b'bb' m\n", "{}", shown(&output.stderr));
    assert!(
        count(&output, "files") == 1 && count(&output, "writes") == 2 && count(&output, "bytes_written") > 80
    );
    let numbers: Vec<u8> = (0_i64..10).flat_map(i64::to_le_bytes).collect();
    assert_eq!(std::fs::read(world.path("out.h5/ocean/wave")).unwrap(), numbers);
    let header = std::fs::read_to_string(world.path("out.h5/ocean/.wave")).unwrap();
    let first: serde_json::Value = serde_json::from_str(header.lines().next().unwrap()).unwrap();
    assert_eq!(first["object"]["body"]["dataset"]["type"]["description"]["size"], 8);
}

#[test]
fn without_the_connector_a_tree_is_no_hdf5_file_and_native_files_work_beside_trees() {
    let world = World::new();
    world.script(Served::Pario, WRITE);
    let native = world.run(Served::Native, &["-c", "import h5py; h5py.File('out.h5', 'r')"]);
    assert!(!native.status.success(), "the file is not one of native HDF5");
    world.script(Served::Native, "import h5py; h5py.File('native.h5', 'w')['x'] = 5");
    let both = "import h5py; a = h5py.File('out.h5'); b = h5py.File('native.h5'); print(a['ocean/wave'][3], b['x'][()])";
    assert_eq!(world.script(Served::Pario, both), "3 5\n");
}

#[test]
fn strings_of_one_write_are_one_write_of_the_heap() {
    let world = World::new();
    let text = "import h5py; h5py.File('s.h5', 'w')['s'] = ['value %d' % i for i in range(20000)]";
    let output = world.run(Served::Pario, &["-c", text]);
    assert!(output.status.success(), "{}", shown(&output.stderr));
    assert_eq!(count(&output, "blobs"), 20000);
    let heap = std::fs::metadata(world.path("s.h5/.s@heap")).unwrap().len();
    assert_eq!(heap, (0..20000).map(|number| format!("value {number}").len() as u64).sum::<u64>());
}

/// What is not supported fails with a sentence.
#[test]
fn what_is_refused_is_refused_in_words() {
    let world = World::new();
    for (program, words) in [
        ("h5py.File('missing.h5', 'r')", "FileNotFoundError"),
        ("h5py.File('u.h5', 'w', userblock_size=512)", "user blocks"),
        (
            "h5py.File('v.h5', 'w').create_virtual_dataset('v', h5py.VirtualLayout((3,), 'i4'))",
            "virtual datasets",
        ),
        ("h5py.File('e.h5', 'w').create_dataset('e', (3,), 'i4', external='raw')", "external raw files"),
        ("h5py.File('pario://a/b.h5', 'w')", "no partition 'a'"),
        ("f = h5py.File('r.h5', 'w'); f.close(); h5py.File('r.h5', 'r').create_group('g')", "read-only"),
    ] {
        let output = world.run(Served::Pario, &["-c", &format!("import h5py; {program}")]);
        let error = shown(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{program}: {error}");
    }
    let mut unknown = world.command(Served::Pario, &["-c", "import h5py; h5py.File('x.h5', 'w')"]);
    let output = unknown.env("HDF5_VOL_CONNECTOR", "pario thread=4").output().unwrap();
    assert!(!output.status.success() && shown(&output.stderr).contains("unknown setting `thread=4`"));
}

/// h5py ignores errors of closing a dataset: the file's close must report what could not be written.
#[test]
fn chunks_that_cannot_be_written_are_an_error_of_the_files_close() {
    let world = World::new();
    let text = r#"
import h5py, numpy as np, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with h5py.File("full.h5", "w") as f:
    f.create_dataset("z", data=np.random.rand(1000, 1000), chunks=(100, 1000), compression="gzip")
print("reached")
"#;
    let output = world.run(Served::Pario, &["-c", text]);
    let error = shown(&output.stderr);
    assert!(!output.status.success() && !shown(&output.stdout).contains("reached"), "{error}");
    assert!(error.contains("File too large"), "{error}");
}
