//! Files in the journal's directory that are not the journal's: neither read nor changed nor removed.

use std::fs;

use epitaph_core::fixtures::terminations::observation;

use super::format::segment_name;
use super::reader::Reader;
use super::tests::{close, id, write, written};
use super::*;
use crate::waiting::until;

#[test]
fn what_is_not_a_segment_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let options = Options {
        directory: path.clone(),
        group: None,
        max_bytes: 64 << 10,
        pid: std::process::id(),
    };
    close(open(&options, &observation(), &|| false).unwrap().thread);
    let names = [
        "notes.txt",
        "0000000000000000.journal.bak",
        "1.journal",
        ".0000000000000001.journal.swp",
        "lock.old",
        "not-a-number-1234.journal",
    ];
    for name in names {
        fs::write(path.join(name), name).unwrap();
    }
    let inner = path.join("0000000000000002.journals");
    fs::create_dir(&inner).unwrap();
    std::os::unix::fs::symlink("/nonexistent", path.join("link")).unwrap();

    // The journal goes round several times.
    let opened = open(&options, &observation(), &|| false).unwrap();
    assert!(opened.past.skipped.is_nothing(), "{:?}", opened.past.skipped);
    const LAST: u64 = 1_000;
    for n in 0..LAST {
        write(&opened.journal, n, Box::new(|_| {}));
        until("room", || opened.journal.has_room());
    }
    assert!(written(&opened.journal, LAST));
    assert!(opened.journal.stats().removed_segments() > 10);
    close(opened.thread);
    for name in names {
        assert_eq!(fs::read_to_string(path.join(name)).unwrap(), name);
    }
    assert!(inner.is_dir() && path.join("link").symlink_metadata().is_ok());

    let mut reader = Reader::open(&path).unwrap();
    let mut last = 0;
    while let Some(report) = reader.next_report() {
        last = report.wall.0 - 1_000;
    }
    assert_eq!(last, LAST);
    assert!(reader.skipped().is_nothing(), "{:?}", reader.skipped());
}

#[test]
fn a_link_or_a_directory_with_a_segments_name_is_counted_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let options = Options {
        directory: path.clone(),
        group: None,
        max_bytes: 64 << 10,
        pid: std::process::id(),
    };
    close(open(&options, &observation(), &|| false).unwrap().thread);
    let elsewhere = directory.path().join("elsewhere");
    fs::write(&elsewhere, "another's").unwrap();
    let (link, inner) = (path.join(segment_name(7)), path.join(segment_name(8)));
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    fs::create_dir(&inner).unwrap();

    let opened = open(&options, &observation(), &|| false).unwrap();
    assert_eq!(opened.past.skipped.unreadable, 2, "{:?}", opened.past.skipped);
    write(&opened.journal, 1, Box::new(|_| {}));
    assert!(written(&opened.journal, 1));
    close(opened.thread);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "another's");
    assert!(link.is_symlink() && inner.is_dir());

    let mut reader = Reader::open(&path).unwrap();
    assert!(reader.next_report().is_some());
    assert!(reader.next_report().is_none());
    assert_eq!(reader.skipped().unreadable, 2);
}

/// Also of another user, or on a damaged place of the disk.
#[test]
fn a_segment_that_cannot_be_opened_hides_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let options = Options {
        directory: path.clone(),
        group: None,
        max_bytes: 64 << 10,
        pid: std::process::id(),
    };
    let first = open(&options, &observation(), &|| false).unwrap();
    assert!(written(&first.journal, 1));
    close(first.thread);
    // The one file that root cannot open either.
    let closed = path.join(segment_name(7));
    let _socket = std::os::unix::net::UnixListener::bind(&closed).unwrap();

    let second = open(&options, &observation(), &|| false).unwrap();
    assert_eq!(second.journal.stats().trouble(), None);
    assert_eq!(second.past.skipped.unreadable, 1, "{:?}", second.past.skipped);
    assert_eq!(second.past.pending.len(), 1);
    assert!(second.past.finished.contains(&id(1)));
    assert!(written(&second.journal, 2));
    close(second.thread);
}
