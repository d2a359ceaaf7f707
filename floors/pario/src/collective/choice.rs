//! Chooses the method of a file's collective accesses, and gives the reason; pure, without communication.
//!
//! Always: all ranks choose the same, since all pass the same facts.

use crate::partition::choices::Method;

/// With more processes per aggregator the aggregator, not the network, limits the rate.
const PROCESSES_PER_AGGREGATOR_MAX: usize = 36;

/// Input of the choice; equal on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct MethodFacts {
    /// Requested for this open.
    pub(super) file: Option<Method>,
    /// Set for the partition.
    pub(super) partition: Method,
    /// Whether the node cache of the application is allowed.
    pub(super) cache: bool,
    /// Whether every rank shares memory with every server of the file.
    pub(super) servers_near: bool,
    pub(super) ranks: usize,
    pub(super) nodes: usize,
}

/// A method and the reason for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MethodChoice {
    pub(super) method: Method,
    pub(super) why: String,
}

/// Chooses the method for the collective accesses of a file.
pub(super) fn choose(facts: &MethodFacts) -> MethodChoice {
    let because = |method, why: &str| MethodChoice { method, why: why.to_owned() };
    let allowed = |choice: MethodChoice| {
        if choice.method == Method::ClientDirected && !facts.cache {
            return because(
                Method::ServerDirected,
                "client-directed was requested, but its cache is switched off",
            );
        }
        choice
    };
    match (facts.file, facts.partition) {
        (Some(method), _) if method != Method::Auto => {
            allowed(because(method, "it was requested for this file"))
        }
        (_, method) if method != Method::Auto => allowed(because(method, "it is set for this partition")),
        (Some(_) | None, _) => by_facts(facts),
    }
}

fn by_facts(facts: &MethodFacts) -> MethodChoice {
    let per_aggregator = facts.ranks.div_ceil(facts.nodes.max(1));
    let (method, why) = if facts.servers_near {
        (Method::ServerDirected, "all servers share memory with all processes".to_owned())
    } else if !facts.cache {
        (Method::ServerDirected, "the application's own cache is switched off".to_owned())
    } else if PROCESSES_PER_AGGREGATOR_MAX < per_aggregator {
        (
            Method::ServerDirected,
            format!("{per_aggregator} processes per node would overload their aggregator"),
        )
    } else {
        (
            Method::ClientDirected,
            "servers are on other nodes: merging on the local node hides the network".to_owned(),
        )
    };
    MethodChoice { method, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: MethodFacts = MethodFacts {
        file: None,
        partition: Method::Auto,
        cache: true,
        servers_near: true,
        ranks: 4,
        nodes: 1,
    };

    #[track_caller]
    fn check(facts: MethodFacts, method: Method, why: &str) {
        let choice = choose(&facts);
        assert_eq!(choice.method, method, "{choice:?}");
        assert!(choice.why.contains(why), "{choice:?}");
    }

    #[test]
    fn wishes_go_before_settings_and_settings_before_facts() {
        let set = MethodFacts { partition: Method::TwoPhase, ..HERE };
        check(HERE, Method::ServerDirected, "share memory");
        check(set, Method::TwoPhase, "partition");
        check(MethodFacts { file: Some(Method::ClientDirected), ..set }, Method::ClientDirected, "file");
        check(MethodFacts { file: Some(Method::Auto), ..set }, Method::TwoPhase, "partition");
    }

    #[test]
    fn the_network_is_hidden_where_there_is_one_and_aggregators_are_no_hubs() {
        let far = MethodFacts { servers_near: false, nodes: 2, ..HERE };
        check(far, Method::ClientDirected, "hides the network");
        check(MethodFacts { cache: false, ..far }, Method::ServerDirected, "switched off");
        check(MethodFacts { ranks: 100, ..far }, Method::ServerDirected, "overload");
        check(
            MethodFacts { file: Some(Method::ClientDirected), cache: false, ..far },
            Method::ServerDirected,
            "switched off",
        );
    }
}
