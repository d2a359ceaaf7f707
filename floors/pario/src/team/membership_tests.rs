//! Membership as tables, and against a brute-force answer.

use super::*;

fn position(levels: &[(u32, u32)]) -> Position {
    Position::from_levels(levels.iter().map(|&(number, size)| TeamLevel { number, size })).unwrap()
}

fn membership(members: &[&[(u32, u32)]]) -> Membership {
    let mut membership = Membership::default();
    for levels in members {
        membership.add(position(levels)).unwrap();
    }
    membership
}

#[test]
fn the_first_missing_thread_is_known_from_those_that_came() {
    #[expect(clippy::type_complexity, reason = "a table")]
    let table: &[(&[&[(u32, u32)]], Option<&[(u32, u32)]>)] = &[
        (&[&[]], None),
        (&[&[(0, 1)]], None),
        (&[&[(0, 2)]], Some(&[(1, 2)])),
        (&[&[(1, 2)]], Some(&[(0, 2)])),
        (&[&[(1, 2)], &[(0, 2)]], None),
        (&[&[(3, 4)], &[(0, 4)], &[(1, 4)]], Some(&[(2, 4)])),
        (&[&[(0, 2), (0, 2)], &[(0, 2), (1, 2)]], Some(&[(1, 2)])),
        (&[&[(0, 2)], &[(1, 2), (0, 3)], &[(1, 2), (2, 3)]], Some(&[(1, 2), (1, 3)])),
        (&[&[(0, 2)], &[(1, 2), (0, 1), (0, 1)]], None),
    ];
    for (members, missing) in table {
        assert_eq!(membership(members).first_missing(), missing.map(position), "{members:?}");
    }
}

#[test]
fn members_are_in_the_order_of_their_positions() {
    let inner = [[(1, 2), (2, 3)], [(0, 2), (1, 2)], [(1, 2), (0, 3)], [(0, 2), (0, 2)], [(1, 2), (1, 3)]];
    let members: Vec<&[(u32, u32)]> = inner.iter().map(|levels| &levels[..]).collect();
    let membership = membership(&members);
    let names: Vec<String> = membership.members().iter().map(|member| member.position.to_string()).collect();
    assert_eq!(names, ["0.0", "0.1", "1.0", "1.1", "1.2"]);
    let arrivals: Vec<usize> = membership.members().iter().map(|member| member.arrival).collect();
    assert_eq!(arrivals, [3, 1, 2, 4, 0]);
}

#[test]
fn positions_of_two_teams_are_refused() {
    let mut some = membership(&[&[(0, 4)], &[(2, 4)]]);
    assert_eq!(some.add(position(&[(2, 4)])), Err(Mismatch::Twice));
    assert_eq!(some.add(position(&[(1, 3)])), Err(Mismatch::Size { other: position(&[(0, 4)]) }));
    assert_eq!(some.add(position(&[(2, 4), (0, 2)])), Err(Mismatch::Nested { other: position(&[(2, 4)]) }));
    let mut inner = membership(&[&[(1, 2), (1, 3)]]);
    assert_eq!(inner.add(position(&[(1, 2)])), Err(Mismatch::Nested { other: position(&[(1, 2), (1, 3)]) }));
    assert_eq!(
        inner.add(position(&[(1, 2), (0, 4)])),
        Err(Mismatch::Size { other: position(&[(1, 2), (1, 3)]) })
    );
    assert_eq!(inner.add(position(&[(0, 2)])), Ok(1));
}

/// All threads of a random nest of teams, in order.
fn nest(place: Position, depth: u32, random: &mut impl FnMut(u32) -> u32) -> Vec<Position> {
    let size = 1 + random(3);
    (0..size)
        .flat_map(|number| {
            let child = place.inner(number, size).unwrap();
            if depth < 3 && random(3) == 0 { nest(child, depth + 1, random) } else { vec![child] }
        })
        .collect()
}

#[test]
fn any_order_of_any_nest_is_complete_when_the_last_one_comes() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state % u64::from(below)).unwrap()
    };
    for _ in 0..500 {
        let all = nest(Position::ALONE, 0, &mut random);
        let mut order = all.clone();
        for at in (1..order.len()).rev() {
            order.swap(at, random(u32::try_from(at + 1).unwrap()) as usize);
        }
        let mut membership = Membership::default();
        for (count, position) in order.iter().enumerate() {
            let came = &order[..count];
            if 0 < count {
                let missing = membership.first_missing().expect("one is missing");
                let first = all.iter().find(|position| !came.contains(position)).unwrap();
                // A team of which no thread has come is missing as a whole.
                assert!(first.levels().starts_with(missing.levels()), "{missing} {first} of {all:?}");
                for position in came {
                    let before = all.iter().take_while(|other| *other < position);
                    let expected = before.into_iter().all(|other| came.contains(other));
                    assert_eq!(membership.is_complete_before(position), expected);
                }
            }
            membership.add(*position).unwrap();
        }
        assert_eq!(membership.first_missing(), None);
        assert!(membership.members().iter().map(|member| member.position).eq(all));
    }
}
