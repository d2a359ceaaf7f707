//! h5py's own tests, on Pario. `PARIO_HDF5_SUITE=all` runs every file and prints the counts.

use super::world::{Served, World, shown};

/// Files of `./test`: passed with all their tests, by calls that Pario served.
const CHOSEN: [&str; 6] = [
    "test_attribute_create.py",
    "test_attrs_data.py",
    "test_dataset_getitem.py",
    "test_slicing.py",
    "test_dtype.py",
    "test_h5d_direct_chunk.py",
];
/// Tests that pass of the whole suite, at least.
const PASSED_MIN: u64 = 800;

fn run(world: &World, file: &str) -> (u64, u64, String) {
    let place = world
        .script(Served::Native, "import h5py.tests, os; print(os.path.dirname(h5py.tests.__file__), end='')");
    let path = format!("{place}/{file}");
    let output =
        world.run(Served::Pario, &["-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", &path]);
    let text = shown(&output.stdout);
    let summary = text.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default().to_owned();
    let number = |word: &str| {
        let words: Vec<&str> = summary.split([' ', ',']).collect();
        let at = words.iter().position(|one| one.trim_end_matches('s') == word);
        at.and_then(|at| words[at - 1].parse::<u64>().ok()).unwrap_or(0)
    };
    (number("passed"), number("failed") + number("error"), text)
}

#[test]
fn chosen_tests_of_h5py_pass() {
    let world = World::new();
    for file in CHOSEN {
        let (passed, failed, text) = run(&world, file);
        assert!(passed > 0 && failed == 0, "{file}:\n{text}");
    }
}

#[test]
fn all_tests_of_h5py() {
    if !std::env::var("PARIO_HDF5_SUITE").is_ok_and(|value| value == "all") {
        println!("not asked for: PARIO_HDF5_SUITE=all runs h5py's whole suite");
        return;
    }
    let world = World::new();
    let list = "import h5py.tests, os, glob; d = os.path.dirname(h5py.tests.__file__); \
                print('\\n'.join(sorted(os.path.relpath(p, d) for p in glob.glob(d + '/**/test_*.py', recursive=True))))";
    let (mut passed, mut failed) = (0, 0);
    for file in world.script(Served::Native, list).lines() {
        let (good, bad, text) = run(&world, file);
        println!("{file}: {good} passed, {bad} failed");
        text.lines().filter(|line| line.starts_with("FAILED")).for_each(|line| println!("  {line}"));
        assert!(good + bad > 0 || text.contains("skipped"), "{file} did not end:\n{text}");
        (passed, failed) = (passed + good, failed + bad);
    }
    println!("{passed} passed, {failed} failed");
    assert!(passed >= PASSED_MIN, "{passed} passed, {PASSED_MIN} expected");
}
