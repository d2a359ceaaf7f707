//! Chooses the ranks that run servers, spread over the nodes.

use crate::group::Group;

/// The serving ranks: the first of each node, then the second of each, and so on; `None`: one per node.
pub(super) fn choose_servers(group: &dyn Group, wished: Option<usize>) -> Vec<usize> {
    let nodes = (0..group.size()).map(|rank| group.node_of(rank) + 1).max().unwrap_or(1);
    let most = group.size().min(pario_core::limits::SERVERS_MAX);
    let count = wished.unwrap_or(nodes).clamp(1, most);
    let mut seen = vec![0usize; nodes];
    let place_on_node = |rank: usize| {
        let place = &mut seen[group.node_of(rank)];
        *place += 1;
        (*place, rank)
    };
    let mut ranks: Vec<(usize, usize)> = (0..group.size()).map(place_on_node).collect();
    ranks.sort_unstable();
    ranks.into_iter().take(count).map(|(_, rank)| rank).collect()
}
