//! Rule `direction`: dependencies point down, as drawn in ARCHITECTURE.md.
//!
//! Always: a crate of `base/` or `floors/` is in the table, with its allowed dependencies. Tools may use all crates; tests of floors,
//! faces and tools too; tests of the base keep to the base's own direction.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::finding::RuleFinding;

/// Allowed dependencies of each crate, from the bottom up.
const ALLOWED: [(&str, &[&str]); 9] = [
    ("pario-core", &[]),
    ("pario-view", &["pario-core"]),
    ("pario-sys", &["pario-core"]),
    ("pario-store", &["pario-core", "pario-sys"]),
    ("pario-sched", &[]),
    ("pario-net", &["pario-core", "pario-sys"]),
    ("pario-server", &["pario-core", "pario-view", "pario-sys", "pario-store", "pario-sched", "pario-net"]),
    ("pario", &["pario-core", "pario-view", "pario-sys", "pario-net", "pario-server"]),
    ("pario-container", &["pario"]),
];
/// Allowed dependencies of every face; the scheduler is independent of Pario and can be used by any crate. The MPI face is one
/// ABI-independent crate, and one per ABI on top of it; the command mounts through the POSIX face.
const FACES: &[&str] = &["pario", "pario-core", "pario-sched", "pario-mpi", "pario-posix", "pario-container"];

/// The fields of `cargo metadata` used here.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    /// The folder of the root manifest.
    pub(crate) workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    /// `dev`, `build`, or none.
    kind: Option<String>,
    /// Only crates of the workspace have one.
    path: Option<PathBuf>,
}

/// Runs `cargo metadata`.
pub(crate) fn metadata() -> Result<Metadata, Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Dependencies that point up or aside.
pub(crate) fn check(metadata: &Metadata) -> Vec<RuleFinding> {
    metadata.packages.iter().flat_map(|package| check_package(package, &metadata.workspace_root)).collect()
}

fn check_package(package: &Package, root: &Path) -> Vec<RuleFinding> {
    let manifest = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path);
    let folder = manifest.iter().next().and_then(|part| part.to_str()).unwrap_or("");
    let text = fs::read_to_string(&package.manifest_path).unwrap_or_default();
    let finding = |line: usize, advice: String| RuleFinding {
        path: manifest.display().to_string(),
        line,
        rule: "direction",
        advice,
    };
    let Some(allowed) = allowed(folder, &package.name) else {
        return vec![finding(
            1,
            format!("add the allowed dependencies of `{}` to xtask's direction.rs", package.name),
        )];
    };
    let Allowed::Only(allowed) = allowed else { return Vec::new() };
    let inside = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    let bound = inside.filter(|dependency| folder == "base" || dependency.kind.as_deref() != Some("dev"));
    bound
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| {
            finding(line_of(&text, dependency), advice(&package.name, &dependency.name, allowed))
        })
        .collect()
}

enum Allowed {
    Everything,
    Only(&'static [&'static str]),
}

/// Allowed dependencies of a crate; `None` if it is not in the table.
fn allowed(folder: &str, name: &str) -> Option<Allowed> {
    match folder {
        "tools" => Some(Allowed::Everything),
        "faces" => Some(Allowed::Only(FACES)),
        _ => ALLOWED.iter().find(|(owner, _)| *owner == name).map(|(_, may)| Allowed::Only(may)),
    }
}

fn advice(user: &str, used: &str, allowed: &[&str]) -> String {
    let may = if allowed.is_empty() { "nothing".into() } else { allowed.join(", ") };
    format!("`{user}` may not use `{used}` (it may use: {may}): move the shared part down")
}

/// Where a manifest names a dependency.
fn line_of(manifest: &str, dependency: &Dependency) -> usize {
    let key = dependency.rename.as_ref().unwrap_or(&dependency.name);
    let names_it = |line: &str| {
        line.trim_start().strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with([' ', '=', '.']))
    };
    manifest.lines().position(names_it).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, name: &str, dependencies: &[(&str, &str)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, kind)| Dependency {
            name: (*name).into(),
            rename: None,
            kind: (!kind.is_empty()).then(|| (*kind).into()),
            path: name.starts_with("pario").then(PathBuf::new),
        });
        Package {
            name: name.into(),
            manifest_path: Path::new("/w").join(folder).join(name).join("Cargo.toml"),
            dependencies: dependencies.collect(),
        }
    }

    #[track_caller]
    fn check_uses(folder: &str, name: &str, uses: &[(&str, &str)], refused: &[&str]) {
        let findings = check_package(&package(folder, name, uses), Path::new("/w"));
        let found: Vec<&str> =
            findings.iter().filter_map(|finding| finding.advice.split('`').nth(3)).collect();
        assert_eq!(found, refused, "{name} uses {uses:?}");
    }

    #[test]
    fn lets_dependencies_point_down() {
        check_uses("base", "pario-core", &[("serde", ""), ("proptest", "dev")], &[]);
        check_uses(
            "floors",
            "pario-server",
            &[("pario-net", ""), ("pario-store", ""), ("pario-core", "")],
            &[],
        );
        check_uses("floors", "pario", &[("pario-server", ""), ("pario-net", "")], &[]);
        check_uses("faces", "pario-cli", &[("pario", ""), ("clap", "")], &[]);
        check_uses("tools", "pario-sim", &[("pario-server", ""), ("pario-cli", "")], &[]);
    }

    #[test]
    fn refuses_those_that_point_up_or_aside() {
        check_uses("base", "pario-core", &[("pario-sys", "")], &["pario-sys"]);
        check_uses(
            "floors",
            "pario-store",
            &[("pario-core", ""), ("pario-server", "build")],
            &["pario-server"],
        );
        check_uses("floors", "pario-net", &[("pario-store", ""), ("pario", "")], &["pario-store", "pario"]);
        check_uses("faces", "pario-cli", &[("pario-server", "")], &["pario-server"]);
        check_uses("floors", "pario", &[("pario-cli", "")], &["pario-cli"]);
    }

    #[test]
    fn binds_tests_in_the_base_only() {
        check_uses("floors", "pario-store", &[("pario-server", "dev")], &[]);
        check_uses("base", "pario-sys", &[("pario-core", "dev"), ("pario-net", "dev")], &["pario-net"]);
        check_uses("base", "pario-core", &[("pario-sys", "dev")], &["pario-sys"]);
    }

    #[test]
    fn wants_new_floors_in_the_table() {
        let findings = check_package(&package("floors", "pario-new", &[]), Path::new("/w"));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "floors/pario-new/Cargo.toml");
    }

    #[test]
    fn finds_the_line_of_a_dependency() {
        let dependency = |name: &str| package("base", "x", &[(name, "")]).dependencies.remove(0);
        let manifest = "[package]\nname = \"pario\"\n[dependencies]\npario-core = { workspace = true }\npario.workspace = true\n";
        assert_eq!(line_of(manifest, &dependency("pario-core")), 4);
        assert_eq!(line_of(manifest, &dependency("pario")), 5);
        assert_eq!(line_of(manifest, &dependency("pario-net")), 1);
    }

    #[test]
    fn reads_what_cargo_says() {
        let metadata = metadata().unwrap();
        let xtask = metadata.packages.iter().find(|package| package.name == "xtask").unwrap();
        assert!(xtask.manifest_path.ends_with("tools/xtask/Cargo.toml"));
        assert!(xtask.dependencies.iter().any(|used| used.name == "serde_json" && used.path.is_none()));
        let core = |package: &Package| {
            package.dependencies.iter().any(|used| used.name == "pario-core" && used.path.is_some())
        };
        assert!(metadata.packages.iter().any(core));
    }
}
