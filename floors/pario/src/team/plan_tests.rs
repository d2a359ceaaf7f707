//! The plan as a table, and against a byte array.

use super::*;

const RULES: PlanRules = PlanRules { hint: Hint::Unknown, saturation: 1 << 20, active: 4, cut: CUT_BYTES };

fn part(owner: usize, offset: u64, bytes: u64) -> PlannedPart {
    PlannedPart { offset, bytes, owner, buffer: 0, before: 0 }
}

fn plan(parts: &[PlannedPart], rules: PlanRules) -> TeamPlan {
    let mut plan = TeamPlan::default();
    plan.make(&mut parts.to_vec(), rules);
    plan
}

fn spans(plan: &TeamPlan) -> Vec<(u64, u64)> {
    plan.items.iter().map(|item| (item.offset, item.bytes)).collect()
}

#[test]
fn small_totals_are_one_item() {
    let parts = [part(0, 100, 10), part(1, 110, 0), part(2, 110, 30), part(3, 140, 5)];
    for hint in [Hint::Unknown, Hint::Contiguous] {
        let plan = plan(&parts, PlanRules { hint, ..RULES });
        assert_eq!(spans(&plan), [(100, 45)]);
        assert_eq!((plan.joined, plan.is_small, plan.is_hint_false), (2, true, false));
        let owners: Vec<usize> = plan.pieces.iter().map(|piece| piece.owner).collect();
        assert_eq!(owners, [0, 2, 3]);
    }
    assert_eq!(spans(&plan(&[], RULES)), []);
}

#[test]
fn large_totals_are_divided_by_active_members_or_by_the_saturation_size() {
    let mib = 1 << 20;
    let table = [
        // Each of four has more than the saturation size: four equal shares.
        (0, 16 * mib, vec![(0, 4 * mib), (4 * mib, 4 * mib), (8 * mib, 4 * mib), (12 * mib, 4 * mib)]),
        // Not more: pieces of the saturation size.
        (0, 3 * mib, vec![(0, mib), (mib, mib), (2 * mib, mib)]),
        (0, 4 * mib, vec![(0, mib), (mib, mib), (2 * mib, mib), (3 * mib, mib)]),
        // Cuts are multiples of 4 KiB, however the run begins.
        (100, 2 * mib, vec![(100, mib - 100), (mib, mib), (2 * mib, 100)]),
        (0, mib, vec![(0, mib)]),
    ];
    for (offset, bytes, expected) in table {
        let plan = plan(&[part(0, offset, bytes)], RULES);
        let last_is_short = (offset, bytes) == (100, 2 * mib);
        // A rest below half a cut is not an item of its own.
        let expected = if last_is_short { vec![(100, mib - 100), (mib, mib + 100)] } else { expected };
        assert_eq!(spans(&plan), expected, "{offset} {bytes}");
    }
}

#[test]
fn shares_of_a_partition_end_at_stripes() {
    let rules = PlanRules { saturation: 100_000, active: 2, cut: 64 << 10, ..RULES };
    let plan = plan(&[part(0, 1000, 1_000_000)], rules);
    assert!(plan.items.len() == 2 && plan.items[1].offset.is_multiple_of(64 << 10), "{:?}", spans(&plan));
}

#[test]
fn a_false_hint_is_noticed_and_costs_an_analysis() {
    let parts = [part(0, 50, 10), part(1, 40, 10), part(2, 70, 1)];
    let told = plan(&parts, PlanRules { hint: Hint::Contiguous, ..RULES });
    assert!(told.is_hint_false);
    assert_eq!(spans(&told), [(40, 20), (70, 1)]);
    let separate = plan(&parts, PlanRules { hint: Hint::NotContiguous, ..RULES });
    assert_eq!(spans(&separate), [(50, 10), (40, 10), (70, 1)]);
}

#[test]
fn every_byte_is_in_one_item_of_its_own_place() {
    let mut state = 1234567u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..2000 {
        let count = 1 + random(6);
        let mut at = random(50);
        let mut parts = Vec::new();
        for owner in 0..count {
            let bytes = if random(4) == 0 { 0 } else { random(3000) };
            // Neighbours, gaps, overlaps.
            at = match random(4) {
                0 => at + random(500),
                1 => at.saturating_sub(random(200)),
                _ => at,
            };
            parts.push(PlannedPart {
                offset: at,
                bytes,
                owner: usize::try_from(owner).unwrap(),
                buffer: 0,
                before: 7,
            });
            at += bytes;
        }
        if random(2) == 0 {
            parts.reverse();
        }
        let hint =
            [Hint::Unknown, Hint::Contiguous, Hint::NotContiguous][usize::try_from(random(3)).unwrap()];
        let rules =
            PlanRules { hint, saturation: 1 + random(2000), active: 1 + random(5), cut: 1 << random(9) };
        let plan = plan(&parts, rules);
        let mut covered: Vec<Vec<u8>> =
            parts.iter().map(|part| vec![0; usize::try_from(part.bytes).unwrap()]).collect();
        for item in &plan.items {
            let mut offset = item.offset;
            for piece in plan.pieces_of(item) {
                let part = parts.iter().find(|part| part.owner == piece.owner).unwrap();
                assert_eq!(part.offset + piece.start, offset);
                assert_eq!(piece.list_start, 7 + piece.start);
                let start = usize::try_from(piece.start).unwrap();
                covered[piece.owner_index(&parts)][start..start + usize::try_from(piece.bytes).unwrap()]
                    .iter_mut()
                    .for_each(|byte| *byte += 1);
                offset += piece.bytes;
            }
            assert_eq!(offset, item.offset + item.bytes);
            assert!(0 < item.bytes);
        }
        assert!(covered.iter().flatten().all(|times| *times == 1), "{parts:?} {rules:?}");
    }
}

impl ItemPiece {
    fn owner_index(&self, parts: &[PlannedPart]) -> usize {
        parts.iter().position(|part| part.owner == self.owner).unwrap()
    }
}
