//! Conformance of every policy, run over the table of policies.

mod common;

use common::VirtualHost;
use pario_sched::{
    Aggregation, ApplicationId, Controller, FileId, IoKind, NotRunning, Options, Outcome, Pick, PostRefused,
    Request, SetupError, Vectored, policy_names,
};

const KIB: u64 = 1024;

fn for_each(check: impl Fn(&str, fn(&str, Options) -> VirtualHost)) {
    let make: fn(&str, Options) -> VirtualHost =
        |policy, options| VirtualHost::new(Controller::new(policy, options).expect("the options work"));
    policy_names().into_iter().for_each(|policy| check(policy, make));
}

fn read(file: u64, application: u64, offset: u64, length: u64) -> Request {
    Request::read(FileId(file), ApplicationId(application), offset, length, 0)
}

fn write(file: u64, application: u64, offset: u64, length: u64) -> Request {
    Request::write(FileId(file), ApplicationId(application), offset, length, 0)
}

#[test]
fn the_list_is_complete_and_an_unknown_name_gets_it() {
    assert_eq!(policy_names(), ["fifo", "mlf", "wsjf", "sjf", "deadline", "tbf", "wfq"]);
    let error = Controller::new("cfq", Options::default()).unwrap_err();
    assert_eq!(error, SetupError::UnknownPolicy { name: "cfq".to_owned(), known: policy_names() });
    assert_eq!(
        error.to_string(),
        "no scheduling policy is called `cfq`; there are fifo, mlf, wsjf, sjf, deadline, tbf, wfq"
    );
}

#[test]
fn impossible_options_are_refused_by_name() {
    let error = Controller::new("mlf", Options { queue_max: 0, ..Options::default() }).unwrap_err();
    assert!(error.to_string().contains("queue_max"), "{error}");
    let mut options = Options::default();
    options.quantum.bytes_max = options.quantum.base_bytes - 1;
    assert!(Controller::new("mlf", options).unwrap_err().to_string().contains("quantum.bytes_max"));
}

#[test]
fn everything_is_served_once() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        for at in 0..200 {
            let request = if at % 3 == 0 { write } else { read };
            host.post(request(at % 4, at % 5, (at * 7 % 50) * 4 * KIB, 4 * KIB));
        }
        host.drain();
        let total = host.controller.statistics().total;
        assert_eq!((total.posted, total.served, total.done), (200, 200, 200), "{policy}");
    });
}

#[test]
fn nothing_posted_is_idle() {
    for_each(|policy, make| {
        assert_eq!(make(policy, Options::default()).start(|_| 1), Pick::Idle, "{policy}")
    });
}

#[test]
fn overlapping_bytes_keep_their_order() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        let first = host.post(write(1, 1, 0, 8 * KIB));
        let behind = host.post(read(1, 2, 4 * KIB, 8 * KIB));
        let beside = host.post(read(1, 2, 64 * KIB, 4 * KIB));
        let again = host.post(write(1, 1, 6 * KIB, KIB));
        let mut told: Vec<_> =
            host.start_all().iter().flat_map(|run| run.parts.clone()).map(|part| part.id).collect();
        told.sort_unstable();
        assert_eq!(told, [first, beside], "{policy}: the others wait for the first write");
        host.drain();
        let place = |id| host.issued.iter().position(|told| *told == id);
        assert!(place(first) < place(behind) && place(behind) < place(again), "{policy}");
        assert_eq!(host.controller.statistics().total.held, 2, "{policy}");
    });
}

#[test]
fn readers_of_the_same_bytes_do_not_hold_each_other_back() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        for application in 0..8 {
            host.post(read(1, application, 0, 4 * KIB));
        }
        let told: usize = host.start_all().iter().map(|run| run.parts.len()).sum();
        assert_eq!(told, 8, "{policy}");
        host.drain();
    });
}

#[test]
fn zero_length_overlaps_nothing_and_stays_alone() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { aggregation: Aggregation::On, ..Options::default() });
        host.controller.set_vectored(pario_sched::HostId::FIRST, Vectored::Ranges { parts_max: 16 });
        host.post(write(1, 1, 0, 4 * KIB));
        let empty = host.post(write(1, 1, 2 * KIB, 0));
        host.post(write(1, 1, 4 * KIB, 4 * KIB));
        host.drain();
        let run = host.runs.iter().find(|run| run.parts.iter().any(|part| part.id == empty)).unwrap();
        assert_eq!(run.parts.len(), 1, "{policy}");
        assert_eq!(host.controller.statistics().total.held, 0, "{policy}");
    });
}

#[test]
fn beyond_the_file_is_the_hosts_answer_and_beyond_all_offsets_is_refused() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        let request = read(1, 1, u64::MAX - 4, 8);
        let refused = PostRefused::Range { offset: request.offset, length: request.length };
        assert_eq!(host.try_post(request), Err(refused), "{policy}");
        let far = host.post(read(1, 1, u64::MAX - 8, 8));
        let Pick::Serve(_) = host.start(|_| 10) else { panic!("{policy}: it is served") };
        host.controller.complete(far, 20, Outcome::Done { bytes: 0 }).unwrap();
        assert_eq!(host.controller.statistics().total.read_bytes, 0, "{policy}");
    });
}

#[test]
fn completing_twice_or_too_early_is_an_error() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        let id = host.post(read(1, 1, 0, 8));
        assert_eq!(host.controller.complete(id, 0, Outcome::Failed), Err(NotRunning(id)), "{policy}");
        host.drain();
        assert_eq!(host.controller.complete(id, 0, Outcome::Failed), Err(NotRunning(id)), "{policy}");
        let next = host.post(read(1, 1, 0, 8));
        assert_ne!(id, next, "{policy}: a slot is reused, an id is not");
        assert_eq!(host.controller.complete(id, 0, Outcome::Failed), Err(NotRunning(id)), "{policy}");
        host.drain();
    });
}

#[test]
fn failures_are_counted_and_release_who_waited() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        let bad = host.post(write(1, 1, 0, 8));
        host.post(read(1, 2, 0, 8));
        let Pick::Serve(_) = host.start(|_| 10) else { panic!("{policy}: the write runs") };
        host.under_way.clear();
        host.controller.complete(bad, 5, Outcome::Failed).unwrap();
        host.known.get_mut(&bad).unwrap().done = true;
        host.drain();
        let total = host.controller.statistics().total;
        assert_eq!((total.failed, total.done, total.read_bytes), (1, 1, 8), "{policy}");
    });
}

#[test]
fn a_flood_is_refused_and_others_are_not() {
    for_each(|policy, make| {
        let options = Options { queue_max: 64, application_queue_max: 40, ..Options::default() };
        let mut host = make(policy, options);
        let mut flood = |application: u64| {
            (0..100)
                .take_while(|at| host.try_post(read(application, application, at * 8 * KIB, KIB)).is_ok())
                .count()
        };
        let taken = [flood(1), flood(2), flood(3)];
        assert_eq!(taken, [32, 16, 8], "{policy}: each leaves as many free slots as it uses");
        let refused = host.try_post(read(1, 1, 0, KIB));
        assert_eq!(
            refused,
            Err(PostRefused::ApplicationFull { application: ApplicationId(1), queued: 32, limit: 8 })
        );
        assert_eq!(host.controller.room(ApplicationId(9)), 8, "{policy}");
        host.post(read(9, 9, 0, KIB));
        host.drain();
        let statistics = host.controller.statistics();
        assert_eq!((statistics.total.refused, statistics.applications[0].totals.refused), (4, 2), "{policy}");
        assert_eq!(host.controller.room(ApplicationId(1)), 40, "{policy}");
    });
}

#[test]
fn an_application_that_is_gone_takes_its_requests_with_it() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { aggregation: Aggregation::On, ..Options::default() });
        let running = host.post(write(1, 1, 0, 4 * KIB));
        let Pick::Serve(_) = host.start(|_| 10) else { panic!("{policy}: it runs") };
        let held = host.post(read(1, 1, 0, KIB));
        for at in 0..6 {
            host.post(read(2, at % 2 + 1, at * 4 * KIB, 4 * KIB));
        }
        let blocker = host.post(write(3, 1, 0, KIB));
        let behind = host.post(read(3, 2, 0, KIB));
        let gone = host.controller.withdraw(ApplicationId(1));
        assert_eq!(gone.len(), 5, "{policy}: one held, three waiting, one that held another back");
        assert!(gone.iter().any(|(id, _)| *id == held) && gone.iter().any(|(id, _)| *id == blocker));
        assert!(gone.iter().all(|(id, _)| *id != running));
        for (id, _) in gone {
            host.known.remove(&id);
        }
        host.drain();
        assert!(host.issued.contains(&behind), "{policy}");
        let statistics = host.controller.statistics();
        assert_eq!(statistics.total.withdrawn, 5, "{policy}");
        let left: Vec<u64> = statistics.applications.iter().map(|one| one.application.0).collect();
        assert_eq!(left, [2], "{policy}: forgotten with its last request");
        assert_eq!(statistics.forgotten_applications.withdrawn, 5, "{policy}");
        host.post(read(1, 1, 0, KIB));
        host.drain();
    });
}

#[test]
fn taken_back_between_pick_and_run() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { aggregation: Aggregation::On, ..Options::default() });
        for at in 0..4 {
            host.post(read(1, 1, at * KIB, KIB));
        }
        let Pick::Serve(_) = host.start(|_| 10) else { panic!("{policy}: the first of four runs") };
        let gone = host.controller.withdraw(ApplicationId(1));
        assert_eq!(gone.len(), 3, "{policy}");
        for (id, _) in gone {
            host.known.remove(&id);
        }
        host.post(read(2, 2, 0, KIB));
        host.drain();
    });
}

#[test]
fn a_run_that_never_completes_is_told() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { overdue_us: 1000, ..Options::default() });
        let stuck = host.post(write(1, 7, 0, KIB));
        let Pick::Serve(_) = host.start(|_| u64::MAX / 2) else { panic!("{policy}: it runs") };
        assert_eq!(host.controller.overdue(1000, 10), []);
        let overdue = host.controller.overdue(1001, 10);
        assert_eq!((overdue.len(), overdue[0].id, overdue[0].since_us), (1, stuck, 0), "{policy}");
        assert_eq!(overdue[0].request.application, ApplicationId(7));
        assert_eq!(host.controller.overdue(1001, 0), []);
    });
}

#[test]
fn real_aggregation_gives_runs_that_the_host_can_execute() {
    for_each(|policy, make| {
        let options = Options { aggregation: Aggregation::On, near_bytes: 4 * KIB, ..Options::default() };
        for (vectored, sizes) in [
            (Vectored::Never, vec![1, 1, 1, 1, 1]),
            (Vectored::Contiguous { parts_max: 2 }, vec![2, 1, 1, 1]),
            (Vectored::Contiguous { parts_max: 9 }, vec![3, 1, 1]),
            (Vectored::Ranges { parts_max: 9 }, vec![5]),
        ] {
            let mut host = make(policy, options.clone());
            host.controller.set_vectored(pario_sched::HostId::FIRST, vectored);
            // Three contiguous ones, one that overlaps the third, one after a gap.
            for (offset, length) in [(8, 4), (0, 4), (4, 4), (10, 4), (16, 4)] {
                host.post(read(1, 1, offset * KIB, length * KIB));
            }
            host.drain();
            let told: Vec<usize> = host.runs.iter().map(|run| run.parts.len()).collect();
            assert_eq!(told, sizes, "{policy} {vectored:?}");
            let total = host.controller.statistics().total;
            assert_eq!(
                (total.virtual_requests, total.served, total.runs),
                (1, 5, sizes.len() as u64),
                "{policy}"
            );
        }
    });
}

#[test]
fn hosts_share_a_controller_and_get_their_own_runs() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { aggregation: Aggregation::On, ..Options::default() });
        let second = host.controller.add_host(Vectored::Contiguous { parts_max: 8 });
        host.controller.set_vectored(pario_sched::HostId::FIRST, Vectored::Contiguous { parts_max: 8 });
        for at in 0..4 {
            let request = read(1, 1, at * KIB, KIB);
            host.post(if at < 2 { request } else { Request { host: second, ..request } });
        }
        host.drain();
        let told: Vec<(u32, usize)> =
            host.runs.iter().map(|run| (run.host.number(), run.parts.len())).collect();
        assert_eq!(told, [(0, 2), (1, 2)], "{policy}");
        let mut other = Controller::new(policy, Options::default()).unwrap();
        let stranger = Request { host: second, ..read(1, 1, 0, 1) };
        assert_eq!(other.post(stranger), Err(PostRefused::UnknownHost(second)), "{policy}");
    });
}

#[test]
fn reads_and_writes_are_never_one_run() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { aggregation: Aggregation::On, ..Options::default() });
        host.controller.set_vectored(pario_sched::HostId::FIRST, Vectored::Ranges { parts_max: 99 });
        for at in 0..10 {
            let kind = if at % 2 == 0 { IoKind::Read } else { IoKind::Write };
            host.post(Request { kind, ..read(1, 1, at * KIB, KIB) });
        }
        host.drain();
        assert_eq!(host.runs.len(), 10, "{policy}");
    });
}

#[test]
fn aggregates_stay_within_their_limits() {
    for_each(|policy, make| {
        let limits =
            Options { aggregation: Aggregation::On, aggregate_bytes_max: 8 * KIB, ..Options::default() };
        let mut host = make(policy, Options { aggregate_parts_max: 3, ..limits });
        host.controller.set_vectored(pario_sched::HostId::FIRST, Vectored::Ranges { parts_max: 99 });
        for at in [5, 1, 3, 0, 2, 4, 6, 7, 8] {
            host.post(read(1, 1, at * KIB, KIB));
        }
        host.post(read(2, 1, 0, 64 * KIB));
        host.post(read(2, 1, 64 * KIB, KIB));
        host.drain();
        assert!(host.runs.iter().all(|run| run.parts.len() <= 3), "{policy}");
        let large = host.runs.iter().filter(|run| run.bytes() > 8 * KIB);
        assert_eq!(
            large.map(|run| run.bytes()).collect::<Vec<_>>(),
            [64 * KIB],
            "{policy}: one alone may be larger"
        );
    });
}

#[test]
fn idle_files_and_applications_are_forgotten_within_the_limits() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { files_max: 4, applications_max: 3, ..Options::default() });
        host.controller.set_weight(ApplicationId(0), 5).unwrap();
        for at in 0..20 {
            host.post(read(at, at, 0, KIB));
            host.drain();
        }
        let statistics = host.controller.statistics();
        assert_eq!((statistics.files.len(), statistics.applications.len()), (4, 3), "{policy}");
        assert_eq!(statistics.applications[0].weight, 5, "{policy}: one with a weight stays");
        assert_eq!(statistics.forgotten_files.done, 16, "{policy}");
        for file in 0..4 {
            host.post(read(100 + file, 1, 0, KIB));
        }
        assert_eq!(
            host.try_post(read(200, 1, 0, KIB)),
            Err(PostRefused::TooMany { what: "files", limit: 4 }),
            "{policy}"
        );
        host.drain();
        for at in 0..2 {
            host.post(read(at, 300 + at, 0, KIB));
        }
        let refused = PostRefused::TooMany { what: "applications", limit: 3 };
        assert_eq!(host.try_post(read(0, 400, 0, KIB)), Err(refused), "{policy}");
        host.drain();
    });
}

#[test]
fn the_trace_tells_the_whole_story() {
    for_each(|policy, make| {
        let mut host = make(policy, Options { trace_records_max: 100, ..Options::default() });
        for at in 0..5 {
            host.post(read(1, 1, at * KIB, KIB));
        }
        host.drain();
        let text = host.controller.trace().to_string();
        let words = |word: &str| text.matches(word).count();
        assert_eq!((words(" post "), words(" pick "), words(" done 1024")), (5, 5, 5), "{policy}\n{text}");
        assert_eq!(&text.parse::<pario_sched::Trace>().unwrap().to_string(), &text);
    });
}

#[test]
fn time_that_goes_backwards_counts_as_the_latest() {
    for_each(|policy, make| {
        let mut host = make(policy, Options::default());
        let id = host.controller.post(Request { arrival_us: 1000, ..read(1, 1, 0, KIB) }).unwrap();
        let Pick::Serve(_) = host.controller.next(5) else { panic!("{policy}: it is served") };
        let completion = host.controller.complete(id, 900, Outcome::Done { bytes: KIB }).unwrap();
        assert_eq!((completion.waited_us, completion.service_us), (0, 0), "{policy}");
    });
}
