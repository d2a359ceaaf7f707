//! What a user can do wrong: one line with cause and cure.

use rustix::process::Signal;

use crate::fixture::{ExportProcess, NAME, partition};

#[test]
fn mistakes_are_told_in_one_line() {
    let cli = partition();
    let open = cli.fails(1, &["export", NAME, "--nfs", "0.0.0.0:0"]);
    assert!(open.contains("NFSv3 proves no identity") && open.contains("--allow"), "{open}");
    let unknown = cli.fails(1, &["export", "none"]);
    assert!(unknown.contains("none"), "{unknown}");
    let network = cli.fails(2, &["export", NAME, "--allow", "10.0.0.0/40"]);
    assert!(network.contains("10.0.0.0/40") && network.contains("10.0.0.0/24"), "{network}");
    cli.fails(2, &["export", NAME, "--nfs", "nowhere"]);
    cli.fails(2, &["export", NAME, "--root-squash", "perhaps"]);
    let export = ExportProcess::start(&cli, "127.0.0.1:0");
    let taken = cli.fails(1, &["export", NAME, "--nfs", &export.address.to_string()]);
    assert!(taken.contains("in use") && taken.contains("another port"), "{taken}");
    let status = cli.ok(&["status", NAME]);
    assert!(status.contains(&format!("exported on {} (process ", export.address)), "{status}");
    assert_eq!(export.end(Signal::TERM), 0);
    cli.ok(&["down", NAME, "--destroy"]);
    cli.assert_nothing_left();
    let down = cli.fails(1, &["export", NAME]);
    assert!(down.contains(NAME), "{down}");
}
