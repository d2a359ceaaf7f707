//! External suites: the parallel tests of HDF5 and the test programs of PnetCDF, from their sources, natively and on Pario.
//!
//! `./test` fetches the sources and runs a part of them; `PARIO_TEST_SUITES=all cargo test -p pario-mpi --test mpi suites_ -- --nocapture`
//! runs all. Always: a program that passes natively passes on Pario, and Pario reports that it served it; both numbers are shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{MpiFixture, ProgramRun};
use crate::installations::{MpiInstallation, output, target};

/// A program, or several runs of one name, and its number of ranks.
struct SuiteCase {
    name: String,
    ranks: usize,
    command: String,
    /// Its files are accessed by MPI calls.
    is_served: bool,
}

/// How a program ended.
#[derive(Clone, Debug)]
struct CaseResult {
    name: String,
    status: i32,
    seconds: u64,
    served: u64,
}

fn runs_all() -> bool {
    std::env::var("PARIO_TEST_SUITES").as_deref() == Ok("all")
}

/// Time limit of a program in seconds; it depends on the machine.
fn seconds_max() -> &'static str {
    if runs_all() { "1800" } else { "240" }
}

fn sources(name: &str) -> PathBuf {
    let dir = target().parent().unwrap().join("suites").join(name);
    assert!(dir.exists(), "no {} (./test fetches it)", dir.display());
    dir
}

/// Builds programs of a suite for an MPI, or finds them built.
fn built(suite: &str, installation: MpiInstallation, programs: &[&str]) -> PathBuf {
    let (sources, name) = (sources(suite), installation.name());
    let place = sources.with_file_name(format!("{suite}-{name}"));
    let mut command = Command::new(script(&format!("build-{suite}.sh")));
    output(command.args([&sources, &place]).arg(name).args(programs));
    place
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suites").join(name)
}

/// Runs all cases in one fixture, natively or on a partition, with their files in `dir`.
fn run(world: &MpiFixture, cases: &[SuiteCase], dir: &Path, is_native: bool) -> Vec<CaseResult> {
    let place = world.path(if is_native { "native-run" } else { "pario-run" });
    std::fs::create_dir_all(&place).unwrap();
    let line = |case: &SuiteCase| {
        let command = case.command.replace("FILES", &dir.display().to_string());
        format!("{} {} {command}\n", case.name, case.ranks)
    };
    std::fs::write(place.join("list"), cases.iter().map(line).collect::<String>()).unwrap();
    let words = format!(
        "cd {} && {} {} {} list",
        place.display(),
        script("run.sh").display(),
        world.installation.launcher().display(),
        seconds_max()
    );
    let prefix = dir.display().to_string();
    let variables =
        [("HDF5_PARAPREFIX", prefix.as_str()), ("HDF5_PREFIX", prefix.as_str()), ("PARIO_STATS", "1")];
    let ran = match is_native {
        true => world.run_native(&["sh", "-c", &words], &variables),
        false => world.run_beside(&["sh", "-c", &words], &variables),
    };
    let ended = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let err = std::fs::read(place.join(format!("{name}.err"))).ok()?;
        let served =
            ProgramRun { ok: true, out: String::new(), err: String::from_utf8_lossy(&err).into_owned() }
                .served();
        let (status, seconds) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(CaseResult { name, status, seconds, served })
    };
    let all: Vec<CaseResult> = ran.out.lines().filter_map(ended).collect();
    assert_eq!(all.len(), cases.len(), "{}\n{}", ran.out, ran.err);
    all
}

/// Runs the cases natively and on Pario, and compares.
fn compare(suite: &str, installation: MpiInstallation, cases: &[SuiteCase]) {
    let world = MpiFixture::new(installation);
    let native_files = world.path("native");
    std::fs::create_dir_all(&native_files).unwrap();
    let native = run(&world, cases, &native_files, true);
    let pario = run(&world, cases, &world.path("mapped"), false);
    let passed = |all: &[CaseResult]| all.iter().filter(|ended| ended.status == 0).count();
    let name = installation.name();
    let (natively, here, of) = (passed(&native), passed(&pario), cases.len());
    eprintln!("{suite} on {name}: {natively} of {of} pass natively, {here} of {of} on Pario");
    let mut wrong = Vec::new();
    for ((case, native), here) in cases.iter().zip(&native).zip(&pario) {
        eprintln!(
            "  {}: natively status {} in {} s; on Pario status {} in {} s, {} calls served",
            case.name, native.status, native.seconds, here.status, here.seconds, here.served
        );
        let is_unserved = case.is_served && here.status == 0 && here.served == 0;
        if (native.status == 0 && here.status != 0) || is_unserved {
            let said = |kind: &str| {
                let path = world.path("pario-run").join(format!("{}.{kind}", here.name));
                let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
                let lines: Vec<&str> = text.lines().collect();
                lines[lines.len().saturating_sub(25)..].join("\n")
            };
            wrong.push(format!("{here:?}\n{}\n{}", said("out"), said("err")));
        }
    }
    assert!(wrong.is_empty(), "{suite} on {name}, worse than natively:\n{}", wrong.join("\n\n"));
}

/// The parallel tests of HDF5, in an order in which each finds the files of earlier ones. Without `t_cache_image`: a rank of it
/// starts another MPI program, which MPI libraries do not support, and it hangs natively.
const HDF5: [(&str, &str); 10] = [
    ("t_mpi", ""),
    ("testphdf5", ""),
    ("t_shapesame", ""),
    ("t_pread", ""),
    ("t_pshutdown", ""),
    ("t_prestart", ""),
    ("t_init_term", ""),
    ("t_filters_parallel", ""),
    ("t_cache", ""),
    ("t_bigio", ""),
];
/// The subset of `./test`. The third makes file types that interleave.
const HDF5_SOME: [(&str, &str); 3] =
    [("t_pshutdown", ""), ("t_prestart", ""), ("testphdf5", "-o ecdsetw -o cdsetw -o cchunk3 -o atomicity")];
/// Programs that open no file, or one in their working directory.
const HDF5_UNSERVED: [&str; 2] = ["t_init_term", "t_bigio"];

fn hdf5(installation: MpiInstallation) {
    let programs: &[(&str, &str)] = if runs_all() { &HDF5 } else { &HDF5_SOME };
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let place = built("hdf5", installation, &names);
    let case = |(name, words): &(&str, &str)| SuiteCase {
        name: (*name).to_owned(),
        ranks: 4,
        command: format!("{} {words}", place.join(name).display()),
        is_served: !HDF5_UNSERVED.contains(name),
    };
    compare("hdf5", installation, &programs.iter().map(case).collect::<Vec<_>>());
}

#[test]
fn suites_hdf5_on_mpich() {
    hdf5(MpiInstallation::Mpich);
}

#[test]
fn suites_hdf5_on_open_mpi() {
    hdf5(MpiInstallation::OpenMpi);
}

/// Beyond 4 GiB, or without a file.
const PNETCDF_LEFT_OUT: [&str; 6] =
    ["tst_version", "large_var_cdf5", "last_large_var", "tst_pthread", "mcoll_perf", "large_num_reqs"];

/// The test programs of PnetCDF that run on any number of ranks and take the name of a file.
fn pnetcdf(installation: MpiInstallation) {
    let tests = built("pnetcdf", installation, &[]).join("sources/test");
    let case = |program: &Path| {
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let command = format!("{} FILES/{name}.nc", program.display());
        SuiteCase { name, ranks: 4, command, is_served: true }
    };
    let some = ["testcases", "nonblocking"].iter().flat_map(|dir| programs(&tests.join(dir)));
    let mut cases: Vec<SuiteCase> = some.map(|program| case(&program)).collect();
    cases.retain(|case| !PNETCDF_LEFT_OUT.contains(&case.name.as_str()));
    assert!(40 < cases.len(), "{} programs", cases.len());
    for part in ["wr", "rd"] {
        let program = tests.join(format!("C/pres_temp_4D_{part}"));
        cases.push(SuiteCase {
            command: format!("{} FILES/pres_temp_4D.nc", program.display()),
            ..case(&program)
        });
    }
    compare("pnetcdf", installation, &cases);
}

/// A few of them on Debian's library, which is for one MPI.
fn some_of_pnetcdf() {
    let (tests, world) = (sources("pnetcdf").join("test"), MpiFixture::new(MpiInstallation::OpenMpi));
    let case = |name: &str| {
        let program = world.path(name);
        let mut compile = Command::new(world.installation.compiler());
        compile.args(["-O1", "-w", "-I"]).arg(tests.join("common")).arg("-o").arg(&program);
        compile.arg(tests.join(format!("testcases/{name}.c"))).arg(tests.join("common/testutils.c"));
        output(compile.arg("-lpnetcdf"));
        let command = format!("{} FILES/{name}.nc", program.display());
        SuiteCase { name: name.to_owned(), ranks: 4, command, is_served: true }
    };
    compare("pnetcdf", MpiInstallation::OpenMpi, &["flexible", "varn_int", "vectors"].map(case));
}

/// Programs that were built in a directory, by name.
fn programs(dir: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let is_program = |path: &PathBuf| {
        let metadata = path.metadata().unwrap();
        metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 && path.extension().is_none()
    };
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_program).collect();
    all.sort();
    all
}

#[test]
fn suites_pnetcdf() {
    if runs_all() {
        pnetcdf(MpiInstallation::Mpich);
        pnetcdf(MpiInstallation::OpenMpi);
    } else {
        some_of_pnetcdf();
    }
}
