//! Random programs, run natively and on Pario, compared line by line.

use std::os::unix::process::ExitStatusExt;

use super::world::{Served, World, count, shown};

/// Programs of `./test`; `PARIO_HDF5_PROGRAMS` says how many others.
const PROGRAMS: u64 = 8;
const STEPS: &str = "80";
/// The signal; `timeout` ends by the one that ended its program.
const SEGMENTATION_FAULT: i32 = 11;

#[test]
fn random_programs_do_the_same_natively_and_on_pario() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("PARIO_SEED").unwrap_or_else(|| u64::from(std::process::id()) * 1000);
    let programs = number("PARIO_HDF5_PROGRAMS").unwrap_or(PROGRAMS);
    compare((first, programs), World::new, "pario.h5");
}

/// Runs as many programs from a seed on, natively and on the file `name` of Pario, each in a world of its own.
#[expect(clippy::print_stdout, reason = "a failed test shows its seed")]
pub(super) fn compare((first, programs): (u64, u64), world: fn() -> World, name: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/random_program.py");
    let mut compared = 0;
    for seed in first..first + 3 * programs {
        println!("PARIO_SEED={seed}");
        let world = world();
        let text = seed.to_string();
        let native = world.run(Served::Native, &[script, &text, "native.h5", STEPS]);
        // Some programs crash native HDF5 itself; then there is nothing to compare with.
        if native.status.signal() == Some(SEGMENTATION_FAULT) {
            println!("seed {seed}: native HDF5 ended with a segmentation fault");
            continue;
        }
        let pario = world.run(Served::Pario, &[script, &text, name, STEPS]);
        let (expected, found) = (shown(&native.stdout), shown(&pario.stdout));
        assert!(native.status.success(), "seed {seed}, native: {}", shown(&native.stderr));
        for (native, pario) in expected.lines().zip(found.lines()) {
            assert_eq!(native, pario, "seed {seed}: native above or left, Pario below or right");
        }
        assert_eq!(expected.lines().count(), found.lines().count(), "seed {seed}: {}", shown(&pario.stderr));
        assert!(count(&pario, "files") > 0 && count(&pario, "datasets") > 0, "Pario served");
        assert!(name.contains(':') || world.path(name).join(".@container").exists());
        compared += 1;
        if compared == programs {
            return;
        }
    }
    panic!("native HDF5 crashed in most programs: only {compared} of {programs} were compared");
}
