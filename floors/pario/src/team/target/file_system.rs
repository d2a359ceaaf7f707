//! Which kind of file a team gets on a file system, if no setting says it.
//!
//! Parallel and network file systems lock ranges of one file between writers: there a container, with a log for each writer, is faster as
//! soon as several threads write. Elsewhere a plain file needs no conversion.
//!
//! Never: changes the kind of an existing file. Always: a file system that cannot be determined counts as a local one.

use std::path::Path;

use crate::team::settings::TargetKind;

/// File systems with locks between writers of one file: the type that `statfs` reports, and the name.
const LOCKING: [(u64, &str); 5] = [
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x6969, "NFS"),
    (0x1983_0326, "BeeGFS"),
    (0xAAD7_AAEA, "PanFS"),
];

/// The chosen kind and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KindChoice {
    pub(super) kind: TargetKind,
    pub(super) why: String,
}

/// The kind for a name that the settings leave open. `active` is the number of members that may write.
pub(super) fn choose(name: &Path, active: u64) -> KindChoice {
    if crate::containers::is_container(name) {
        return KindChoice { kind: TargetKind::Log, why: "it is one".to_owned() };
    }
    if name.exists() {
        return KindChoice { kind: TargetKind::Plain, why: "it exists as one".to_owned() };
    }
    let parent = name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kind = rustix::fs::statfs(parent).map(|found| found.f_type);
    // The type has 32 bits, and is sign-extended on some machines.
    #[expect(clippy::cast_sign_loss, reason = "bits of a type")]
    choose_new(kind.ok().map(|kind| kind as u64 & 0xFFFF_FFFF), active)
}

fn choose_new(file_system: Option<u64>, active: u64) -> KindChoice {
    let locking = LOCKING.iter().find(|(kind, _)| Some(*kind) == file_system);
    let (kind, why) = match locking {
        Some((_, name)) if 1 < active => (TargetKind::Log, format!("new on {name}, {active} active threads")),
        Some((_, name)) => (TargetKind::Plain, format!("new on {name}, one active thread")),
        None => (TargetKind::Plain, "new, the file system has no locks between writers".to_owned()),
    };
    KindChoice { kind, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_where_writers_lock_each_other_out() {
        for (kind, name) in LOCKING {
            let choice = choose_new(Some(kind), 4);
            assert_eq!(choice.kind, TargetKind::Log);
            assert_eq!(choice.why, format!("new on {name}, 4 active threads"));
            assert_eq!(choose_new(Some(kind), 1).kind, TargetKind::Plain, "{name}, one thread");
        }
        // ext4, tmpfs, xfs, btrfs, unknown.
        for kind in [Some(0xEF53), Some(0x0102_1994), Some(0x5846_5342), Some(0x9123_683E), None] {
            assert_eq!(choose_new(kind, 8).kind, TargetKind::Plain);
        }
    }

    #[test]
    fn an_existing_file_keeps_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(choose(&file, 8).why.starts_with("new"));
        std::fs::write(&file, "x").unwrap();
        assert_eq!(choose(&file, 8).why, "it exists as one");
        assert!(choose(Path::new("a-file-in-the-current-directory"), 8).why.starts_with("new"));
    }
}
