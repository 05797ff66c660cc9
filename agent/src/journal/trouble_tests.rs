//! Disks that fail, hang, or count: what the writer makes of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use epitaph_core::fixtures::terminations::observation;
use epitaph_core::input::Input;
use epitaph_core::time::{Boot, Wall};

use super::tests::{close, id, options, request, write, written};
use super::*;
use crate::waiting::{LIMIT, until};

/// A disk that can fail: by which error, and what was written.
#[derive(Clone, Default)]
pub(super) struct Faulty(Arc<Mutex<FaultyState>>);

#[derive(Default)]
struct FaultyState {
    files: BTreeMap<u64, Vec<u8>>,
    /// Of each file, what is synced.
    synced: BTreeMap<u64, usize>,
    error: Option<i32>,
    hang: Option<Arc<std::sync::Barrier>>,
    hangs: bool,
}

impl Faulty {
    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether all that was written is synced.
    pub(super) fn is_synced(&self) -> bool {
        let state = self.state();
        state
            .files
            .iter()
            .all(|(number, bytes)| state.synced.get(number) == Some(&bytes.len()))
    }
    fn check(&self) -> io::Result<()> {
        let hang = self.state().hang.clone();
        if let Some(barrier) = hang {
            self.state().hangs = true;
            barrier.wait();
        }
        self.state()
            .error
            .map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }
}

struct FaultyFile(Faulty, u64);

impl Files for Faulty {
    fn create(&mut self, number: u64, _: u64) -> io::Result<Box<dyn SegmentFile>> {
        self.check()?;
        self.state().files.insert(number, Vec::new());
        Ok(Box::new(FaultyFile(self.clone(), number)))
    }
    fn remove(&mut self, number: u64) -> io::Result<()> {
        self.state().files.remove(&number);
        Ok(())
    }
}

impl SegmentFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.check()?;
        let mut state = self.0.state();
        state.files.entry(self.1).or_default().extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.0.check()?;
        let mut state = self.0.state();
        let length = state.files.get(&self.1).map_or(0, Vec::len);
        state.synced.insert(self.1, length);
        Ok(())
    }
    fn seal(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn store(disk: &Faulty) -> Store {
    let header = SegmentHeader {
        version: VERSION,
        epitaph: "0".to_owned(),
        observation: observation(),
        first: true,
        number: 0,
    };
    Store::new(Box::new(disk.clone()), Bounds::of(16 << 20), header, Vec::new(), 1)
}

fn on(disk: &Faulty) -> (Journal, JournalThread) {
    Journal::start(store(disk), None).unwrap()
}

#[test]
fn a_disk_in_trouble_makes_the_journal_memory_only_until_it_works_again() {
    use nix::libc::{EIO, ENOSPC, EROFS};
    for (code, trouble) in [(EIO, Trouble::Failing), (ENOSPC, Trouble::Full), (EROFS, Trouble::ReadOnly)] {
        let disk = Faulty::default();
        let (journal, thread) = on(&disk);
        let stats = journal.stats();
        assert!(written(&journal, 1));
        disk.state().error = Some(code);
        assert!(!written(&journal, 2), "delivered, and not held");
        until("the trouble", || stats.trouble() == Some(trouble));
        assert!(!written(&journal, 3));
        journal.input(Boot(1), &Input::Tick);
        until("the count", || stats.dropped(JournalDropReason::Disk) > 0);
        disk.state().error = None;
        until("the recovery", || stats.trouble().is_none());
        assert!(written(&journal, 4));
        close(thread);
        // The last segment says that evidence was lost, and which reports are finished although they are not in it.
        let files = disk.state().files.clone();
        let last = files.values().next_back().unwrap();
        let mut frames = crate::recording::frames::Frames::new(last.as_slice());
        beginning::read_beginning(&mut frames).unwrap().header.unwrap();
        let (mut lost, mut told) = (0, Vec::new());
        while let crate::recording::frames::Next::Frame { at, length, .. } = frames.next() {
            let (_, tag, body) = crate::recording::frames::stamped(frames.payload(at, length));
            match tag {
                crate::recording::TAG_INPUT => lost += u32::from(String::from_utf8_lossy(body).contains("lost")),
                format::TAG_ANSWERED => told.extend(format::read_answered(body)),
                _ => {}
            }
        }
        assert!(lost > 0, "the gap is stated");
        assert!(told.contains(&id(3)), "{told:?}");
        assert_eq!(stats.dropped(JournalDropReason::Report), 0);
        assert_eq!(
            reports(&disk),
            [1, 2, 3, 4],
            "what ended in the meantime is written, each once"
        );
    }
}

/// The reports that a reader finds, by their number.
fn reports(disk: &Faulty) -> Vec<u64> {
    read(disk).0
}

/// The same, and the holes.
fn read(disk: &Faulty) -> (Vec<u64>, Vec<Hole>) {
    let directory = tempfile::tempdir().unwrap();
    for (number, bytes) in &disk.state().files {
        std::fs::write(directory.path().join(format::segment_name(*number)), bytes).unwrap();
    }
    let mut reader = reader::Reader::open(directory.path()).unwrap();
    let mut found = Vec::new();
    while let Some(report) = reader.next_report() {
        found.push(report.wall.0 - 1_000);
    }
    (found, reader.holes(Wall(0)))
}

/// A disk that is full for hours: more reports than memory holds.
#[test]
fn reports_that_memory_cannot_hold_are_counted_and_stated() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    let stats = journal.stats();
    assert!(written(&journal, 1));
    disk.state().error = Some(nix::libc::ENOSPC);
    let json = vec![b' '; 300 << 10];
    for n in 2..12 {
        let report = Finished {
            wall: Wall(1_000 + n),
            id: id(n),
            spans: 1,
            json: &json,
            request: b"",
        };
        let (sender, receiver) = mpsc::channel();
        journal.report(clock::now(), &report, Box::new(move |_| sender.send(()).unwrap()));
        receiver.recv_timeout(LIMIT).expect("delivered");
    }
    let lost = stats.dropped(JournalDropReason::Report);
    assert_eq!((lost, stats.dropped(JournalDropReason::Disk)), (4, 0));
    // The end is the last attempt.
    disk.state().error = None;
    close(thread);
    let hole = Hole {
        from: Wall(1_008),
        to: Wall(1_011),
        why: Why::Lost {
            reports: 4,
            state: Some("full".to_owned()),
        },
    };
    assert_eq!(read(&disk), ((1..8).collect(), vec![hole]));
    // A later run reports none of them again.
    let finished = stated(&disk).2;
    assert!((8..12).all(|n| finished.contains(&id(n))), "{finished:?}");
}

/// Report 2 waits for a disk that hangs until the barrier: whether it was delivered with a place.
fn written_to_a_hanging_disk(disk: &Faulty, journal: &Journal) -> (Arc<std::sync::Barrier>, mpsc::Receiver<bool>) {
    let barrier = Arc::new(std::sync::Barrier::new(2));
    disk.state().hang = Some(barrier.clone());
    let (sender, receiver) = mpsc::channel();
    write(journal, 2, Box::new(move |place| sender.send(place.is_some()).unwrap()));
    until("the call that does not return", || disk.state().hangs);
    (barrier, receiver)
}

#[test]
fn a_disk_that_does_not_answer_delays_no_report_for_long() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    assert!(written(&journal, 1));
    let (barrier, receiver) = written_to_a_hanging_disk(&disk, &journal);
    let now = clock::now();
    journal.tick(now);
    assert!(receiver.try_recv().is_err(), "not yet late");
    journal.tick(now.plus(Duration::from_secs(3)));
    assert!(!receiver.recv_timeout(LIMIT).unwrap());
    assert_eq!(journal.stats().trouble(), Some(Trouble::Slow));
    disk.state().hang = None;
    barrier.wait();
    assert!(written(&journal, 3));
    until("the recovery", || journal.stats().trouble().is_none());
    close(thread);
}

/// A storm while the disk hangs: what the buffer cannot take is delivered without a place, and does not overtake.
#[test]
fn a_full_buffer_keeps_the_order_of_the_reports() {
    const REPORTS: u64 = 3_000;
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    assert!(written(&journal, 0));
    let barrier = Arc::new(std::sync::Barrier::new(2));
    disk.state().hang = Some(barrier.clone());
    let (sender, receiver) = mpsc::channel();
    let report = |n: u64| {
        let sender = sender.clone();
        write(&journal, n, Box::new(move |place| sender.send((n, place.is_some())).unwrap()));
    };
    report(1);
    until("the call that does not return", || disk.state().hangs);
    for n in 2..REPORTS {
        report(n);
        // Evidence that fills the buffer meanwhile.
        if n == REPORTS / 2 {
            (0..5).for_each(|n| journal.record(Boot(n), &vec![7; 900 << 10]));
        }
    }
    assert!(receiver.try_recv().is_err(), "delivered before those that wait");
    disk.state().hang = None;
    barrier.wait();
    let came: Vec<(u64, bool)> = (1..REPORTS)
        .map(|_| receiver.recv_timeout(LIMIT).expect("delivered"))
        .collect();
    assert!(came.iter().map(|(n, _)| *n).eq(1..REPORTS), "overtaken");
    let held = came.iter().filter(|(_, is_held)| *is_held).count() as u64;
    assert_eq!(held, REPORTS / 2);
    assert_eq!(journal.stats().dropped(JournalDropReason::QueueFull), REPORTS - 1 - held);
    close(thread);
}

/// What the segments state: since when records of the kernel, and messages about the node, may be missing; and reports that are
/// finished without being there.
fn stated(disk: &Faulty) -> (Vec<Boot>, usize, Vec<ReportId>) {
    use crate::recording::frames::{Frames, Next, stamped};
    use epitaph_core::event::Kind;
    use epitaph_core::stored::StoredInput;
    let (mut since, mut node, mut finished) = (Vec::new(), 0, Vec::new());
    for bytes in disk.state().files.values() {
        let mut frames = Frames::new(bytes.as_slice());
        // Created just now, by the journal's thread.
        if beginning::read_beginning(&mut frames).is_err() {
            continue;
        }
        while let Next::Frame { at, length, .. } = frames.next() {
            let (_, tag, body) = stamped(frames.payload(at, length));
            let input = || serde_json::from_slice(body).unwrap();
            match tag {
                crate::recording::TAG_INPUT => match input() {
                    StoredInput::Lost { kind, since: at, .. } if kind == Kind::ProcessExit.name() => since.push(at),
                    StoredInput::Node { .. } => node += 1,
                    _ => {}
                },
                format::TAG_ANSWERED => finished.extend(format::read_answered(body)),
                _ => {}
            }
        }
    }
    (since, node, finished)
}

/// A later run would report it again, with other bytes.
#[test]
fn a_report_that_was_delivered_before_the_disk_refused_it_is_noted() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    assert!(written(&journal, 1));
    let (barrier, receiver) = written_to_a_hanging_disk(&disk, &journal);
    journal.tick(clock::now().plus(Duration::from_secs(3)));
    assert!(!receiver.recv_timeout(LIMIT).unwrap());
    disk.state().error = Some(nix::libc::EIO);
    disk.state().hang = None;
    barrier.wait();
    let stats = journal.stats();
    until("the trouble", || stats.trouble() == Some(Trouble::Failing));
    disk.state().error = None;
    until("the recovery", || stats.trouble().is_none());
    close(thread);
    assert_eq!(stated(&disk).2, [id(2)]);
}

#[test]
fn a_hole_begins_at_the_first_frame_that_was_not_synced_and_is_stated_at_once() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    journal.input(Boot(5), &Input::Tick);
    until("a sync", || journal.stats().syncs() == 1);
    journal.input(Boot(10), &Input::Tick);
    journal.input(Boot(20), &Input::Tick);
    until("both frames", || journal.stats().frames() == 3);
    disk.state().error = Some(nix::libc::EIO);
    journal.sync();
    let stats = journal.stats();
    until("the trouble", || stats.trouble() == Some(Trouble::Failing));
    disk.state().error = None;
    // Without another frame.
    until("the statement", || stated(&disk).0 == [Boot(10)]);
    assert_eq!(stated(&disk).1, 1, "messages about the node, too");
    assert_eq!(stats.dropped(JournalDropReason::Disk), 2, "what the disk did not confirm");
    close(thread);
}

/// What is stated of a hole is not safe before its sync.
#[test]
fn a_hole_is_stated_again_if_the_disk_fails_again() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    let stats = journal.stats();
    journal.input(Boot(10), &Input::Tick);
    until("the frame", || stats.frames() == 1);
    let mut statements = Vec::new();
    for later in [30, 40] {
        disk.state().error = Some(nix::libc::EIO);
        journal.sync();
        until("the trouble", || stats.trouble() == Some(Trouble::Failing));
        disk.state().error = None;
        journal.input(Boot(later), &Input::Tick);
        until("the recovery", || stats.trouble().is_none());
        statements.push(Boot(10));
        // The recovery is visible before the thread writes what was lost.
        until("a statement in each of the later segments", || stated(&disk).0 == statements);
    }
    close(thread);
}

#[test]
fn a_disk_that_does_not_answer_is_reported_also_while_no_report_waits() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    let barrier = Arc::new(std::sync::Barrier::new(2));
    disk.state().hang = Some(barrier.clone());
    let now = clock::now();
    journal.input(now, &Input::Tick);
    until("the call that does not return", || disk.state().hangs);
    journal.input(now, &Input::Tick);
    journal.tick(now.plus(Duration::from_secs(1)));
    assert_eq!(journal.stats().trouble(), None);
    journal.tick(now.plus(Duration::from_secs(3)));
    assert_eq!(journal.stats().trouble(), Some(Trouble::Slow));
    disk.state().hang = None;
    barrier.wait();
    journal.sync();
    until("the recovery", || journal.stats().trouble().is_none());
    close(thread);
}

/// What the next run would report again, with other bytes.
#[test]
fn a_disk_that_has_room_again_at_the_end_knows_what_was_finished() {
    let disk = Faulty::default();
    let (journal, thread) = on(&disk);
    assert!(written(&journal, 1));
    disk.state().error = Some(nix::libc::ENOSPC);
    assert!(!written(&journal, 2));
    disk.state().error = None;
    close(thread);
    assert_eq!(stated(&disk).2, [id(2)]);
}

/// The start of an agent whose disk hangs, until the sender is dropped.
fn opened_on_a_hanging_disk(path: &std::path::Path) -> (Opened, mpsc::Sender<()>) {
    let options = Options {
        directory: path.to_owned(),
        group: None,
        max_bytes: 16 << 20,
        pid: std::process::id(),
    };
    let (sender, receiver) = mpsc::channel::<()>();
    let of_thread = options.clone();
    let opening = Opening::by(move |pulse| {
        let _ = receiver.recv();
        let disk = Disk::open(&of_thread, &|| pulse.stops())?;
        let past = Past::read(&disk, &|| pulse.beat()).unwrap();
        Ok((disk, past))
    });
    let limit = Duration::from_millis(200);
    let opened = open_by(&options, &observation(), (opening.unwrap(), limit), &|| false).unwrap();
    (opened, sender)
}

#[test]
fn a_disk_that_hangs_at_the_start_does_not_keep_the_agent_from_observing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (opened, hang) = opened_on_a_hanging_disk(&path);
    let stats = opened.journal.stats();
    assert_eq!(stats.trouble(), Some(Trouble::Failing));
    let error = stats.troubled().unwrap().error;
    assert!(error.contains("did not answer"), "{error}");
    assert!(!written(&opened.journal, 1), "delivered, and not held");
    assert!(!path.exists());
    drop(hang);
    until("the recovery", || stats.trouble().is_none());
    let (sender, place) = mpsc::channel();
    write(&opened.journal, 2, Box::new(move |place| sender.send(place).unwrap()));
    let place = place.recv_timeout(LIMIT).unwrap().expect("held");
    let kept = opened.requests().at(place, id(2)).expect("the directory is open");
    assert_eq!(kept.read().unwrap(), request(2), "the journal is the queue from then on");
    close(opened.thread);
    let mut reader = reader::Reader::open(&path).unwrap();
    let mut ids: Vec<_> = std::iter::from_fn(|| reader.next_report().map(|report| report.id)).collect();
    ids.sort_unstable_by_key(|id| id.trace);
    assert_eq!(ids, [id(1), id(2)], "also what was held meanwhile");
}

/// The agent ends while its disk hangs; the thread then gives the lock back.
#[test]
fn a_disk_that_answers_after_the_end_has_no_lock_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (opened, hang) = opened_on_a_hanging_disk(&path);
    drop(opened.journal);
    opened.thread.close(LIMIT);
    drop(hang);
    until("the lock", || {
        Disk::open_within(&options(&path), Duration::ZERO, &|| true).is_ok()
    });
}

/// A journal that takes long to read, or a predecessor that is slow to end.
#[test]
fn a_disk_that_answers_slowly_is_waited_for() {
    // The disk answers whenever the opening looks whether it is to stop, thirty times or never: no time passes but for the opening.
    let opens = |answers: usize| {
        let (look, looks) = mpsc::channel();
        let (answered, has_answered) = mpsc::channel();
        let opening = Opening::by(move |pulse| {
            for () in looks.iter().take(answers) {
                pulse.beat();
                let _ = answered.send(());
            }
            if answers == 0 {
                let _ = looks.recv();
            }
            let path = PathBuf::new();
            Err(RefusedError::NotADirectory { path })
        });
        let stops = || {
            if answers > 0 && look.send(()).is_ok() {
                let _ = has_answered.recv();
            }
            false
        };
        opening.unwrap().within(Duration::from_millis(200), &stops).is_some()
    };
    assert!(opens(30), "longer than the patience with a disk that does not answer");
    assert!(!opens(0));
}
