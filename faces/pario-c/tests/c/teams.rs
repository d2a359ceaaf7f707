//! `omp_file.h`: every function, on plain files, containers and partitions, by gcc, g++ and clang.

use crate::compilers::Compiler;
use crate::fixture::Workplace;

/// Runs `calls.c`; Pario must have served its calls.
fn check_calls(compiler: Compiler, threads: u64, variables: &[(&str, &str)]) {
    let world = Workplace::new();
    let program = world.program(compiler, "calls.c");
    let ran = world.run(&[program.as_os_str(), "file".as_ref(), threads.to_string().as_ref()], variables);
    let what = format!("{compiler:?}, {threads} threads, {variables:?}");
    ran.check(&what);
    // 17 calls of every team size, and parts of every thread.
    assert!(40 <= ran.counted("calls") && 25 * threads <= ran.counted("parts"), "{what}: {}", ran.err);
    assert!(20 <= ran.counted("items"), "{what}: {}", ran.err);
}

#[test]
fn every_function_by_every_compiler() {
    for compiler in Compiler::OF_C.into_iter().filter(|compiler| compiler.is_here()) {
        check_calls(compiler, 4, &[]);
    }
}

#[test]
fn teams_of_several_sizes_on_both_kinds_of_files() {
    for compiler in [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| compiler.is_here()) {
        check_calls(compiler, 1, &[]);
        check_calls(compiler, 2, &[("OMP_WAIT_POLICY", "active")]);
        // More threads than processors.
        check_calls(compiler, 9, &[("OMP_WAIT_POLICY", "passive")]);
        check_calls(compiler, 3, &[("PARIO_TEAM", "target=log")]);
    }
}

#[test]
fn a_partition_serves_every_function() {
    for compiler in [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| compiler.is_here()) {
        let world = Workplace::new();
        let program = world.program(compiler, "calls.c");
        let ran = world.run_on_partition(&[], &program, &["pario://p/file", "4"], &[]);
        ran.check(compiler.command());
        assert!(ran.err.contains("pario: team: pario://p/file: calls"), "{}", ran.err);
        // Small parts are committed by their members themselves.
        assert!(0 < ran.counted("own parts"), "{}", ran.err);
    }
}

#[test]
fn opened_outside_inside_nested_and_by_two_initial_threads() {
    for compiler in Compiler::OF_C.into_iter().filter(|compiler| compiler.is_here()) {
        let world = Workplace::new();
        let program = world.program(compiler, "places.c");
        for policy in ["active", "passive"] {
            let dir = world.path(policy);
            std::fs::create_dir(&dir).unwrap();
            let ran = world.run(&[program.as_os_str(), dir.as_os_str()], &[("OMP_WAIT_POLICY", policy)]);
            ran.check(&format!("{compiler:?}, {policy}"));
            assert!(50 <= ran.counted("calls"), "{}", ran.err);
        }
        if compiler != Compiler::Gxx {
            world.run_on_partition(&[], &program, &["pario://p"], &[]).check(compiler.command());
        }
    }
}

/// A program for OpenUH's library, with its declarations.
#[test]
fn declarations_of_others_hold() {
    for compiler in [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| compiler.is_here()) {
        let world = Workplace::new();
        let program = world.program(compiler, "openuh.c");
        world.run(&[program.as_os_str(), "file".as_ref()], &[]).check(compiler.command());
        let content = std::fs::read(world.path("file")).unwrap();
        assert_eq!(content, b"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(world.path("file")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o600, 0o600, "a file without a mode can be used by its owner");
    }
}

/// Nothing hangs: a thread that does not come is named, and two teams on one handle end.
#[test]
fn a_missing_thread_and_two_teams_on_one_handle() {
    for compiler in [Compiler::Gcc, Compiler::Clang].into_iter().filter(|compiler| compiler.is_here()) {
        let world = Workplace::new();
        let program = world.program(compiler, "lost.c");
        let words = [program.as_os_str(), "file".as_ref()];
        world.run(&words, &[("PARIO_TEAM_PATIENCE", "300ms")]).check(compiler.command());
    }
}
