//! Any body to every decoder: what decodes encodes to bytes that decode to the same.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use pario_core::codec::{Encode, from_bytes, to_bytes};
use pario_net::greeting::{Challenge, Hello, Proof, Welcome};
use pario_net::message::{Notice, Reply, Request};

fn round_trip<T: Encode + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(message) = from_bytes::<T>(bytes) {
        let again = from_bytes::<T>(&to_bytes(&message)).expect("what was encoded decodes");
        assert_eq!(message, again);
    }
}

fuzz_target!(|bytes: &[u8]| {
    round_trip::<Request>(bytes);
    round_trip::<Reply>(bytes);
    round_trip::<Notice>(bytes);
    round_trip::<Hello>(bytes);
    round_trip::<Challenge>(bytes);
    round_trip::<Proof>(bytes);
    round_trip::<Welcome>(bytes);
});
