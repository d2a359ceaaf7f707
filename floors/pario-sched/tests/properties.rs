//! Random histories over every policy: no request is lost or issued twice, overlapping bytes keep their order, no request that could be
//! served is left waiting, and the same calls give the same answers. The checks themselves are in `common`.
//!
//! A failure prints its case; `PROPTEST_RNG_SEED` repeats a run, `PROPTEST_CASES` sets how many there are.

mod common;

use common::VirtualHost;
use pario_sched::{
    Aggregation, ApplicationId, Controller, FileId, HostId, IoKind, Options, Pick, Request, SwitchCost,
    Vectored, policy_names,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum HostAct {
    Post(Request),
    Start,
    Finish,
    Pass(u64),
    Withdraw(u64),
    Weigh(u64, u32),
}

fn act() -> impl Strategy<Value = HostAct> {
    let post = (0..3_u64, 0..4_u64, any::<bool>(), 0..24_u64, 0..6_u64, prop::option::of(0..5000_u64))
        .prop_map(|(file, application, writes, offset, length, deadline_us)| {
            let kind = if writes { IoKind::Write } else { IoKind::Read };
            let request =
                Request::read(FileId(file), ApplicationId(application), offset * 512, length * 512, 0);
            HostAct::Post(Request { kind, deadline_us, ..request })
        });
    prop_oneof![
        8 => post,
        6 => Just(HostAct::Start),
        5 => Just(HostAct::Finish),
        2 => (1..3000_u64).prop_map(HostAct::Pass),
        1 => (0..4_u64).prop_map(HostAct::Withdraw),
        1 => (0..4_u64, 1..4_u32).prop_map(|(application, weight)| HostAct::Weigh(application, weight)),
    ]
}

#[derive(Debug, Clone)]
struct PropertySetting {
    options: Options,
    vectored: Vectored,
}

fn setting() -> impl Strategy<Value = PropertySetting> {
    let aggregation = prop_oneof![Just(Aggregation::ByPolicy), Just(Aggregation::Off), Just(Aggregation::On)];
    let vectored = prop_oneof![
        Just(Vectored::Never),
        (1..5_usize).prop_map(|parts_max| Vectored::Contiguous { parts_max }),
        (1..5_usize).prop_map(|parts_max| Vectored::Ranges { parts_max }),
    ];
    let quantum = (any::<bool>(), 0..4_u64, 0..2000_u64, any::<bool>());
    (aggregation, vectored, quantum, 1..9_usize, 0..3_u64).prop_map(
        |(aggregation, vectored, (adaptive, doublings, switch_us, measured), aggregate_parts_max, near)| {
            let mut options =
                Options { aggregation, aggregate_parts_max, near_bytes: near * 512, ..Options::default() };
            options.aggregate_bytes_max = 4096;
            options.tbf_bytes_per_second = 1 << 20;
            options.tbf_burst_bytes = 2048;
            options.quantum.adaptive = adaptive;
            options.quantum.bytes_min = 512;
            options.quantum.base_bytes = 1024;
            options.quantum.bytes_max = 1024 << doublings;
            options.quantum.window_bytes = 1024;
            let fixed = SwitchCost::Fixed { us: switch_us };
            options.quantum.switch =
                if measured { SwitchCost::Measured { initial_us: switch_us } } else { fixed };
            options.trace_records_max = 10_000;
            PropertySetting { options, vectored }
        },
    )
}

fn play(policy: &str, setting: &PropertySetting, acts: &[HostAct]) -> VirtualHost {
    let mut controller = Controller::new(policy, setting.options.clone()).expect("the options work");
    controller.set_vectored(HostId::FIRST, setting.vectored);
    let mut host = VirtualHost::new(controller);
    for act in acts {
        match act {
            HostAct::Post(request) => drop(host.try_post(*request)),
            HostAct::Start => {
                let pick = host.start(|run| 20 + run.bytes() / 8);
                let may_wait = policy == "tbf" || policy == "mlf" && setting.options.quantum.adaptive;
                assert!(may_wait || !matches!(pick, Pick::Wait { .. }), "{policy} does not wait");
            }
            HostAct::Finish => drop(host.finish()),
            HostAct::Pass(us) => host.now_us += us,
            HostAct::Withdraw(application) => {
                for (id, _) in host.controller.withdraw(ApplicationId(*application)) {
                    let known = host.known.remove(&id).expect("it was posted");
                    assert!(!known.issued, "a running request is not withdrawn");
                }
            }
            HostAct::Weigh(application, weight) => {
                host.controller.set_weight(ApplicationId(*application), *weight).expect("there are few");
            }
        }
    }
    host.drain();
    host
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_reordered_or_left_lying(
        setting in setting(),
        acts in prop::collection::vec(act(), 0..150),
    ) {
        for policy in policy_names() {
            let host = play(policy, &setting, &acts);
            let statistics = host.controller.statistics();
            let total = &statistics.total;
            prop_assert_eq!(total.posted, total.done + total.withdrawn, "{}", policy);
            prop_assert_eq!(total.served, host.issued.len() as u64);
            prop_assert!(total.virtual_requests <= total.served + total.withdrawn);
            prop_assert_eq!(total.runs, host.runs.len() as u64);
            let posted: u64 = statistics.applications.iter().map(|one| one.totals.posted).sum();
            prop_assert_eq!(posted + statistics.forgotten_applications.posted, total.posted);
            prop_assert_eq!((statistics.waiting, statistics.running), (0, 0));
        }
    }

    #[test]
    fn the_same_calls_give_the_same_answers(setting in setting(), acts in prop::collection::vec(act(), 0..150)) {
        for policy in policy_names() {
            let (one, other) = (play(policy, &setting, &acts), play(policy, &setting, &acts));
            prop_assert_eq!(&one.runs, &other.runs, "{}", policy);
            prop_assert_eq!(one.controller.trace(), other.controller.trace());
        }
    }

    #[test]
    fn runs_are_what_the_host_said_it_can(setting in setting(), acts in prop::collection::vec(act(), 0..100)) {
        for policy in policy_names() {
            for run in &play(policy, &setting, &acts).runs {
                let seamless = run.parts.windows(2).all(|pair| pair[0].offset + pair[0].length == pair[1].offset);
                let (limit, fits) = match setting.vectored {
                    Vectored::Never => (1, true),
                    Vectored::Contiguous { parts_max } => (parts_max, seamless),
                    Vectored::Ranges { parts_max } => (parts_max, true),
                };
                prop_assert!(run.parts.len() <= limit && fits, "{policy}: {run:?}");
            }
        }
    }
}
