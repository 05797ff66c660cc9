//! Files in the journal's directory that are not the journal's: neither read nor changed nor removed.

use std::fs;

use epitaph_core::fixtures::terminations::observation;

use super::reader::Reader;
use super::tests::{close, write, written};
use super::*;

#[test]
fn what_is_not_a_segment_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let options = Options {
        directory: path.clone(),
        group: None,
        max_bytes: 64 << 10,
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
        if n % 50 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
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
