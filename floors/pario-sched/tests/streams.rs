//! Adaptive quantum and deliberate waiting (`mlf`), in virtual time on a store where a switch costs: what it saves, that it never loses
//! more than it can save, and that a lone stream is unaffected.

use std::collections::BTreeMap;

use pario_sched::{
    ApplicationId, Controller, FileId, Options, Outcome, Pick, Request, RequestId, SwitchCost, WaitingFigures,
};

const KIB: u64 = 1024;
const SWITCH_US: u64 = 8_000;
const US_PER_KIB: u64 = 20;

/// A client that reads its file from start to end, one request after the other.
#[derive(Clone, Copy)]
struct TestStream {
    length: u64,
    think_us: u64,
    bytes: u64,
    /// Distance of its requests; `length` is sequential.
    stride: u64,
}

struct Outcomes {
    /// When each stream was finished.
    ends_us: Vec<u64>,
    figures: WaitingFigures,
    switches: u64,
}

/// Runs the streams on a store that serves one run at a time.
fn run_streams(policy: &str, options: Options, streams: &[TestStream]) -> Outcomes {
    let mut controller = Controller::new(policy, options).expect("the options work");
    let mut now_us = 0;
    let mut wakes: BTreeMap<(u64, usize), ()> = (0..streams.len()).map(|at| ((0, at), ())).collect();
    let mut places = vec![0; streams.len()];
    let mut owners: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut outcomes =
        Outcomes { ends_us: vec![0; streams.len()], figures: WaitingFigures::default(), switches: 0 };
    let mut head = (FileId(u64::MAX), 0);
    loop {
        while let Some(((at_us, stream), ())) = wakes.first_key_value().map(|(key, ())| (*key, ())) {
            if now_us < at_us {
                break;
            }
            wakes.pop_first();
            let id = stream as u64;
            let TestStream { length, stride, .. } = streams[stream];
            let request =
                Request::read(FileId(id), ApplicationId(id), places[stream] * stride, length, at_us);
            owners.insert(controller.post(request).expect("accepted"), stream);
            places[stream] += 1;
        }
        let next_wake = wakes.first_key_value().map(|((at_us, _), ())| *at_us);
        match controller.next(now_us) {
            Pick::Serve(run) => {
                let elsewhere = head != (run.file, run.offset());
                outcomes.switches += u64::from(elsewhere);
                now_us += run.bytes() / KIB * US_PER_KIB + if elsewhere { SWITCH_US } else { 0 };
                head = (run.file, run.offset() + run.bytes());
                for part in run.parts {
                    controller
                        .complete(part.id, now_us, Outcome::Done { bytes: part.length })
                        .expect("it runs");
                    let stream = owners[&part.id];
                    if places[stream] * streams[stream].length < streams[stream].bytes {
                        wakes.insert((now_us + streams[stream].think_us, stream), ());
                    } else {
                        outcomes.ends_us[stream] = now_us;
                    }
                }
            }
            Pick::Wait { until_us } => now_us = until_us.min(next_wake.unwrap_or(u64::MAX)),
            Pick::Idle => match next_wake {
                Some(at_us) => now_us = at_us,
                None => break,
            },
        }
    }
    outcomes.figures = controller.statistics().deliberate;
    outcomes
}

fn sequential(length: u64, think_us: u64, bytes: u64) -> TestStream {
    TestStream { length, think_us, bytes, stride: length }
}

fn end_us(outcomes: &Outcomes) -> u64 {
    outcomes.ends_us.iter().copied().max().unwrap_or(0)
}

fn options(switch: SwitchCost) -> Options {
    let mut options = Options::default();
    options.quantum.switch = switch;
    options
}

const MEASURED: SwitchCost = SwitchCost::Measured { initial_us: 2_000 };

#[test]
fn two_synchronous_streams_are_served_in_long_turns() {
    let streams = [sequential(32 * KIB, 300, 256 << 20); 2];
    let plain = run_streams("fifo", Options::default(), &streams);
    for switch in [MEASURED, SwitchCost::Fixed { us: SWITCH_US }] {
        let turns = run_streams("mlf", options(switch), &streams);
        assert!(end_us(&plain) > 5 * end_us(&turns), "fifo {} us, mlf {} us", end_us(&plain), end_us(&turns));
        assert!(
            turns.switches * 20 < plain.switches,
            "{} switches against {}",
            turns.switches,
            plain.switches
        );
        assert!(turns.figures.waited_miss_us <= turns.figures.won_us + 4 * SWITCH_US, "{:?}", turns.figures);
        assert!(turns.figures.hits * 10 > turns.figures.waits * 9, "{:?}", turns.figures);
        let gap = turns.ends_us[0].abs_diff(turns.ends_us[1]);
        assert!(gap * 20 <= end_us(&turns), "they end {gap} us apart of {} us", end_us(&turns));
    }
}

#[test]
fn waiting_never_costs_more_than_it_can_win() {
    // Think times around and far beyond a switch, alone and mixed with streams that are worth waiting for.
    for think_us in [0, 100, 1_000, 4_000, 7_000, 9_000, 20_000, 100_000] {
        for other_us in [0, 500, 9_000, 50_000] {
            let streams = [sequential(32 * KIB, think_us, 4 << 20), sequential(16 * KIB, other_us, 4 << 20)];
            let mut never = options(SwitchCost::Fixed { us: 0 });
            let without = run_streams("mlf", never.clone(), &streams);
            assert_eq!(
                without.figures,
                WaitingFigures::default(),
                "a switch that costs nothing is not waited for"
            );
            never.quantum.switch = MEASURED;
            let with = run_streams("mlf", never, &streams);
            let WaitingFigures { waited_miss_us, won_us, .. } = with.figures;
            assert!(
                waited_miss_us <= won_us + 4 * 2 * SWITCH_US,
                "{think_us}, {other_us}: {:?}",
                with.figures
            );
            assert!(
                end_us(&with) * 100 <= end_us(&without) * 103,
                "thinking {think_us} and {other_us} us: {} with waiting, {} without",
                end_us(&with),
                end_us(&without)
            );
        }
    }
}

#[test]
fn a_lone_stream_is_served_as_without_a_scheduler() {
    for (length, think_us) in [(4 * KIB, 0), (32 * KIB, 300), (1024 * KIB, 5_000)] {
        let stream = [sequential(length, think_us, 8 << 20)];
        let (plain, scheduled) = (
            run_streams("fifo", Options::default(), &stream),
            run_streams("mlf", options(MEASURED), &stream),
        );
        assert_eq!(plain.ends_us, scheduled.ends_us);
        assert_eq!(scheduled.figures, WaitingFigures::default());
    }
}

#[test]
fn a_small_stream_beside_a_large_one_is_soon_done_and_costs_little() {
    let small = sequential(32 * KIB, 300, 1 << 20);
    let large = TestStream { length: 1024 * KIB, think_us: 300, bytes: 128 << 20, stride: 1024 * KIB };
    let plain = run_streams("fifo", Options::default(), &[small, large]);
    let turns = run_streams("mlf", options(MEASURED), &[small, large]);
    assert!(
        turns.ends_us[0] * 2 < plain.ends_us[0],
        "small: fifo {}, mlf {}",
        plain.ends_us[0],
        turns.ends_us[0]
    );
    assert!(
        turns.ends_us[1] <= plain.ends_us[1],
        "large: fifo {}, mlf {}",
        plain.ends_us[1],
        turns.ends_us[1]
    );
}

#[test]
fn scattered_readers_are_not_waited_for_for_long() {
    let scattered = TestStream { length: 4 * KIB, think_us: 200, bytes: 1 << 20, stride: 8192 * KIB };
    let outcomes = run_streams("mlf", options(MEASURED), &[scattered, scattered]);
    assert!(
        outcomes.figures.waited_miss_us <= outcomes.figures.won_us + 4 * SWITCH_US,
        "{:?}",
        outcomes.figures
    );
}

/// Decision about another stream's request after a stream of eight reads, of which the last moved so many bytes.
fn after_a_stream(last_bytes: u64) -> Pick {
    let mut controller =
        Controller::new("mlf", options(SwitchCost::Fixed { us: 5_000 })).expect("the options work");
    for at in 0..8 {
        let now_us = at * 100;
        let request = Request::read(FileId(1), ApplicationId(1), at * 32 * KIB, 32 * KIB, now_us);
        let id = controller.post(request).expect("accepted");
        assert!(matches!(controller.next(now_us), Pick::Serve(_)), "nothing else waits");
        let bytes = if at == 7 { last_bytes } else { 32 * KIB };
        controller.complete(id, now_us + 90, Outcome::Done { bytes }).expect("it runs");
    }
    controller.post(Request::read(FileId(2), ApplicationId(2), 0, 32 * KIB, 800)).expect("accepted");
    controller.next(800)
}

#[test]
fn a_short_read_ends_the_turn_and_the_waiting() {
    assert!(matches!(after_a_stream(32 * KIB), Pick::Wait { .. }), "the stream's next request is expected");
    assert!(matches!(after_a_stream(100), Pick::Serve(_)), "none is expected beyond the end of the file");
}
