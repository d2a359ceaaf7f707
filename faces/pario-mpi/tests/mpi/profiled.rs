//! A profiler that is preloaded before or after Pario sees the program's calls, and Pario serves them.

use crate::fixture::{MpiFixture, ProgramRun};
use crate::installations::{MpiInstallation, chosen};

/// Sums a count of the profiler over the ranks.
fn seen(ran: &ProgramRun, call: &str) -> u64 {
    let lines = ran.err.split("profiler: ").skip(1).filter_map(|text| text.split(';').next());
    let counts = lines.flat_map(|line| line.split(", "));
    counts.filter_map(|entry| entry.strip_prefix(call)?.trim().parse::<u64>().ok()).sum()
}

fn run(installation: MpiInstallation) {
    let world = MpiFixture::new(installation);
    let compiler = installation.compiler();
    let library = world.compile(&compiler, "c/profiler.c", &["-std=c99", "-shared", "-fPIC"]);
    let profiler = world.path("libprofiler.so");
    std::fs::rename(library, &profiler).unwrap();
    let program = world.compile(&compiler, "c/access.c", &["-std=c99", "-Wno-unused-function"]);
    let (program, dir) = (program.display().to_string(), world.path("").display().to_string());
    let (pario, profiler) = (installation.preload().display().to_string(), profiler.display().to_string());
    for order in [format!("{profiler}:{pario}"), format!("{pario}:{profiler}")] {
        // `pario run` appends its own library to the preloaded ones, unless it is among them.
        let set = format!("LD_PRELOAD={order}");
        let words = ["env", set.as_str(), program.as_str(), "pario://p/", dir.as_str()];
        let ran = world.run_with(&["--mpi", "none"], 2, &words, &[]);
        let name = format!("{}, {order}", installation.name());
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{name}: {}\n{}", ran.out, ran.complaints());
        for call in ["open", "set_view", "write_at_all", "close"] {
            assert!(0 < ran.served_call(call), "{name}: {call} was not served: {}", ran.err);
        }
        // The library that is first in the order sees the program's own calls; Pario's internal calls use the profiling names.
        if order.starts_with(&profiler) {
            assert!(ran.served_call("open") <= seen(&ran, "open"), "{name}: {}", ran.err);
            assert_eq!(seen(&ran, "close"), ran.served_call("close"), "{name}: {}", ran.err);
        }
    }
}

#[test]
fn a_profiler_preloaded_in_either_order() {
    chosen().iter().for_each(|installation| run(*installation));
}
