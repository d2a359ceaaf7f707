//! The sum that `./test` prints and CI reads, from captured output of `cargo test`.

use std::io::Write;
use std::process::{Command, Stdio};

/// `log` as cargo's output with exit code `status` gives "passed failed ignored filtered".
#[track_caller]
fn check(log: &str, status: u8, expected: &str) {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/count-tests.awk");
    let mut awk = Command::new("awk")
        .args(["-v", &format!("status={status}"), "-f", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("awk starts");
    let mut stdin = awk.stdin.take().expect("stdin is piped");
    stdin.write_all(log.as_bytes()).expect("awk reads");
    drop(stdin);
    let output = awk.wait_with_output().expect("awk ends");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{log}");
}

const GREEN: &str = "
     Running unittests src/lib.rs (target/debug/deps/a-1)

running 3 tests
test one ... ok
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
   Doc-tests a
test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.20s
";
const RED: &str = "
test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
error: test failed, to rerun pass `-p b --lib`
";

#[test]
fn adds_up_all_binaries() {
    check(GREEN, 0, "12 0 1 4");
    check(&format!("{GREEN}{RED}error: 1 target failed:\n    `-p b --lib`\n"), 101, "17 2 1 4");
}

#[test]
fn counts_a_crashed_binary_once() {
    let crash = "error: test failed, to rerun pass `-p c --test it`\nCaused by:\n  process didn't exit successfully\n";
    let end = "error: 2 targets failed:\n    `-p b --lib`\n    `-p c --test it`\n";
    check(&format!("{GREEN}{RED}{crash}{end}"), 101, "17 3 1 4");
}

#[test]
fn never_turns_a_failure_of_cargo_into_success() {
    check("error: could not compile `a` (lib) due to 1 previous error\n", 101, "0 1 0 0");
    check(GREEN, 124, "12 1 1 4");
    check("", 0, "0 0 0 0");
}

#[test]
fn finds_a_result_behind_stray_output() {
    check(
        "noise test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished\n",
        0,
        "1 0 0 0",
    );
}
