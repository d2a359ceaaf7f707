//! Illegal calls: views that are illegal for their file, accesses that the view or the mode does not allow, and ranks that disagree. Each
//! gets the error that MPI defines for it, on every rank, and no rank hangs: afterwards the file works as before.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::small;
use pario::core::Code;
use pario::group::{self, Group};
use pario::{Datatype, Elements, GroupFile, Hints, Method, OpenOptions, Partition, Result};

const METHODS: [Method; 3] = [Method::ServerDirected, Method::ClientDirected, Method::TwoPhase];
const RANKS: usize = 3;
/// The rank with the deviating call.
const ODD: usize = 1;

fn hints(method: Method) -> Hints {
    Hints { method: Some(method), ..Hints::default() }
}

fn bytes(count: i64) -> Datatype {
    Datatype::contiguous(count, &Datatype::elementary(1).unwrap()).unwrap()
}

fn options(client: &Partition) -> OpenOptions {
    client.options().read(true).write(true).create(true)
}

/// Runs one thread per rank, on two nodes; each has its own session.
fn ranks<T: Send>(partition: &Partition, body: impl Fn(&Arc<dyn Group>, &Partition) -> T + Sync) -> Vec<T> {
    let clients: Vec<Partition> = (0..RANKS).map(|_| partition.another_client()).collect();
    let body = &body;
    std::thread::scope(|scope| {
        let members = group::threads_on(&[0, 0, 1]).into_iter().zip(&clients);
        let live = |(group, client): (Arc<dyn Group>, _)| {
            scope.spawn(move || {
                let said = body(&group, client);
                group.leave();
                said
            })
        };
        members.map(live).collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Asserts an error with this code and these words, which names the faulty rank to all others.
#[track_caller]
fn refused<T: std::fmt::Debug>(said: Result<T>, rank: usize, code: Code, words: &str) {
    let error = said.expect_err(words);
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(error.to_string().contains("rank 1"), rank != ODD, "rank {rank}: {error}");
}

/// A view, its error, and whether it is an error for readers too.
struct IllegalView {
    displacement: i64,
    etype: Datatype,
    filetype: Datatype,
    code: Code,
    class: &'static str,
    words: &'static str,
    for_readers: bool,
}

/// Two elements of four bytes that share two.
fn overlapping() -> Datatype {
    Datatype::hindexed(&[1, 1], &[0, 2], &Datatype::elementary(4).unwrap()).unwrap()
}

fn wrong_views() -> Vec<IllegalView> {
    let (byte, four) = (bytes(1), bytes(4));
    let wrong = |filetype: Datatype, words| IllegalView {
        displacement: 0,
        etype: byte.clone(),
        filetype,
        code: Code::Datatype,
        class: "MPI_ERR_TYPE",
        words,
        for_readers: true,
    };
    let overlapping = overlapping();
    let back = Datatype::hindexed(&[1, 1], &[8, 0], &byte).unwrap();
    let before = Datatype::hindexed(&[1, 1], &[-4, 0], &byte).unwrap();
    vec![
        IllegalView {
            displacement: -1,
            code: Code::Invalid,
            class: "MPI_ERR_ARG",
            ..wrong(byte.clone(), "negative displacement -1")
        },
        IllegalView { etype: four.clone(), ..wrong(bytes(6), "not a multiple of an elementary type of 4") },
        IllegalView { etype: bytes(0), ..wrong(byte.clone(), "the elementary type has no bytes") },
        wrong(back.clone(), "displacements of the file type decrease"),
        IllegalView { etype: back.clone(), ..wrong(back, "displacements of the elementary type decrease") },
        wrong(before.resized(0, 8).unwrap(), "before its start"),
        wrong(byte.resized(0, 0).unwrap(), "never move on"),
        IllegalView {
            for_readers: false,
            ..wrong(overlapping, "overlaps itself and the file is open for writing")
        },
        IllegalView {
            displacement: i64::MAX - 2,
            code: Code::TooLarge,
            class: "MPI_ERR_VALUE_TOO_LARGE",
            ..wrong(four, "exceed the largest file")
        },
    ]
}

/// Every rank reads all writes: after refused calls the file and its group are unchanged.
fn still_works(file: &GroupFile) {
    let (rank, byte) = (file.group().rank(), bytes(1));
    file.set_view(i64::try_from(rank).unwrap(), &byte, &byte.resized(0, 3).unwrap()).unwrap();
    file.write_at_all(0, &[u8::try_from(rank).unwrap(); 5]).unwrap();
    file.group().barrier().unwrap();
    file.set_view(0, &byte, &byte).unwrap();
    let mut found = [9; 15];
    assert_eq!(file.read_at_all(0, &mut found).unwrap(), 15);
    assert_eq!(found, [0, 1, 2].repeat(5)[..]);
    // No rank writes the next iteration before all have read this one.
    file.group().barrier().unwrap();
}

#[test]
fn an_illegal_view_gets_the_error_that_mpi_names() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    for method in METHODS {
        ranks(&partition, |group, client| {
            let file = options(client).open_all(group, "f", &hints(method)).unwrap();
            let legal = bytes(8);
            for wrong in wrong_views() {
                assert_eq!(wrong.code.mpi_class(), wrong.class);
                let said = match group.rank() {
                    ODD => file.set_view(wrong.displacement, &wrong.etype, &wrong.filetype),
                    _ => file.set_view(0, &legal, &legal),
                };
                refused(said, group.rank(), wrong.code, wrong.words);
                assert!(file.view().is_whole(), "the old view stays: {}", wrong.words);
            }
            still_works(&file);
            file.close().unwrap();
        });
    }
}

#[test]
fn what_overlaps_is_legal_for_those_who_only_read() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    partition.create("f").unwrap().write_at(0, b"abcdefgh").unwrap();
    for method in METHODS {
        ranks(&partition, |group, client| {
            let file = client.options().read(true).open_all(group, "f", &hints(method)).unwrap();
            for wrong in wrong_views() {
                let said = file.set_view(wrong.displacement, &wrong.etype, &wrong.filetype);
                assert_eq!(said.is_err(), wrong.for_readers, "{}: {said:?}", wrong.words);
            }
            file.set_view(0, &bytes(1), &overlapping()).unwrap();
            let mut found = [0; 8];
            assert_eq!(file.read_at_all(0, &mut found).unwrap(), 8);
            assert_eq!(&found, b"abcdcdef");
            file.close().unwrap();
        });
    }
}

/// An illegal access, its code, and the access.
type Try<'a> = (&'a str, Code, &'a dyn Fn() -> Result<()>);

#[test]
fn accesses_that_cannot_be_are_refused_and_nobody_hangs() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    for method in METHODS {
        ranks(&partition, |group, client| {
            let file = options(client).open_all(group, "f", &hints(method)).unwrap();
            let four = bytes(4);
            file.set_view(0, &four, &four).unwrap();
            // In two-phase all ranks get the error; in the others a rank with a legal call writes.
            let alone = method != Method::TwoPhase;
            let is_odd = group.rank() == ODD;
            let tries: [Try<'_>; 5] = [
                ("no multiple", Code::Invalid, &|| file.write_at_all(0, &[0; 4][usize::from(is_odd)..])),
                ("no multiple", Code::Invalid, &|| file.write_all(&[0; 4][usize::from(is_odd)..])),
                ("beyond the view", Code::TooLarge, &|| {
                    file.write_at_all(if is_odd { u64::MAX } else { 0 }, &[0; 4])
                }),
                ("no multiple", Code::Invalid, &|| {
                    file.begin_write_all(vec![0; if is_odd { 3 } else { 4 }])?;
                    file.end_write_all().map(|_| ())
                }),
                ("do not fit", Code::Invalid, &|| {
                    let elements = Elements::new(&four, 1).unwrap();
                    file.write_elements_at_all(0, &[0; 4], if is_odd { 2 } else { 0 }, &elements)
                }),
            ];
            for (words, code, access) in tries {
                match access() {
                    Ok(()) => assert!(alone && !is_odd, "{words}"),
                    said @ Err(_) => refused(said, group.rank(), code, words),
                }
                group.barrier().unwrap();
            }
            still_works(&file);
            file.close().unwrap();
            let file = client.options().read(true).open_all(group, "f", &hints(method)).unwrap();
            let error = file.write_at_all(0, b"x").unwrap_err();
            assert_eq!(error.code(), Code::NotWritable, "{error}");
            assert_eq!(error.code().mpi_class(), "MPI_ERR_READ_ONLY");
            file.close().unwrap();
        });
    }
}

#[test]
fn ranks_that_do_not_agree_on_an_open_are_told() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    type Open = fn(&Partition, &Arc<dyn Group>, bool) -> Result<GroupFile>;
    let opens: [(&str, Open); 6] = [
        ("name", |client, group, odd| {
            options(client).open_all(group, if odd { "g" } else { "f" }, &Hints::default())
        }),
        ("mode", |client, group, odd| options(client).write(!odd).open_all(group, "f", &Hints::default())),
        ("creation", |client, group, odd| {
            options(client).truncate(odd).open_all(group, "f", &Hints::default())
        }),
        ("method", |client, group, odd| {
            let method = if odd { Method::TwoPhase } else { Method::ServerDirected };
            options(client).open_all(group, "f", &hints(method))
        }),
        ("aggregators", |client, group, odd| {
            let hints = Hints { aggregators: Some(1 + usize::from(odd)), ..Hints::default() };
            options(client).open_all(group, "f", &hints)
        }),
        ("striping", |client, group, odd| {
            let hints = Hints { stripe_count: Some(1 + u16::from(odd)), ..Hints::default() };
            options(client).open_all(group, "f", &hints)
        }),
    ];
    ranks(&partition, |group, client| {
        for (what, open) in &opens {
            let error = open(client, group, group.rank() == ODD).expect_err(what);
            assert_eq!(error.code(), Code::NotSame, "{what}: {error}");
            assert_eq!(error.code().mpi_class(), "MPI_ERR_NOT_SAME");
            assert!(error.to_string().contains("ranks 0 and 1 do not agree"), "{what}: {error}");
        }
        let file = options(client).open_all(group, "f", &Hints::default()).unwrap();
        still_works(&file);
        file.close().unwrap();
    });
}

#[test]
fn ranks_that_do_not_agree_on_an_open_file_are_told() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    for method in METHODS {
        let closed = Mutex::new(0);
        ranks(&partition, |group, client| {
            let odd = group.rank() == ODD;
            let file = options(client).open_all(group, "f", &hints(method)).unwrap();
            let differ = |said: Result<()>, words: &str| {
                let error = said.expect_err(words);
                assert_eq!(error.code(), Code::NotSame, "{error}");
                assert!(error.to_string().contains(words), "{method:?}: {error}");
            };
            let etype = if odd { bytes(2) } else { bytes(4) };
            differ(
                file.set_view(0, &etype, &bytes(4)),
                "ranks 0 and 1 do not agree on the size of the elementary",
            );
            differ(file.set_len(10 + u64::from(odd)), "ranks 0 and 1 do not agree on a new length");
            let said = if odd { file.set_view(0, &bytes(1), &bytes(1)) } else { file.set_len(7) };
            differ(said, "rank 1 the setting of a view");
            still_works(&file);
            // One rank syncs while the others close: all get an error, and the closes are done.
            let said = if odd { file.sync() } else { file.close() };
            differ(said, "rank 0 the close of a file, rank 1 the sync of a file");
            *closed.lock().unwrap() += 1;
        });
        assert_eq!(*closed.lock().unwrap(), RANKS);
    }
}
