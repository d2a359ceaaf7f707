//! A large directory, by counts rather than by time.

use pario_store::RealDisk;

use super::world::{LAZY, NamesFixture};
use crate::names::LedgerPace;

const ENTRIES: usize = 100_000;
const PAGE: u32 = 4096;

#[test]
fn a_hundred_thousand_entries_in_one_directory() {
    let pace = LedgerPace { apply_bytes: LedgerPace::default().apply_bytes, ..LAZY };
    let mut world = NamesFixture::with(pace, RealDisk::shared());
    world.run("mkdir d").unwrap();
    // Numbers in an order that is far from that of the names.
    let name = |number: usize| format!("d/f{:06}", number * 7919 % ENTRIES);
    let appends_before = world.names().stats().ledger.appends;
    for number in 0..ENTRIES {
        world.run(&format!("create {}", name(number))).unwrap();
    }
    assert_eq!(world.names().stats().ledger.appends - appends_before, ENTRIES as u64, "one batch per name");
    assert!(0 < world.names().stats().ledger.applied, "some of it went to redb meanwhile");
    assert_eq!(world.attr("stat d").size, ENTRIES as u64);
    check_listing(&mut world);
    world.reopen();
    check_listing(&mut world);
    for number in 0..ENTRIES / 2 {
        world.run(&format!("remove {}", name(number))).unwrap();
    }
    assert_eq!(world.list_in_pages("d", PAGE).len(), ENTRIES - ENTRIES / 2);
    assert_eq!(world.names().stats().inodes, (ENTRIES - ENTRIES / 2) as u64 + 2);
}

fn check_listing(world: &mut NamesFixture) {
    let requests_before = world.request;
    let entries = world.list_in_pages("d", PAGE);
    assert_eq!(world.request - requests_before, ENTRIES.div_ceil(PAGE as usize) as u64, "pages are full");
    for (number, entry) in entries.iter().enumerate() {
        assert_eq!(entry.name, format!("f{number:06}").as_bytes());
    }
    assert_eq!(entries.len(), ENTRIES);
}
