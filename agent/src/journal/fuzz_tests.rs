//! A segment of unknown origin: any bytes are read by the agent at its start, by the readers, and by the export.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;

use epitaph_core::decode::decode;
use epitaph_core::time::Wall;

use super::export::{self, Part};
use super::files::Disk;
use super::format::{append_answered, append_answered_in_part, append_resource, segment_name};
use super::reader::Reader;
use super::tests::options;
use super::*;
use crate::fuzz::{outcome, run_frames};
use crate::recording;

/// A recording is a segment with evidence only; each seed also has a report, and its answer.
fn with_reports(mut segment: Vec<u8>) -> Vec<u8> {
    let id = ReportId {
        trace: [1; 16],
        span: [2; 8],
    };
    let report = Finished {
        wall: Wall(1),
        id,
        spans: 1,
        json: b"{\"type\":\"termination\",\"verdict\":\"clean\"}\n",
        request: b"request",
    };
    report
        .append(&mut segment, epitaph_core::time::Boot(1))
        .expect("a short report");
    append_resource(&mut segment, epitaph_core::time::Boot(2), id, b"{}").expect("a short resource");
    append_answered_in_part(&mut segment, epitaph_core::time::Boot(2), 1, &[id]).expect("one answer");
    append_answered(&mut segment, epitaph_core::time::Boot(2), &[id]).expect("one answer");
    segment
}

#[test]
fn journal_segment() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("journal");
    fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory");
    let file = path.join(segment_name(0));
    let seeds = crate::fuzz::recordings::unnumbered().into_iter().map(with_reports).collect();
    run_frames("journal_segment", seeds, |bytes| {
        fs::write(&file, bytes).expect("a segment");
        let mut reader = Reader::open(&path).expect("the directory");
        let mut reports = 0_usize;
        while reader.next_report().is_some() {
            reports += 1;
        }
        let mut reader = Reader::open(&path).expect("the directory");
        let mut copy = Vec::new();
        let exported = export::export(&mut reader, Part::default(), &mut copy).expect("memory is written");
        assert_eq!(exported.inputs > 0, !copy.is_empty());
        if !copy.is_empty() {
            let mut copied = recording::Reader::new(copy.as_slice(), decode).expect("an export is a recording");
            let count = copied.by_ref().count() as u64;
            // Of a kernel record of a kind that only a newer version knows there is nothing to return.
            let unknown = copied.report().unknown_inputs + copied.report().undecodable;
            assert!(count + unknown >= exported.inputs);
            assert_eq!((copied.report().damaged, copied.report().tail_bytes), (0, 0));
        }
        let disk = Disk::open(&options(&path), &|| false).expect("the directory");
        let past = Past::read(&disk, &|| ()).expect("a segment");
        let mut inputs = 0_u64;
        let fed: Result<(), ()> = past.replay(|_, _| {
            inputs += 1;
            Ok(())
        });
        assert_eq!(fed, Ok(()));
        // A newer version's segment is kept under another name: the next input must be the only segment.
        for left in fs::read_dir(&path).expect("the directory") {
            let left = left.expect("an entry").path();
            if left != file {
                fs::remove_file(left).expect("a file of this test");
            }
        }
        outcome((
            reports.min(3),
            past.pending.len().min(2),
            past.skipped.damaged.min(3),
            past.skipped.torn.min(1),
            exported.inputs.min(20),
            inputs.min(20),
        ))
    });
}
