use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use epitaph_core::fixtures::terminations::observation;
use epitaph_core::input::Input;
use epitaph_core::node::NodeEvent;
use epitaph_core::time::{Boot, Wall};

use super::reader::Reader;
use super::*;
use crate::error::lines;
use crate::recording::frames::{BEGINNING, Frames, NUMBER, PREFIX, STAMP, append, append_header, frame_length};
use crate::waiting::{LIMIT, until};

/// A directory that is the journal's, below a temporary one.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    (directory, path)
}

pub(super) fn options(directory: &Path) -> Options {
    Options {
        directory: directory.to_owned(),
        group: None,
        max_bytes: 64 << 20,
        pid: std::process::id(),
    }
}

pub(super) fn id(n: u64) -> ReportId {
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&n.to_le_bytes());
    ReportId { trace, span: [7; 8] }
}

fn json(n: u64) -> String {
    format!("{{\"type\":\"termination\",\"number\":{n},\"verdict\":\"clean\"}}\n")
}

pub(super) fn request(n: u64) -> Vec<u8> {
    [n as u8].repeat(100)
}

pub(super) fn write(journal: &Journal, n: u64, deliver: buffer::Deliver) {
    let (json, request) = (json(n), request(n));
    let report = Finished {
        wall: Wall(1_000 + n),
        id: id(n),
        spans: 3,
        json: json.as_bytes(),
        request: &request,
    };
    journal.report(clock::now(), &report, deliver);
}

/// Writes a report and waits until it is delivered: true if the journal holds it.
pub(super) fn written(journal: &Journal, n: u64) -> bool {
    let (sender, receiver) = mpsc::channel();
    write(journal, n, Box::new(move |place| sender.send(place.is_some()).unwrap()));
    receiver.recv_timeout(LIMIT).expect("delivered")
}

pub(super) fn close(thread: JournalThread) {
    thread.close(LIMIT);
}

/// The numbers of the reports, and what was skipped.
fn read(path: &Path) -> (Vec<u64>, reader::Skipped) {
    let mut reader = Reader::open(path).unwrap();
    let mut found = Vec::new();
    while let Some(report) = reader.next_report() {
        let n = report.wall.0 - 1_000;
        assert_eq!(
            (report.id, report.spans, report.json, report.request),
            (id(n), 3, json(n).as_bytes(), &*request(n))
        );
        found.push(n);
    }
    (found, reader.skipped().clone())
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
    all.sort();
    all
}

#[test]
fn reports_are_read_while_the_agent_writes_and_after_its_end() {
    let (_directory, path) = place();
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    opened.journal.in_progress(true);
    for n in 0..50 {
        write(&opened.journal, n, Box::new(|_| {}));
    }
    assert!(written(&opened.journal, 50));
    let all: Vec<u64> = (0..=50).collect();
    assert_eq!(read(&path), (all.clone(), reader::Skipped::default()));
    close(opened.thread);
    assert_eq!(read(&path), (all, reader::Skipped::default()));
}

/// By a person who cleans up.
#[test]
fn a_directory_that_is_removed_or_moved_is_trouble() {
    for moves in [true, false] {
        let (directory, path) = place();
        let opened = open(&options(&path), &observation(), &|| false).unwrap();
        assert!(written(&opened.journal, 1));
        let stats = opened.journal.stats();
        assert_eq!(stats.trouble(), None);
        match moves {
            true => fs::rename(&path, directory.path().join("elsewhere")).unwrap(),
            false => fs::remove_dir_all(&path).unwrap(),
        }
        assert!(!written(&opened.journal, 2), "nobody would find it");
        until("the trouble", || stats.trouble() == Some(Trouble::Missing));
        // Another directory at the path is not the one that was opened.
        fs::create_dir(&path).unwrap();
        assert!(!written(&opened.journal, 3));
        assert_eq!(stats.trouble(), Some(Trouble::Missing));
        close(opened.thread);
    }
}

#[test]
fn only_the_agents_user_reads_the_journal_and_no_link_is_followed() {
    let (directory, path) = place();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    assert!(written(&opened.journal, 1));
    assert_eq!((mode(&path), mode(&segments(&path)[0])), (0o700, 0o600));
    close(opened.thread);
    // With a group: any of ours that may differ from the directory's.
    let group = fs::metadata(&path).unwrap().gid();
    let of_group = Options {
        group: Some(group),
        ..options(&path)
    };
    let opened = open(&of_group, &observation(), &|| false).unwrap();
    assert!(written(&opened.journal, 2));
    assert_eq!((mode(&path), mode(&segments(&path)[1])), (0o2750, 0o640));
    close(opened.thread);

    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    let error = open(&options(&link), &observation(), &|| false).err().expect("refused");
    assert!(matches!(error, RefusedError::NotADirectory { .. }), "{error}");
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open(&options(&file), &observation(), &|| false).err().expect("refused");
    assert!(matches!(error, RefusedError::NotADirectory { .. }), "{error}");
}

#[test]
fn a_second_agent_is_refused_with_the_first_ones_pid_and_a_successor_waits() {
    let (_directory, path) = place();
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    let refused = Disk::open_within(&options(&path), Duration::ZERO, &|| false)
        .err()
        .expect("refused");
    let text = lines(&refused);
    let pid = std::process::id();
    assert!(text.contains(&format!("is in use by another agent (pid {pid})")), "{text}");
    let refusals = Arc::new(AtomicU32::new(0));
    let successor = {
        let (path, refusals) = (path.clone(), refusals.clone());
        std::thread::spawn(move || {
            // Asked whenever the lock is found taken.
            let stops = || {
                refusals.fetch_add(1, Ordering::Relaxed);
                false
            };
            Disk::open_within(&options(&path), LIMIT, &stops).is_ok()
        })
    };
    until("the successor to find the lock taken again and again", || {
        refusals.load(Ordering::Relaxed) >= 2
    });
    close(opened.thread);
    assert!(successor.join().unwrap());
}

#[test]
fn what_is_not_answered_is_pending_after_a_restart_with_the_same_bytes() {
    let (_directory, path) = place();
    let first = open(&options(&path), &observation(), &|| false).unwrap();
    assert!(first.past.finished.is_empty() && first.past.pending.is_empty());
    for n in 0..5 {
        write(&first.journal, n, Box::new(|_| {}));
    }
    first.journal.answered(Boot(9), &[id(1), id(3)]);
    close(first.thread);
    let second = open(&options(&path), &observation(), &|| false).unwrap();
    let pending: Vec<ReportId> = second.past.pending.iter().map(|pending| pending.id).collect();
    assert_eq!(pending, [id(0), id(2), id(4)]);
    assert_eq!(second.past.finished, (0..5).map(id).collect());
    for pending in &second.past.pending {
        let n = u64::from(pending.id.trace[0]);
        let kept = second.requests().pending(pending).expect("a directory");
        assert_eq!(kept.read().unwrap(), request(n));
        assert_eq!(
            (pending.verdict.as_deref(), pending.answered, pending.spans, kept.is_there()),
            (Some("clean"), 0, 3, true)
        );
        kept.answered();
    }
    close(second.thread);
    let third = open(&options(&path), &observation(), &|| false).unwrap();
    assert!(third.past.pending.is_empty());
    close(third.thread);
}

#[test]
fn what_is_answered_in_part_is_pending_for_the_rest() {
    let (_directory, path) = place();
    let first = open(&options(&path), &observation(), &|| false).unwrap();
    for n in 0..3 {
        write(&first.journal, n, Box::new(|_| {}));
    }
    first.journal.answered_in_part(Boot(9), 1, &[id(0), id(1)]);
    first.journal.answered_in_part(Boot(9), 2, &[id(2)]);
    first.journal.answered(Boot(10), &[id(1)]);
    close(first.thread);
    let second = open(&options(&path), &observation(), &|| false).unwrap();
    assert!(second.past.skipped.is_nothing(), "{:?}", second.past.skipped);
    let pending = second.past.pending.iter();
    let pending: Vec<(ReportId, u8)> = pending.map(|pending| (pending.id, pending.answered)).collect();
    assert_eq!(pending, [(id(0), 1), (id(2), 2)]);
    close(second.thread);
}

#[test]
fn the_oldest_segments_go_and_the_bound_holds() {
    let (_directory, path) = place();
    let small = Options {
        max_bytes: 64 << 10,
        ..options(&path)
    };
    let opened = open(&small, &observation(), &|| false).unwrap();
    for n in 0..1_000 {
        write(&opened.journal, n, Box::new(|_| {}));
        assert!(opened.journal.stats().size() <= 64 << 10);
        until("room", || opened.journal.has_room());
    }
    assert!(written(&opened.journal, 1_000));
    let allocated: u64 = segments(&path).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(allocated <= 64 << 10, "{allocated} bytes");
    let stats = opened.journal.stats();
    assert!(stats.removed_segments() > 10, "{stats:?}");
    assert_eq!(JournalDropReason::ALL.map(|reason| stats.dropped(reason)), [0; 4]);
    let (found, skipped) = read(&path);
    assert!(skipped.is_nothing(), "{skipped:?}");
    let first = found[0];
    assert!(first > 500, "the oldest are gone");
    assert_eq!(found, (first..=1_000).collect::<Vec<_>>());
    close(opened.thread);
}

#[test]
fn what_a_killed_agent_had_reserved_is_given_back() {
    let (_directory, path) = place();
    let (segment, _) = one_segment(&path, 2);
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    let keep = nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE;
    nix::fcntl::fallocate(&file, keep, 0, 4 << 20).unwrap();
    let taken = || file.metadata().unwrap().blocks() * 512;
    assert!(taken() >= 4 << 20, "{} bytes", taken());
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    assert!(taken() <= 64 << 10, "{} bytes", taken());
    close(opened.thread);
    assert_eq!(read(&path), (vec![0, 1], reader::Skipped::default()));
}

#[test]
fn many_short_segments_count_with_their_blocks() {
    let (_directory, path) = place();
    let small = Options {
        max_bytes: 64 << 10,
        ..options(&path)
    };
    for n in 0..30 {
        let opened = open(&small, &observation(), &|| false).unwrap();
        assert!(written(&opened.journal, n));
        close(opened.thread);
        assert!(segments(&path).len() <= 16, "{} segments", segments(&path).len());
    }
}

/// Writes a journal of one segment; returns the segment and where each report begins.
fn one_segment(path: &Path, count: u64) -> (PathBuf, Vec<usize>) {
    let opened = open(&options(path), &observation(), &|| false).unwrap();
    for n in 0..count {
        write(&opened.journal, n, Box::new(|_| {}));
    }
    close(opened.thread);
    let segment = segments(path).pop().unwrap();
    let bytes = fs::read(&segment).unwrap();
    let length = |at: usize| PREFIX + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut at = BEGINNING;
    let mut frames = Vec::new();
    // The header and its copy.
    at += length(at);
    at += length(at);
    while at < bytes.len() {
        frames.push(at);
        at += length(at);
    }
    assert_eq!(frames.len() as u64, count);
    (segment, frames)
}

#[test]
fn a_torn_end_is_cut_wherever_it_is_torn() {
    let (_directory, path) = place();
    let (segment, frames) = one_segment(&path, 4);
    let bytes = fs::read(&segment).unwrap();
    for end in frames[2]..bytes.len() {
        fs::write(&segment, &bytes[..end]).unwrap();
        let whole = frames.iter().filter(|begin| **begin < end).count();
        let begin = frames[whole - 1];
        let is_whole = end == *frames.get(whole).unwrap_or(&bytes.len());
        let expected = if is_whole { whole } else { whole - 1 } as u64;
        let disk = Disk::open(&options(&path), &|| false).unwrap();
        let past = Past::read(&disk, &|| ()).unwrap();
        assert_eq!(past.finished, (0..expected).map(id).collect(), "cut at {end}");
        let torn = if is_whole { 0 } else { (end - begin) as u64 };
        assert_eq!((past.skipped.torn, past.skipped.torn_bytes), (u64::from(torn > 0), torn));
        // Once: the next reader finds nothing torn.
        let again = Past::read(&disk, &|| ()).unwrap();
        assert!(again.skipped.is_nothing(), "{:?}", again.skipped);
    }
}

#[test]
fn a_flipped_bit_skips_one_frame_and_is_counted() {
    let (_directory, path) = place();
    let (segment, frames) = one_segment(&path, 5);
    let bytes = fs::read(&segment).unwrap();
    for at in frames[2]..frames[3] {
        for bit in [0, 7] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&segment, &flipped).unwrap();
            let (found, skipped) = read(&path);
            assert_eq!(found, [0, 1, 3, 4], "bit {bit} of byte {at}");
            assert_eq!(
                (skipped.damaged, skipped.damaged_bytes),
                (1, (frames[3] - frames[2]) as u64),
                "bit {bit} of byte {at}"
            );
        }
    }
}

#[test]
fn a_newer_segment_is_kept_aside_and_comes_back() {
    let (_directory, path) = place();
    let (segment, frames) = one_segment(&path, 3);
    let bytes = fs::read(&segment).unwrap();
    let mut newer = of_version(&bytes, 99);
    newer.extend_from_slice(&bytes[frames[0]..]);
    fs::write(&segment, &newer).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(read(&path).1.newer, std::slice::from_ref(&name));
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    assert!(written(&opened.journal, 7));
    let aside = format!("{name}.newer");
    assert_eq!(opened.past.skipped.newer, std::slice::from_ref(&aside));
    close(opened.thread);
    let (found, skipped) = read(&path);
    assert_eq!((found, skipped.newer), (vec![7], vec![aside.clone()]));
    // An epitaph that reads the version finds it again.
    fs::write(path.join(&aside), &bytes).unwrap();
    close(open(&options(&path), &observation(), &|| false).unwrap().thread);
    assert_eq!(read(&path), (vec![0, 1, 2, 7], reader::Skipped::default()));
}

/// The beginning of a segment of that version.
fn of_version(segment: &[u8], version: u32) -> Vec<u8> {
    let mut header = beginning::read_beginning(&mut Frames::new(segment)).unwrap().header.unwrap();
    header.version = version;
    let mut out = Vec::new();
    beginning::append_beginning(&mut out, &header).unwrap();
    out[8..BEGINNING].copy_from_slice(&version.to_le_bytes());
    out
}

/// The journal of one run with evidence and five reports: its segment, and where the first piece of evidence begins.
fn with_evidence(path: &Path) -> (PathBuf, usize) {
    let opened = open(&options(path), &observation(), &|| false).unwrap();
    for n in 0..5 {
        opened.journal.input(Boot(observation().since.0 + n), &Input::Tick);
        write(&opened.journal, n, Box::new(|_| {}));
    }
    close(opened.thread);
    let segment = segments(path).pop().unwrap();
    let bytes = fs::read(&segment).unwrap();
    let length = |at: usize| PREFIX + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let copy = BEGINNING + length(BEGINNING);
    (segment, copy + length(copy))
}

/// What the next agent gets: the finished reports, the evidence, and what is skipped.
fn recovered(path: &Path) -> (Vec<u8>, Vec<(Boot, Input)>, reader::Skipped) {
    let past = Past::read(&Disk::open(&options(path), &|| false).unwrap(), &|| ()).unwrap();
    let mut evidence = Vec::new();
    let fed: Result<(), ()> = past.replay(|now, input| {
        evidence.push((now, input));
        Ok(())
    });
    fed.unwrap();
    let mut finished: Vec<u8> = past.finished.iter().map(|id| id.trace[0]).collect();
    finished.sort_unstable();
    (finished, evidence, past.skipped)
}

#[test]
fn a_flipped_bit_in_the_header_costs_nothing() {
    let (_directory, path) = place();
    let (segment, first) = with_evidence(&path);
    let bytes = fs::read(&segment).unwrap();
    let (finished, evidence, _) = recovered(&path);
    assert_eq!((finished.len(), evidence.len()), (5, 6), "{evidence:?}");
    for at in 0..first {
        for bit in [0, 2, 7] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&segment, &flipped).unwrap();
            let (found, read) = read(&path);
            assert_eq!(found, [0, 1, 2, 3, 4], "bit {bit} of byte {at}");
            let (again, same, skipped) = recovered(&path);
            assert_eq!((&again, &same), (&finished, &evidence), "bit {bit} of byte {at}");
            for skipped in [read, skipped] {
                let only_damaged = reader::Skipped {
                    damaged: 1,
                    damaged_bytes: skipped.damaged_bytes,
                    ..reader::Skipped::default()
                };
                assert_eq!(skipped, only_damaged, "bit {bit} of byte {at}");
            }
            assert_eq!(segments(&path), std::slice::from_ref(&segment));
        }
    }
}

/// Where each frame begins.
fn starts(frames: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    while let Some(at) = starts.last().copied().filter(|at| *at < frames.len()) {
        starts.push(at + frame_length(&frames[at..]));
    }
    starts.pop();
    starts
}

/// As the first version had them: without numbers.
fn unnumbered(frames: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for at in starts(frames) {
        let payload = &frames[at..at + frame_length(&frames[at..])][PREFIX + NUMBER..];
        append(&mut out, &payload[..STAMP], &[&payload[STAMP..]]).unwrap();
    }
    out
}

/// Before, a segment's header had no copy and did not say its version, and its frames had no numbers.
#[test]
fn a_segment_of_the_first_builds_is_read_also_without_its_header() {
    let (_directory, path) = place();
    let (segment, first) = with_evidence(&path);
    let frames = unnumbered(&fs::read(&segment).unwrap()[first..]);
    let expected = recovered(&path);
    let header = serde_json::json!({ "epitaph": "0.1.0", "observation": observation(), "first": true });
    let mut bytes = Vec::new();
    append_header(&mut bytes, 1, &header).unwrap();
    let first = bytes.len();
    bytes.extend_from_slice(&frames);
    fs::write(&segment, &bytes).unwrap();
    assert_eq!(recovered(&path), expected);
    // A later run, to which the lost evidence does not belong.
    for at in 0..first {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        fs::write(&segment, &flipped).unwrap();
        let (found, skipped) = read(&path);
        assert_eq!((found, skipped.damaged), (vec![0, 1, 2, 3, 4], 1), "byte {at}");
        let (finished, evidence, skipped) = recovered(&path);
        assert_eq!((finished, skipped.damaged), (expected.0.clone(), 1), "byte {at}");
        // The header itself is whole behind magic and version; else the run is not known, and nothing of it is assumed.
        let known = if at < BEGINNING { expected.1.clone() } else { Vec::new() };
        assert_eq!(evidence, known, "byte {at}");
    }
}

/// How many of them state a loss, and how many do not.
fn lost_and_rest(evidence: &[(Boot, Input)]) -> (usize, usize) {
    let is_lost = |input: &Input| matches!(input, Input::Lost { .. } | Input::Node(NodeEvent::Lost { .. }));
    let lost = evidence.iter().filter(|(_, input)| is_lost(input)).count();
    (lost, evidence.len() - lost)
}

/// A whole segment of the run is missing in between, or at the end: what was going on is in doubt.
#[test]
fn evidence_without_a_header_is_stated_as_lost() {
    let (_directory, path) = place();
    let (segment, first) = with_evidence(&path);
    let frames = fs::read(&segment).unwrap()[first..].to_vec();
    let second = segment.with_file_name("0000000000000001.journal");
    fs::write(&second, [&b"EPITAPH\n\x02\0\0\0 damaged "[..], &frames].concat()).unwrap();
    let (_, evidence, skipped) = recovered(&path);
    assert_eq!(lost_and_rest(&evidence), (Input::part_missing(Boot(0)).len(), 6));
    assert_eq!((skipped.damaged, skipped.unreadable), (1, 0));
}

/// Of one run.
fn write_three_segments(path: &Path) {
    let small = Options {
        max_bytes: 64 << 10,
        ..options(path)
    };
    let opened = open(&small, &observation(), &|| false).unwrap();
    let mut n = 0;
    while segments(path).len() < 3 {
        opened.journal.input(Boot(observation().since.0 + n), &Input::Tick);
        // Not so far ahead of the disk that the oldest segment goes before the third is seen.
        if n.is_multiple_of(16) {
            assert!(written(&opened.journal, n));
        }
        n += 1;
    }
    close(opened.thread);
}

fn lost(evidence: &[(Boot, Input)]) -> bool {
    evidence.iter().any(|(_, input)| matches!(input, Input::Lost { .. }))
}

/// A damaged end is cut where nothing follows: elsewhere the evidence that is missing would be missed by nobody.
#[test]
fn the_damaged_end_of_an_older_segment_is_stated_as_lost() {
    let (_directory, path) = place();
    write_three_segments(&path);
    assert!(!lost(&recovered(&path).1));
    let first = segments(&path).remove(0);
    let mut bytes = fs::read(&first).unwrap();
    let end = bytes.len();
    bytes[end - 40..].fill(0xff);
    fs::write(&first, &bytes).unwrap();
    for _ in 0..2 {
        let (_, evidence, skipped) = recovered(&path);
        assert!(lost(&evidence), "also after a second start");
        assert_eq!(skipped.torn, 1);
    }
}

/// Whole frames: nothing but their numbers shows that they are gone.
#[test]
fn frames_that_were_cut_out_of_the_middle_are_noticed() {
    let (_directory, path) = place();
    let (segment, first) = with_evidence(&path);
    let bytes = fs::read(&segment).unwrap();
    // The third piece of evidence, and the report behind it.
    let starts = starts(&bytes[first..]);
    let cut = [&bytes[..first + starts[4]], &bytes[first + starts[6]..]].concat();
    fs::write(&segment, cut).unwrap();
    let two_missing = reader::Skipped {
        missing: 2,
        ..reader::Skipped::default()
    };
    assert_eq!(read(&path), (vec![0, 1, 3, 4], two_missing.clone()));
    let mut reader = Reader::open(&path).unwrap();
    while reader.next_report().is_some() {}
    let holes = reader.holes(Wall(0));
    assert!(matches!(holes[..], [Hole { why: Why::Cut(2), .. }]), "{holes:?}");

    let (finished, evidence, skipped) = recovered(&path);
    assert_eq!((finished, skipped), (vec![0, 1, 3, 4], two_missing));
    assert_eq!(
        lost_and_rest(&evidence),
        (Input::part_missing(Boot(0)).len(), 5),
        "{evidence:?}"
    );
}

/// At the end of a segment no number follows in the file: the next segment has it.
#[test]
fn frames_that_were_cut_off_an_older_segment_are_noticed() {
    let (_directory, path) = place();
    write_three_segments(&path);
    assert!(!lost(&recovered(&path).1) && read(&path).1.is_nothing());
    let first = segments(&path).remove(0);
    let bytes = fs::read(&first).unwrap();
    let begin = BEGINNING + frame_length(&bytes[BEGINNING..]);
    let last = *starts(&bytes[begin..]).last().unwrap();
    fs::write(&first, &bytes[..begin + last]).unwrap();
    assert!(lost(&recovered(&path).1));
    assert_eq!(read(&path).1.missing, 1);
}

/// A static pod keeps its UID: two terminations within a boot have one id.
#[test]
fn two_terminations_of_one_id_are_two_reports() {
    let (_directory, path) = place();
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    let end = |n: u64| {
        let (json, request) = (json(n), request(n));
        let report = Finished {
            wall: Wall(1_000 + n),
            id: id(0),
            spans: 3,
            json: json.as_bytes(),
            request: &request,
        };
        opened.journal.report(clock::now(), &report, Box::new(|_| {}));
    };
    end(1);
    // The same once more, as after a disk that failed.
    end(1);
    end(2);
    opened.journal.answered(Boot(9), &[id(0)]);
    close(opened.thread);
    let mut reader = Reader::open(&path).unwrap();
    let mut found = Vec::new();
    while let Some(report) = reader.next_report() {
        found.push(report.wall.0 - 1_000);
    }
    assert_eq!(found, [1, 2]);
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    let pending = opened.past.pending.iter();
    let requests: Vec<_> = pending
        .map(|pending| opened.requests().pending(pending).unwrap().read().unwrap())
        .collect();
    assert_eq!(requests, [request(2)], "the collector has the first one");
    close(opened.thread);
}

#[test]
fn what_is_kept_aside_counts_and_goes_with_the_oldest() {
    let (_directory, path) = place();
    let (segment, first) = with_evidence(&path);
    let bytes = fs::read(&segment).unwrap();
    let mut newer = of_version(&bytes, VERSION + 1);
    newer.extend_from_slice(&bytes[first..]);
    newer.resize(30 << 10, 0);
    fs::remove_file(&segment).unwrap();
    let aside = |n: u64| path.join(format!("{n:016}.journal.newer"));
    (1..=3).for_each(|n| fs::write(aside(n), &newer).unwrap());
    let small = Options {
        max_bytes: 64 << 10,
        ..options(&path)
    };
    let opened = open(&small, &observation(), &|| false).unwrap();
    assert!(written(&opened.journal, 1));
    assert_eq!(opened.past.skipped.newer.len(), 3);
    let stats = opened.journal.stats();
    assert!(stats.size() <= 64 << 10, "{} bytes", stats.size());
    assert_eq!([1, 2, 3].map(|n| aside(n).exists()), [false, false, true]);
    assert_eq!(stats.removed_segments(), 2);
    close(opened.thread);
}

#[test]
fn the_reader_needs_little_memory() {
    let (_directory, path) = place();
    let opened = open(&options(&path), &observation(), &|| false).unwrap();
    let json = vec![b'x'; 500 << 10];
    for n in 0..120 {
        let report = Finished {
            wall: Wall(n),
            id: id(n),
            spans: 1,
            json: &json,
            request: &[],
        };
        let (sender, receiver) = mpsc::channel();
        opened
            .journal
            .report(clock::now(), &report, Box::new(move |_| sender.send(()).unwrap()));
        opened.journal.in_progress(true);
        receiver.recv_timeout(LIMIT).unwrap();
    }
    close(opened.thread);
    let mut reader = Reader::open(&path).unwrap();
    let mut found = 0;
    while let Some(report) = reader.next_report() {
        assert_eq!(report.json.len(), json.len());
        found += 1;
        let kept = reader.memory();
        assert!(kept < 4 << 20, "{kept} bytes");
    }
    assert_eq!(found, 120);
}

#[test]
fn a_directory_that_comes_late_is_written_behind_its_segments_and_within_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, away) = (directory.path().join("disk"), directory.path().join("away"));
    fs::create_dir(&disk).unwrap();
    let path = disk.join("journal");
    let small = Options {
        max_bytes: 64 << 10,
        ..options(&path)
    };
    let fill = |journal: &Journal, reports: std::ops::Range<u64>| {
        reports.for_each(|n| write(journal, n, Box::new(|_| {})));
    };
    let first = open(&small, &observation(), &|| false).unwrap();
    fill(&first.journal, 0..200);
    assert!(written(&first.journal, 200));
    close(first.thread);
    let earlier = segments(&path);
    fs::rename(&disk, &away).unwrap();

    let late = open(&small, &observation(), &|| false).unwrap();
    fs::rename(&away, &disk).unwrap();
    until("the journal to be written", || late.journal.stats().trouble().is_none());
    assert!(written(&late.journal, 201), "not held");
    assert!(segments(&path).starts_with(&earlier) && segments(&path).len() == earlier.len() + 1);
    fill(&late.journal, 202..400);
    assert!(written(&late.journal, 400));
    let stats = late.journal.stats();
    assert!(stats.size() <= 64 << 10, "{} bytes", stats.size());
    assert!(stats.removed_segments() > 0 && !earlier[0].exists());
    close(late.thread);
    let bytes: u64 = segments(&path).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes <= 64 << 10, "{bytes} bytes");
    assert_eq!(read(&path).0.last(), Some(&400));
}

/// The wall clock was an hour behind for the first ten seconds of the run.
#[test]
fn an_export_is_cut_by_the_wall_clock_of_each_moment() {
    use epitaph_core::time::WallOffset;
    const SECOND: u64 = 1_000_000_000;
    let (_directory, path) = place();
    let began = observation();
    let at = |seconds: u64| Boot(began.since.0 + seconds * SECOND);
    let opened = open(&options(&path), &began, &|| false).unwrap();
    let right = WallOffset(began.wall_offset.0 + 3_600 * SECOND as i64);
    opened.journal.input(at(1), &Input::Tick);
    opened.journal.input(at(10), &Input::Clock(right));
    opened.journal.input(at(20), &Input::Tick);
    close(opened.thread);
    let part = |since| export::Part {
        since: Some(since),
        until: None,
    };
    let exported = |since| export::export(&mut Reader::open(&path).unwrap(), part(since), Vec::new()).unwrap();
    assert_eq!(exported(right.wall(at(15))).inputs, 1);
    let all = exported(began.wall_offset.wall(at(0)));
    assert_eq!(
        (all.inputs, all.between),
        (3, Some((began.wall_offset.wall(at(1)), right.wall(at(20)))))
    );
}

/// The journal has a cgroup's path and the processes of a unit once, before the first evidence that needs them.
#[test]
fn an_export_has_who_was_introduced_before_it() {
    use epitaph_core::ids::{CgroupId, Pid};
    use epitaph_core::input::{CgroupFact, ProcessFact};
    const SECOND: u64 = 1_000_000_000;
    let (_directory, path) = place();
    let began = observation();
    let at = |seconds: u64| Boot(began.since.0 + seconds * SECOND);
    let known = |id: u64| {
        Input::Cgroup(CgroupFact {
            cgroup: CgroupId::v2(id),
            path: Ok(format!("/system.slice/{id}.service")),
            created: None,
        })
    };
    let opened = open(&options(&path), &began, &|| false).unwrap();
    for (seconds, id) in [(1, 7), (2, 8), (3, 7)] {
        opened.journal.input(at(seconds), &known(id));
    }
    let main = Input::Process(ProcessFact {
        tgid: Pid(70),
        ppid: Pid(1),
        start: began.since,
        ns_level: 0,
        ns_pid: 70,
        comm: "seven".into(),
        cgroups: vec![(CgroupId::v2(7), "/system.slice/7.service".into())],
    });
    opened.journal.input(at(4), &main);
    opened.journal.input(at(20), &Input::Tick);
    close(opened.thread);
    let part = export::Part {
        since: Some(began.wall_offset.wall(at(15))),
        until: None,
    };
    let mut copy = Vec::new();
    export::export(&mut Reader::open(&path).unwrap(), part, &mut copy).unwrap();
    let known_before: Vec<(Boot, Input)> = crate::recording::Reader::new(copy.as_slice(), epitaph_core::decode::decode)
        .unwrap()
        .filter(|(_, input)| matches!(input, Input::Cgroup(_) | Input::Process(_)))
        .collect();
    assert_eq!(known_before, [(at(2), known(8)), (at(3), known(7)), (at(4), main)]);
}
