//! Finished reports that the disk has not confirmed, in memory: written again once the disk works. And those that nothing holds, by
//! number and time: readers state them.

use epitaph_core::time::{Boot, Wall};

use super::format::{Finished, LostReports, TAG_REPORT, append};
use super::stats::Trouble;
use crate::recording::frames::{PREFIX, of_numbered, stamp};

/// Most bytes of reports, some hundred of them: without their requests, which the exporter has.
const MOST: usize = 2 << 20;

/// More than a second of a quiet node needs is given back after a sync.
const USUAL: usize = 64 << 10;

/// Finished reports that the journal does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub count: u64,
    /// Ends of the first and the last one, in the order of time.
    pub between: Option<(Wall, Wall)>,
}

impl Lost {
    pub fn add(&mut self, end: Wall) {
        self.merge(&Lost {
            count: 1,
            between: Some((end, end)),
        });
    }

    fn merge(&mut self, other: &Lost) {
        self.count += other.count;
        self.between = match (self.between, other.between) {
            (Some((first, last)), Some((from, to))) => Some((first.min(from), last.max(to))),
            (one, other) => one.or(other),
        };
    }
}

#[derive(Debug, Default)]
pub(super) struct Held {
    /// Frames of reports.
    frames: Vec<u8>,
    /// Reports since the last sync that did not fit: lost, if the sync fails.
    unheld: Lost,
    /// To be stated in the journal.
    lost: Lost,
    /// Stated, and not synced.
    stated: Lost,
    why: Option<Trouble>,
}

impl Held {
    /// Holds the reports among the frames; returns how many there are.
    pub fn keep(&mut self, frames: &[u8]) -> u64 {
        let mut count = 0;
        for frame in each(frames) {
            let (now, tag, body) = of_numbered(frame);
            let Some(report) = Some(body).filter(|_| tag == TAG_REPORT).and_then(Finished::read) else {
                continue;
            };
            count += 1;
            let without = Finished { request: &[], ..report };
            let fits = self.frames.len() + frame.len() - report.request.len() <= MOST;
            if !fits || without.append(&mut self.frames, now).is_err() {
                self.unheld.add(report.wall);
            }
        }
        count
    }

    /// How many reports are held.
    pub fn count(&self) -> u64 {
        each(&self.frames).count() as u64
    }

    /// The journal will not have these.
    pub fn lose(&mut self, lost: &Lost) {
        self.lost.merge(lost);
    }

    /// The reports as frames of that time.
    pub fn append_to(&self, out: &mut Vec<u8>, at: Boot) {
        for frame in each(&self.frames) {
            let (_, tag, body) = of_numbered(frame);
            // As long as before.
            let _ = append(out, &stamp(at, tag), &[body]);
        }
    }

    /// States what is lost, if anything is.
    pub fn append_lost_to(&mut self, out: &mut Vec<u8>, at: Boot) {
        let lost = std::mem::take(&mut self.lost);
        if let Some((first, last)) = lost.between {
            let stated = LostReports {
                reports: lost.count,
                first,
                last,
                why: self.why.map(|why| why.name().to_owned()),
            };
            // A few words: never longer than a frame.
            let _ = stated.append(out, at);
        }
        self.stated.merge(&lost);
    }

    /// All that was written is safe.
    pub fn synced(&mut self) {
        self.frames.clear();
        self.frames.shrink_to(USUAL);
        (self.unheld, self.stated, self.why) = (Lost::default(), Lost::default(), None);
    }

    /// What was written since the last sync may not be on the disk. Returns how many reports are lost by that.
    pub fn refused(&mut self, why: Option<Trouble>) -> u64 {
        let unheld = std::mem::take(&mut self.unheld);
        let stated = std::mem::take(&mut self.stated);
        self.lost.merge(&stated);
        self.lost.merge(&unheld);
        self.why = why.or(self.why);
        unheld.count
    }
}

fn each(mut frames: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (frame, rest) = first(frames)?;
        frames = rest;
        Some(frame)
    })
}

/// The frame at the beginning, and the rest.
fn first(frames: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*frames.first_chunk()?) as usize;
    frames.split_at_checked(PREFIX + length)
}

#[cfg(test)]
mod tests {
    use super::super::format::ReportId;
    use super::*;

    fn report(out: &mut Vec<u8>, wall: u64, json: &[u8]) {
        let id = ReportId {
            trace: [1; 16],
            span: [2; 8],
        };
        let report = Finished {
            wall: Wall(wall),
            id,
            spans: 3,
            json,
            request: b"request",
        };
        report.append(out, Boot(wall)).unwrap();
    }

    fn read(frames: &[u8]) -> Vec<(Boot, u64, usize)> {
        let mut frames = frames;
        let mut found = Vec::new();
        while let Some((frame, rest)) = first(frames) {
            frames = rest;
            let (now, tag, body) = of_numbered(frame);
            match LostReports::read(tag, body) {
                Some(lost) => found.push((now, lost.reports, 0)),
                None => {
                    let report = Finished::read(body).expect("a report");
                    assert!(report.request.is_empty());
                    found.push((now, report.wall.0, report.json.len()));
                }
            }
        }
        found
    }

    #[test]
    fn reports_are_held_without_their_requests_until_a_sync() {
        let mut held = Held::default();
        let mut frames = Vec::new();
        report(&mut frames, 5, b"one");
        append(&mut frames, &stamp(Boot(6), crate::recording::TAG_KERNEL), &[b"record"]).unwrap();
        report(&mut frames, 7, b"three");
        assert_eq!(held.keep(&frames), 2);
        assert_eq!(held.refused(Some(Trouble::Full)), 0);
        for _ in 0..2 {
            let mut out = Vec::new();
            held.append_to(&mut out, Boot(9));
            held.append_lost_to(&mut out, Boot(9));
            assert_eq!(read(&out), [(Boot(9), 5, 3), (Boot(9), 7, 5)], "also after a second refusal");
        }
        held.synced();
        let mut out = Vec::new();
        held.append_to(&mut out, Boot(9));
        assert!(out.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_stated_until_the_statement_is_safe() {
        let mut held = Held::default();
        let mut frames = Vec::new();
        for n in 0..5 {
            report(&mut frames, n, &vec![b'x'; 700 << 10]);
        }
        assert_eq!(held.keep(&frames), 5);
        let mut out = Vec::new();
        held.append_lost_to(&mut out, Boot(1));
        assert!(out.is_empty(), "written, and not refused");
        assert_eq!((held.refused(Some(Trouble::Full)), held.refused(None)), (3, 0));
        for _ in 0..2 {
            let mut out = Vec::new();
            held.append_lost_to(&mut out, Boot(9));
            let (frame, _) = first(&out).unwrap();
            let (_, tag, body) = of_numbered(frame);
            let stated = LostReports::read(tag, body).unwrap();
            assert_eq!((stated.reports, stated.first, stated.last), (3, Wall(2), Wall(4)));
            assert_eq!(stated.why.as_deref(), Some("full"));
            held.refused(None);
        }
        let mut out = Vec::new();
        held.append_lost_to(&mut out, Boot(9));
        held.synced();
        out.clear();
        held.refused(None);
        held.append_lost_to(&mut out, Boot(9));
        assert!(out.is_empty());
    }
}
