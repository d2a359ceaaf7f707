//! Some rounds of random faults against real processes, and the proof that the verification can fail.

use std::os::unix::fs::FileExt;

use pario_fault::cluster::ClusterArgs;
use pario_fault::round::FaultRounds;

/// Rounds of this test; `pario-fault rounds --rounds 1000` is the long form.
const ROUNDS: u64 = 5;

fn args() -> ClusterArgs {
    ClusterArgs { servers: 3, writers: 3, store: "files".into(), settings: Vec::new(), dir: None }
}

fn seed() -> u64 {
    let seed = match std::env::var("PARIO_SEED") {
        Ok(text) => text.parse().expect("PARIO_SEED is a number"),
        Err(_) => {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_secs())
        }
    };
    eprintln!("PARIO_SEED={seed}");
    seed
}

#[test]
fn nothing_acknowledged_is_lost_under_random_faults() {
    let mut rounds = FaultRounds::start(args(), seed()).unwrap();
    for round in 0..ROUNDS {
        if let Err(what) = rounds.run(round) {
            panic!("{what}\nthe data is kept in {}", rounds.cluster().keep_dir().display());
        }
    }
    assert_eq!(rounds.counts.rounds, ROUNDS);
    assert!(0 < rounds.counts.bytes && 0 < rounds.counts.calls, "{:?}", rounds.counts);
    eprintln!("{:?}", rounds.counts);
}

/// One changed byte in one stored object is found.
#[test]
fn the_verification_finds_a_changed_byte() {
    let mut rounds = FaultRounds::start(args(), 5).unwrap();
    rounds.run(0).unwrap();
    rounds.verify().unwrap();
    let mut objects = Vec::new();
    for server in 0..3 {
        find_files(&rounds.cluster().dir().join(format!("server{server}/objects")), &mut objects);
    }
    let largest = objects.iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let object = std::fs::File::options().read(true).write(true).open(largest).unwrap();
    let length = usize::try_from(object.metadata().unwrap().len()).unwrap();
    let mut bytes = vec![0; length];
    object.read_exact_at(&mut bytes, 0).unwrap();
    // Written bytes are odd; an even one that is not zero was never written.
    let at = bytes.iter().rposition(|byte| byte % 2 == 1).unwrap();
    object.write_all_at(&[2], at as u64).unwrap();
    let what = rounds.verify().unwrap_err();
    assert!(what.contains("of no call"), "{what}");
}

fn find_files(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { find_files(&path, found) } else { found.push(path) }
    }
}
