//! Ranks on several simulated nodes: they connect over TCP, share no memory, and use servers over TCP; every method of collective
//! access.

use crate::fixture::MpiFixture;
use crate::installations::MpiInstallation;

/// Rank 0 on one node, two more on another.
fn on_two_nodes(installation: MpiInstallation, source: &str) {
    let world = MpiFixture::new(installation);
    let options = ["-std=c99", "-Wno-unused-function"];
    let program = world.compile(&installation.compiler(), &format!("c/{source}.c"), &options);
    let (program, dir) = (program.display().to_string(), world.path("").display().to_string());
    let label = |node: &str| {
        if installation == MpiInstallation::OpenMpi {
            return ["-x".to_owned(), format!("PARIO_NODE={node}"), String::new()];
        }
        ["-env".to_owned(), "PARIO_NODE".to_owned(), node.to_owned()]
    };
    let (first, second) = (label("a"), label("b"));
    let mut words: Vec<&str> = first.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
    words.extend([program.as_str(), "pario://p/", dir.as_str(), ":", "-n", "2"]);
    words.extend(second.iter().map(String::as_str).filter(|word| !word.is_empty()));
    words.extend([program.as_str(), "pario://p/", dir.as_str()]);
    // Plain files are Pario's too, so that ranks can request both kinds in one call.
    let variables = [("PARIO_TRANSPORT", "tcp"), ("PARIO_EXPLAIN", "1"), ("PARIO_CACHE", "1")];
    let ran = world.run(1, &words, &variables);
    let name = format!("{source} on {}, two nodes", installation.name());
    assert!(ran.ok && ran.out.contains(", 0 failures"), "{name}: {}\n{}", ran.out, ran.complaints());
    assert!(ran.err.contains("client-directed: servers are on other nodes"), "{name}: {}", ran.err);
    assert!(3 * 5 <= ran.served_call("open"), "{name}: {}", ran.err);
}

#[test]
fn ranks_on_two_nodes_meet_over_tcp_on_mpich() {
    on_two_nodes(MpiInstallation::Mpich, "access");
}

#[test]
fn ranks_on_two_nodes_meet_over_tcp_on_open_mpi() {
    on_two_nodes(MpiInstallation::OpenMpi, "access");
}

#[test]
fn every_method_gives_the_same() {
    for method in ["server-directed", "client-directed", "two-phase"] {
        let installation = MpiInstallation::Mpich;
        let world = MpiFixture::new(installation);
        std::fs::write(world.path("hints"), format!("pario_method {method}\n")).unwrap();
        let options = ["-std=c99", "-Wno-unused-function"];
        let program = world.compile(&installation.compiler(), "c/access.c", &options).display().to_string();
        let (hints, dir) = (world.path("hints").display().to_string(), world.path("").display().to_string());
        let variables = [("PARIO_HINTS", hints.as_str()), ("PARIO_EXPLAIN", "1")];
        let ran = world.run(2, &[program.as_str(), "pario://p/", dir.as_str()], &variables);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{method}: {}\n{}", ran.out, ran.complaints());
        assert!(
            ran.err.contains(&format!("{method}: it was requested for this file")),
            "{method}: {}",
            ran.err
        );
    }
}
