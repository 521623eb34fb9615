use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use keepline_engine::{
    gateway::{
        AskedRecord, BindingRecord, DialogRecord, ListenerRecord, PartyRecord, PathRecord, Proof,
    },
    media::{
        BodyRecord, EndRecord, ExchangeRecord, RemoteRecord, SessionRecord, SideRecord,
        SourceRecord, StreamRecord, TargetRecord, WindowRecord,
    },
    net::Transport,
    time::Wall,
};
use redb::TableDefinition;

use super::*;

/// A directory of its own, gone with the test.
pub(in crate::store) struct Folder(PathBuf);

impl Folder {
    pub(in crate::store) fn new(name: &str) -> Self {
        let name = format!("keepline-store-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(in crate::store) fn path(&self) -> &Path {
        &self.0
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listener() -> ListenerRecord {
    ListenerRecord {
        transport: Transport::Tcp,
        link: "lan0".to_owned(),
        address: "[2001:db8::1]:5060".parse().unwrap(),
    }
}

fn binding(id: u64) -> Change {
    Change::Binding(Box::new(BindingRecord {
        id,
        aor: format!("{id}@example.test"),
        contact: format!("sip:{id}@192.0.2.7").into_bytes(),
        // Not UTF-8: bytes must survive whatever they are.
        params: (0..=255).collect(),
        token: "token".to_owned(),
        upstream_contact: b"sip:token@198.51.100.1:5060".to_vec(),
        source: "192.0.2.7:5060".parse().unwrap(),
        proof: Some(Proof::Mac([2, 0, 0, 0, 0, 7])),
        listener: listener(),
        call_id: b"a\"b\\c\n".to_vec(),
        cseq: u32::MAX,
        credentials: Some(b"user\0realm".to_vec()),
        group: "core".to_owned(),
        server: "203.0.113.10:5060".parse().unwrap(),
        accepted: Wall(Duration::from_micros(1_800_000_000_123_456)),
        granted: Duration::from_secs(3600),
        phone_until: Wall(Duration::from_micros(1_800_000_060_000_001)),
        service_route: vec![b"<sip:203.0.113.10;lr>".to_vec()],
        path: Vec::new(),
        outbound: false,
        associated: vec!["<sip:7@example.test>".to_owned()],
    }))
}

fn dialog(id: u64) -> Change {
    let party = |tag: &str| PartyRecord {
        listener: listener(),
        tag: tag.as_bytes().to_vec(),
        target: b"sip:x@192.0.2.7".to_vec(),
        routes: vec![vec![0xff, 0xfe], Vec::new()],
        peer: "192.0.2.7:5060".parse().unwrap(),
        caller_uri: b"sip:a@example.test".to_vec(),
        callee_uri: b"sip:b@example.test".to_vec(),
        said: Some(b"v=0".to_vec()),
        told: None,
        answered_here: Some(3),
        cseq: 20_000,
        asked: (tag == "a").then(|| AskedRecord {
            request: b"INVITE sip:b@example.test SIP/2.0\r\n\xff".to_vec(),
            from: "192.0.2.7:5062".parse().unwrap(),
            listener: listener(),
            since: Wall(Duration::from_micros(1_800_000_000_000_009)),
        }),
    };
    Change::Dialog(Box::new(DialogRecord {
        id,
        call_id: b"call@192.0.2.7".to_vec(),
        caller: party("a"),
        callee: party("b"),
        path: Some(PathRecord {
            group: "core".to_owned(),
            server: "203.0.113.10:5060".parse().unwrap(),
            link: "wan0".to_owned(),
        }),
        answer_in_ack: true,
        since: Wall(Duration::from_micros(1_800_000_000_000_007)),
        ends: Some(Wall(Duration::from_micros(1_800_003_600_000_011))),
        media: Some(session(id)),
    }))
}

fn session(id: u64) -> SessionRecord {
    let target = TargetRecord {
        declared: Some("192.0.2.7:4000".parse().unwrap()),
        reachable: true,
        certain: false,
        hold: true,
        eligible: [Some("192.0.2.7".parse().unwrap()), None],
    };
    let remote = RemoteRecord {
        rtp: target,
        rtcp: target,
        mux: true,
        held: false,
    };
    let source = |window| SourceRecord {
        accepted: target.declared,
        learned: true,
        declared: None,
        eligible: target.eligible,
        window,
        not: Some("192.0.2.7:4002".parse().unwrap()),
    };
    let end = |window| EndRecord {
        port: Some(20_000),
        remote: Some(remote),
        rtp: source(window),
        rtcp: source(WindowRecord::First),
        before_lock: 3,
    };
    let side = || SideRecord {
        link: "lan0".to_owned(),
        origin: (7, 3),
        sent: Some(b"v=0\r\n".to_vec()),
    };
    let body = || BodyRecord {
        from: "192.0.2.7".parse().unwrap(),
        behind_nat: true,
        came: b"v=0\r\n".to_vec(),
        went: b"v=0\r\no=\r\n".to_vec(),
    };
    SessionRecord {
        id,
        sides: [side(), side()],
        streams: vec![StreamRecord {
            media: "audio".to_owned(),
            agreed: true,
            disabled: false,
            mux: true,
            first_flow: 9,
            ends: [
                end(WindowRecord::Closed),
                end(WindowRecord::Until(Wall(Duration::from_micros(5)))),
            ],
        }],
        exchange: Some(ExchangeRecord {
            by_caller: true,
            offer: body(),
            remotes: vec![Some(remote), None],
            answer: Some(body()),
        }),
    }
}

fn changes() -> Vec<Change> {
    let mut changes: Vec<Change> = (1..40).map(binding).chain((1..20).map(dialog)).collect();
    changes.extend([Change::BindingGone(3), Change::DialogGone(4), binding(5)]);
    changes
}

/// What these changes leave.
fn left(changes: &[Change]) -> Records {
    let mut records = Records::default();
    changes.iter().for_each(|c| records.apply(c.clone()));
    records
}

fn open(folder: &Folder) -> (FileStore, Records) {
    FileStore::open(folder.path()).unwrap()
}

/// A store with these changes in its database.
fn filled(folder: &Folder, changes: &[Change]) {
    let (mut store, _) = open(folder);
    store.append(changes);
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn kl5_what_was_appended_is_back_byte_for_byte() {
    let folder = Folder::new("back");
    filled(&folder, &changes());
    let (store, records) = open(&folder);
    assert_eq!(records, left(&changes()));
    drop(store);
    let folded = folder.names();
    assert!(
        folded.iter().all(|name| !name.contains("damaged")),
        "{folded:?}"
    );
    filled(&folder, &[Change::Anew, dialog(77)]);
    assert_eq!(open(&folder).1, left(&[dialog(77)]));
}

#[test]
fn kl5_the_journal_goes_into_the_database_and_its_files_go() {
    let folder = Folder::new("fold");
    let (mut store, _) = open(&folder);
    store.append(&[binding(1)]);
    until("the segment is folded", || {
        !folder.names().contains(&"journal-1".to_owned())
    });
    store.append(&[binding(2)]);
    drop(store);
    let (_, loaded) = database::open(&folder.path().join(DATABASE)).unwrap();
    assert_eq!(loaded.records, left(&[binding(1), binding(2)]));
}

#[test]
fn kl5_a_segment_that_is_in_the_database_is_not_applied_again() {
    let folder = Folder::new("twice");
    let (mut store, _) = open(&folder);
    store.append(&[binding(1)]);
    let old = fs::read(folder.path().join("journal-1")).unwrap();
    store.append(&[Change::BindingGone(1)]);
    drop(store);
    // As if killed between the commit and the removal of the file.
    fs::write(folder.path().join("journal-1"), old).unwrap();
    let (store, records) = open(&folder);
    assert_eq!(records, Records::default());
    drop(store);
    assert_eq!(open(&folder).1, Records::default());
}

#[test]
fn kl5_a_database_that_nobody_closed_is_read_where_it_cannot_be_written() {
    let folder = Folder::new("unclosed");
    let (mut store, _) = open(&folder);
    store.append(&[binding(1)]);
    until("the segment is folded", || {
        !folder.names().contains(&"journal-1".to_owned())
    });
    // As `kill -9` leaves it.
    let copy = folder.path().join("copy");
    fs::copy(folder.path().join(DATABASE), &copy).unwrap();
    assert_eq!(database::peek(&copy).unwrap().records, left(&[binding(1)]));
}

#[test]
fn kl5_a_torn_journal_gives_what_was_whole() {
    let folder = Folder::new("torn");
    let mut writer = Writer::create(&segment_path(folder.path(), 1)).unwrap();
    for id in 1..=3 {
        writer.append([record::change(&binding(id))]).unwrap();
    }
    let path = segment_path(folder.path(), 1);
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length - 1)
        .unwrap();
    let expected = left(&[binding(1), binding(2)]);
    let (store, records) = open(&folder);
    assert_eq!(records, expected);
    drop(store);
    assert_eq!(open(&folder).1, expected, "and so it stays");
}

#[test]
fn kl5_what_is_no_store_is_set_aside_and_state_begins_empty() {
    let folder = Folder::new("foreign");
    let database = folder.path().join(DATABASE);
    fs::write(&database, b"a letter to grandmother").unwrap();
    fs::write(segment_path(folder.path(), 1), b"another one").unwrap();
    filled(&folder, &[binding(1)]);
    assert_eq!(open(&folder).1, left(&[binding(1)]));
    let names = folder.names();
    assert!(
        names.contains(&"state.redb.damaged-1".to_owned()),
        "{names:?}"
    );
    assert!(
        names.contains(&"journal-1.damaged-1".to_owned()),
        "{names:?}"
    );
    let aside = folder.path().join("state.redb.damaged-1");
    assert_eq!(fs::read(aside).unwrap(), b"a letter to grandmother");
}

#[test]
fn kl5_a_database_of_something_else_or_of_a_later_version_is_set_aside() {
    let others: [fn(&redb::WriteTransaction); 2] = [
        |write| {
            let table = TableDefinition::<&str, u64>::new("recipes");
            write.open_table(table).unwrap().insert("cake", 1).unwrap();
        },
        |write| {
            let table = TableDefinition::<&str, u64>::new("meta");
            write
                .open_table(table)
                .unwrap()
                .insert("schema", 2)
                .unwrap();
        },
    ];
    for (n, other) in others.into_iter().enumerate() {
        let folder = Folder::new(&format!("other{n}"));
        let database = Database::create(folder.path().join(DATABASE)).unwrap();
        let write = database.begin_write().unwrap();
        other(&write);
        write.commit().unwrap();
        drop(database);
        let (store, records) = open(&folder);
        assert_eq!(records, Records::default());
        drop(store);
        assert!(folder.names().contains(&"state.redb.damaged-1".to_owned()));
    }
}

#[test]
fn kl5_a_damaged_page_is_found_at_the_start() {
    let folder = Folder::new("page");
    filled(&folder, &changes());
    let path = folder.path().join(DATABASE);
    let whole = fs::read(&path).unwrap();
    let mut damaged = 0;
    for at in (0..whole.len()).step_by(2048) {
        let mut bytes = whole.clone();
        bytes[at..(at + 64).min(whole.len())].fill(0xA5);
        fs::write(&path, bytes).unwrap();
        let (store, records) = open(&folder);
        let aside = folder.path().join("state.redb.damaged-1");
        if aside.exists() {
            assert_eq!(records, Records::default());
            fs::remove_file(&aside).unwrap();
            damaged += 1;
        } else {
            assert_eq!(records, left(&changes()), "wrong records, damaged at {at}");
        }
        drop(store);
    }
    assert!(damaged > 3, "only {damaged} places mattered");
}

#[test]
fn kl5_a_store_in_use_is_left_alone() {
    let folder = Folder::new("use");
    let first = open(&folder);
    assert!(matches!(
        FileStore::open(folder.path()),
        Err(OpenError::InUse(_))
    ));
    drop(first);
    assert!(folder.names().iter().all(|name| !name.contains("damaged")));
}

#[test]
fn kl5_on_a_full_disk_changes_are_counted_and_taken_again_when_there_is_room() {
    let folder = Folder::new("full");
    let (mut store, _) = open(&folder);
    store.append(&[binding(1)]);
    {
        let mut journal = store.shared.lock();
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        journal.writer.as_mut().unwrap().divert(full);
    }
    store.append(&[binding(2)]);
    store.append(&[binding(3)]);
    let health = store.health();
    assert_eq!(health.lost, 2);
    assert!(health.failing.unwrap().contains("space"));
    until("room again", || store.health().recovered);
    assert_eq!(
        store.health(),
        Health {
            lost: 2,
            ..Health::default()
        }
    );
    // The driver then tells everything anew.
    store.append(&[Change::Anew, binding(1), binding(2), binding(3)]);
    drop(store);
    assert_eq!(open(&folder).1, left(&[binding(1), binding(2), binding(3)]));
}

proptest::proptest! {
    /// The database gets the last of each record only, and holds what all of them leave.
    #[test]
    fn kl5_what_later_changes_take_back_changes_nothing(
        steps in proptest::collection::vec((0..9_u8, 1..4_u64, 0..99_u32), 0..40),
    ) {
        let change = |(kind, id, cseq): (u8, u64, u32)| match kind {
            0..=2 => match binding(id) {
                Change::Binding(record) => Change::Binding(Box::new(BindingRecord { cseq, ..*record })),
                other => other,
            },
            3 | 4 => dialog(id),
            5 | 6 => Change::BindingGone(id),
            7 => Change::DialogGone(id),
            _ => Change::Anew,
        };
        let changes: Vec<Change> = steps.into_iter().map(change).collect();
        let bytes: Vec<Vec<u8>> = changes.iter().map(record::change).collect();
        let last = record::read_last(&bytes);
        proptest::prop_assert!(last.len() <= 1 + 2 * 3, "{last:?}");
        proptest::prop_assert_eq!(left(&last), left(&changes));
    }
}

/// Runs one of the tests below in a process of its own.
fn child(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture"])
        .arg(format!("store::file::tests::{test}"))
        .env("KEEPLINE_STORE", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn folder_of_parent() -> PathBuf {
    std::env::var_os("KEEPLINE_STORE")
        .map(PathBuf::from)
        .expect("run by its parent only")
}

#[test]
fn kl5_kill_9_at_any_moment_loses_nothing_that_was_appended() {
    let folder = Folder::new("kill");
    let mut seen = 0;
    for round in 0..6_u64 {
        let mut process = child("appends_until_killed", folder.path())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let begun = Instant::now();
        let mut appended = 0;
        // Over the first batch and the second, each time at another place.
        let end = Duration::from_millis(700 + 137 * round);
        for line in out.lines() {
            if let Some(n) = line.unwrap().strip_prefix("appended ") {
                appended = n.parse::<u64>().unwrap();
            }
            if begun.elapsed() > end {
                process.kill().unwrap();
                break;
            }
        }
        process.wait().unwrap();
        assert!(appended > seen, "nothing was appended in round {round}");
        let (store, records) = open(&folder);
        drop(store);
        let ids: Vec<u64> = records.bindings.iter().map(|binding| binding.id).collect();
        let last = *ids.last().unwrap();
        assert!(
            last >= appended,
            "{last} of {appended} survived round {round}"
        );
        assert_eq!(
            ids,
            (1..=last).collect::<Vec<_>>(),
            "a hole in round {round}"
        );
        seen = last;
    }
}

#[test]
#[ignore = "the process that a test above kills"]
fn appends_until_killed() {
    let (mut store, records) = FileStore::open(&folder_of_parent()).unwrap();
    let first = records.bindings.last().map_or(1, |binding| binding.id + 1);
    for id in first.. {
        store.append(&[binding(id)]);
        println!("appended {id}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn kl5_a_store_on_a_read_only_disk_is_read_and_its_changes_are_counted() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount");
        return;
    }
    let folder = Folder::new("ro");
    filled(&folder, &[binding(1), dialog(1)]);
    let inner = child("reads_what_it_may_not_write", folder.path());
    let words: Vec<String> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let path = folder.path().display();
    let script =
        format!("mount --bind {path} {path} && mount -o remount,ro,bind {path} && exec \"$@\"");
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args(words)
        .env("KEEPLINE_STORE", folder.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by a test above, where the store is read-only"]
fn reads_what_it_may_not_write() {
    let (mut store, records) = FileStore::open(&folder_of_parent()).unwrap();
    assert_eq!(records, left(&[binding(1), dialog(1)]));
    assert!(store.health().failing.is_some());
    store.append(&[binding(2)]);
    assert_eq!(store.health().lost, 1);
}
