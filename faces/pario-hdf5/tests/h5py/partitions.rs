//! Files inside a partition: served, compared with native HDF5, killed writers, lost servers, forks.

use super::killed::kill_and_read;
use super::programs::compare;
use super::world::{Served, World, count, shown};

const PROGRAM: &str = r#"
import h5py, numpy as np, os
f = h5py.File("pario:///out.h5", "w")
f["ocean/wave"] = np.arange(10, dtype="<i8")
f["names"] = ["a", "bb", "ccc"]
f["also"] = f["ocean/wave"]
f.flush()
child = os.fork()
if child == 0:
    try:
        f["in the child"] = 1
        os._exit(1)
    except Exception as error:
        os._exit(7 if "fork" in str(error) else 2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
f.close()
f = h5py.File("pario://h/out.h5", "r")
print(list(f), f["also"][2:5], f["names"][1], f.id.get_filesize() > 80)
"#;

#[test]
fn a_file_in_a_partition_is_served_and_a_forked_child_is_refused() {
    let world = World::with_partition();
    let output = world.run(Served::Pario, &["-c", PROGRAM]);
    let expected = "7\n['also', 'names', 'ocean'] [2 3 4] b'bb' True\n";
    assert_eq!(shown(&output.stdout), expected, "{}", shown(&output.stderr));
    assert!(count(&output, "files") == 2 && !world.path("out.h5").exists());
    let listed = world.pario(&["h5", "ls", "-r", "pario://h/out.h5"]).output().unwrap();
    assert!(shown(&listed.stdout).contains("ocean/wave"), "{}", shown(&listed.stderr));
    let checked = world.pario(&["h5", "check", "pario://h/out.h5"]).output().unwrap();
    assert!(checked.status.success(), "{}", shown(&checked.stdout));
}

#[test]
fn random_programs_do_the_same_natively_and_in_a_partition() {
    let seed = std::env::var("PARIO_SEED").ok().and_then(|text| text.parse().ok());
    let first = seed.unwrap_or_else(|| u64::from(std::process::id()) * 1000 + 500);
    compare((first, 2), World::with_partition, "pario://h/pario.h5");
}

#[test]
fn a_killed_program_leaves_everything_in_the_partition() {
    kill_and_read(&World::with_partition(), "pario:///k.h5", 3);
}

/// The servers end while the file is open.
const LOST: &str = r#"
import h5py, subprocess, sys, time
f = h5py.File("pario:///out.h5", "w")
f["x"] = range(10)
subprocess.run([sys.argv[1], "down", "h", "--destroy"], check=True, stdout=subprocess.DEVNULL)
for name in ("y", "z"):
    began = time.monotonic()
    try:
        f[name] = range(10)
        print("no error")
    except Exception as error:
        print("error", flush=True)
        print(name, "%.1f s" % (time.monotonic() - began), error, file=sys.stderr)
"#;

#[test]
fn lost_servers_are_errors_of_the_calls() {
    let mut world = World::with_partition();
    let pario = world.pario(&[]).get_program().to_string_lossy().into_owned();
    let output = world.run(Served::Pario, &["-c", LOST, &pario]);
    let error = shown(&output.stderr);
    world.served = !error.contains(" s ");
    assert_eq!(shown(&output.stdout), "error\nerror\n", "{error}");
    assert!(error.contains("server"), "{error}");
}
