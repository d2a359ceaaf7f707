//! Programs without MPI under `pario run`: POSIX calls on Pario's paths, appends of several processes, serial HDF5.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fixture::{MpiFixture, ProgramRun};
use crate::installations::{MpiInstallation, output, target};

/// A fixture for programs; its MPI is not used.
fn world() -> MpiFixture {
    MpiFixture::new(MpiInstallation::Mpich)
}

/// Compiles a program without MPI.
fn compile(world: &MpiFixture, source: &str, options: &[&str]) -> PathBuf {
    let program =
        world.compile(Path::new("cc"), &format!("c/{source}.c"), &[&["-std=c99", "-O1"], options].concat());
    let named = world.path(source);
    std::fs::rename(program, &named).unwrap();
    named
}

/// Runs a command on its own partition, `p`, below `mapped`, with the map of the guide.
fn run(world: &MpiFixture, map: &str, words: &[&str]) -> ProgramRun {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "480"]).arg(target().join("pario"));
    command.args(["run", "--name", "p", "--servers", "2", "--"]).args(words);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PARIO_")) {
        if name != "PARIO_TEST_RUN" {
            command.env_remove(name);
        }
    }
    command
        .env("PARIO_REGISTRY", world.path("registry"))
        .env("PARIO_MAP", format!("{}={map}", world.path("mapped").display()))
        .env("PARIO_STATS", "1")
        .env("TMPDIR", world.path(""))
        .current_dir(world.path(""))
        .stdin(Stdio::null());
    ProgramRun::of(&mut command)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn locks_copies_mappings_and_what_is_refused() {
    let world = world();
    let program = text(&compile(&world, "serial", &[]));
    let mapped = text(&world.path("mapped"));
    for (map, dir) in [
        ("pario:///", mapped.as_str()),
        ("pario:///", "mapped"),
        ("pario://p", mapped.as_str()),
        ("pario://p/", mapped.as_str()),
        ("pario:///", "pario:///"),
        ("pario:///", "pario://p"),
    ] {
        let ran = run(&world, map, &[&program, dir]);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{map} {dir}: {}\n{}", ran.out, ran.err);
        for (call, least) in
            [("flock", 10), ("fcntl", 15), ("mmap", 4), ("open", 15), ("stat", 3), ("mkdir", 1)]
        {
            let served = ran.served_posix(call);
            assert!(least <= served, "{map} {dir}: {call} served {served} times\n{}", ran.err);
        }
        for line in [
            "pario: mmap of pario://p/mapped is not supported yet: ",
            "pario: opendir of pario://p/ is not supported yet: ",
        ] {
            assert_eq!(ran.err.matches(line).count(), 1, "{line}, once: {}", ran.err);
        }
    }
}

/// A map below a directory of the partition, which is created first.
#[test]
fn a_map_to_a_directory_of_the_partition() {
    let world = world();
    let program = text(&compile(&world, "serial", &[]));
    let pario = text(&target().join("pario"));
    for map in ["pario:///deep/out", "pario://p/deep/out/"] {
        let script = format!(
            "{pario} mkdir -p pario://p/deep/out && {program} mapped && {pario} ls pario://p/deep/out"
        );
        let ran = run(&world, map, &["sh", "-c", &script]);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{map}: {}\n{}", ran.out, ran.err);
        assert!(ran.out.contains("records") && ran.out.contains("copies"), "{map}: {}", ran.out);
    }
}

/// Every line is there once and complete, in the order of its appender.
#[track_caller]
fn check_lines(found: &str, appenders: usize, lines: usize) {
    let mut counts = vec![0; appenders];
    assert!(found.ends_with('\n'), "the last line is cut");
    for line in found.lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap_or_default().parse::<usize>();
        let (Ok(appender), Ok(at)) = (number(), number()) else { panic!("a torn line: {line:?}") };
        assert_eq!(at, counts[appender], "a line of {appender} is lost, or twice there: {line:?}");
        assert_eq!(words.next(), Some("x".repeat((appender * 31 + at * 17) % 257).as_str()), "a torn line");
        counts[appender] += 1;
    }
    assert_eq!(counts, vec![lines; appenders]);
}

/// Appenders as processes of one node, or each on its own node.
fn append(appenders: usize, lines: usize, nodes: bool) {
    let world = world();
    let program = text(&compile(&world, "append", &[]));
    let pario = text(&target().join("pario"));
    let node = if nodes { "PARIO_NODE=n$i" } else { "" };
    let each = format!(
        "for i in $(seq 0 {}); do {node} {program} mapped/log $i {lines} & all=\"$all $!\"; done",
        appenders - 1
    );
    let script = format!("{each}; for p in $all; do wait $p || exit 1; done; {pario} cp pario://p/log copy");
    let transport = if nodes { "export PARIO_TRANSPORT=tcp; " } else { "" };
    let ran = run(&world, "pario:///", &["bash", "-c", &format!("{transport}{script}")]);
    assert!(ran.ok, "{}\n{}", ran.out, ran.err);
    assert_eq!(ran.served_posix("write"), (appenders * lines) as u64, "{}", ran.err);
    check_lines(&std::fs::read_to_string(world.path("copy")).unwrap(), appenders, lines);
}

#[test]
fn two_processes_append_three_thousand_lines_each() {
    append(2, 3000, false);
}

#[test]
fn four_processes_append_three_thousand_lines_each() {
    append(4, 3000, false);
}

#[test]
fn processes_of_several_nodes_append() {
    append(3, 1000, true);
}

/// HDF5's serial driver locks files by `flock`; its own tools read the result, and the bytes are those of a plain file.
#[test]
fn serial_hdf5_and_its_tools() {
    let world = world();
    let lib = format!("/usr/lib/{}-linux-gnu/hdf5/serial", std::env::consts::ARCH);
    let options = [
        "-I/usr/include/hdf5/serial",
        &format!("-L{lib}"),
        &format!("-Wl,-rpath,{lib}"),
        "-Wl,--no-as-needed",
        "-lhdf5",
    ];
    let program = text(&compile(&world, "hdf5_serial", &options));
    let pario = text(&target().join("pario"));
    let script = format!(
        "{program} mapped/f.h5 && {program} plain.h5 && h5dump mapped/f.h5 >ours && h5dump plain.h5 >theirs && h5ls -r mapped/f.h5 \
         && h5repack mapped/f.h5 mapped/g.h5 && h5diff mapped/f.h5 mapped/g.h5 && {pario} cp pario://p/f.h5 copy.h5"
    );
    let ran = run(&world, "pario:///", &["sh", "-c", &script]);
    assert!(
        ran.ok && ran.out.contains(", 0 failures") && ran.out.contains("/group/numbers"),
        "{}\n{}",
        ran.out,
        ran.err
    );
    assert!(4 <= ran.served_posix("flock") && 2 <= ran.served_posix("pwrite"), "{}", ran.err);
    let read = |name: &str| std::fs::read(world.path(name)).unwrap();
    assert_eq!(read("copy.h5"), read("plain.h5"), "the same bytes");
    let dump = |name: &str| {
        String::from_utf8(read(name)).unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(dump("ours"), dump("theirs"));
    assert!(output(Command::new("h5dump").arg(world.path("copy.h5"))).contains(" 4095"));
}
