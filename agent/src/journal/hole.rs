//! Times of which the journal does not have all: what readers must say beside what they found.

use std::time::Duration;

use epitaph_core::input::Observation;
use epitaph_core::time::{Boot, Wall, WallOffset};

use super::export::clock_set;
use super::format::{LostReports, SegmentHeader};
use crate::recording::TAG_INPUT;

/// A running agent writes a frame at least every 30 s.
const SILENCE: Duration = Duration::from_secs(90);

/// Most that are kept one by one; older ones are one.
const MOST: usize = 6;

/// A time of which terminations are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    pub from: Wall,
    pub to: Wall,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// So many finished reports; the state of the journal then.
    Lost { reports: u64, state: Option<String> },
    /// Nothing was written: between two runs of an agent, or a run's last part is not on the disk.
    Silence,
    /// Nothing was written until the machine booted: it was off, or no agent ran.
    Boot,
    /// So many records, of those that were written.
    Cut(u64),
    /// The end of the journal: nothing has been written since.
    End,
    /// Several holes.
    Several(u64),
}

/// Collects the holes of a journal while its frames are read, in their order.
#[derive(Debug, Default)]
pub(super) struct Holes {
    found: Vec<Hole>,
    run: Option<Run>,
    /// Frames that are missing before the next one.
    cut: u64,
}

/// The run whose frames are read.
#[derive(Debug)]
struct Run {
    observation: Observation,
    clock: WallOffset,
    last: Wall,
}

impl Holes {
    /// A segment begins; None: its header is damaged, and of which run it is is not known.
    pub fn segment(&mut self, header: Option<&SegmentHeader>) {
        let Some(header) = header else {
            return self.missing();
        };
        let observation = &header.observation;
        let clock = observation.wall_offset;
        if let Some(run) = &mut self.run
            && header.is_of(&run.observation)
        {
            run.clock = clock;
            return;
        }
        let began = clock.wall(observation.since);
        self.end_cut();
        if let Some(run) = self.run.take() {
            let mut since = run.last;
            if run.observation.boot_id != observation.boot_id {
                let booted = clock.wall(Boot(0));
                self.silence(since, booted, Why::Boot);
                since = booted;
            }
            self.silence(since, began, Why::Silence);
        }
        self.run = Some(Run {
            observation: observation.clone(),
            clock,
            last: began,
        });
    }

    /// A segment cannot be read.
    pub fn missing(&mut self) {
        self.end_cut();
        self.run = None;
    }

    /// No frame of this run follows what is missing.
    fn end_cut(&mut self) {
        let count = std::mem::take(&mut self.cut);
        if let Some(last) = self.run.as_ref().map(|run| run.last)
            && count > 0
        {
            self.add(Hole {
                from: last,
                to: last,
                why: Why::Cut(count),
            });
        }
    }

    /// So many frames are missing before the next one.
    pub fn cut(&mut self, count: u64) {
        self.cut += count;
    }

    pub fn frame(&mut self, now: Boot, tag: u8, body: &[u8]) {
        if let Some(LostReports {
            reports,
            first,
            last,
            why,
        }) = LostReports::read(tag, body)
        {
            self.add(Hole {
                from: first,
                to: last,
                why: Why::Lost { reports, state: why },
            });
        }
        let Some(run) = &mut self.run else { return };
        if tag == TAG_INPUT
            && let Some(offset) = clock_set(body)
        {
            run.clock = offset;
            run.last = offset.wall(now);
        }
        let from = run.last;
        run.last = from.max(run.clock.wall(now));
        let (to, count) = (run.last, std::mem::take(&mut self.cut));
        if count > 0 {
            let why = Why::Cut(count);
            self.add(Hole { from, to, why });
        }
    }

    /// So far, the oldest first; also the end, if nothing was written for a while before `now`.
    pub fn until(&self, now: Wall) -> Vec<Hole> {
        let mut all = Holes {
            found: self.found.clone(),
            ..Holes::default()
        };
        if let Some(run) = &self.run {
            all.silence(run.last, now, Why::End);
        }
        all.found
    }

    fn silence(&mut self, from: Wall, to: Wall, why: Why) {
        if to.0.saturating_sub(from.0) > SILENCE.as_nanos() as u64 {
            self.add(Hole { from, to, why });
        }
    }

    fn add(&mut self, hole: Hole) {
        if self.found.len() >= MOST {
            let second = self.found.remove(1);
            let first = &mut self.found[0];
            let count = |why: &Why| if let Why::Several(count) = why { *count } else { 1 };
            first.why = Why::Several(count(&first.why) + count(&second.why));
            (first.from, first.to) = (first.from.min(second.from), first.to.max(second.to));
        }
        self.found.push(hole);
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::fixtures::terminations::observation;
    use epitaph_core::input::Input;

    use super::*;
    use crate::recording::input_json;

    const SECOND: u64 = 1_000_000_000;

    fn header(since: u64) -> SegmentHeader {
        SegmentHeader {
            version: 1,
            epitaph: "0".to_owned(),
            observation: Observation {
                since: Boot(since * SECOND),
                wall_offset: WallOffset(0),
                ..observation()
            },
            first: true,
            number: 0,
        }
    }

    fn at(second: u64) -> Boot {
        Boot(second * SECOND)
    }

    fn wall(second: u64) -> Wall {
        Wall(second * SECOND)
    }

    fn hole(from: u64, to: u64, why: Why) -> Hole {
        Hole {
            from: wall(from),
            to: wall(to),
            why,
        }
    }

    #[test]
    fn silence_between_runs_and_at_the_end_is_a_hole_and_a_restart_is_not() {
        let mut holes = Holes::default();
        holes.segment(Some(&header(100)));
        holes.frame(at(130), TAG_INPUT, b"");
        // The same run, after trouble with the disk: what was finished meanwhile is written late, or stated as lost.
        holes.segment(Some(&header(100)));
        holes.frame(at(500), TAG_INPUT, b"");
        holes.segment(Some(&header(510)));
        holes.segment(Some(&header(1_000)));
        holes.frame(at(1_010), TAG_INPUT, b"");
        let silence = hole(510, 1_000, Why::Silence);
        assert_eq!(holes.until(wall(1_050)), std::slice::from_ref(&silence));
        assert_eq!(holes.until(wall(2_000)), [silence.clone(), hole(1_010, 2_000, Why::End)]);
        // Warned of elsewhere: what was in it is not known.
        holes.missing();
        holes.segment(Some(&header(9_000)));
        holes.segment(None);
        assert_eq!(holes.until(wall(20_000)), [silence]);
    }

    #[test]
    fn a_machine_that_was_off_is_told_from_an_agent_that_did_not_run() {
        let mut holes = Holes::default();
        holes.segment(Some(&header(100)));
        let mut next = header(10);
        next.observation.boot_id = "another".to_owned();
        next.observation.wall_offset = WallOffset(40_000 * SECOND as i64);
        holes.segment(Some(&next));
        assert_eq!(holes.until(wall(40_020)), [hole(100, 40_000, Why::Boot)]);
        // The agent of the third boot came late.
        let mut third = header(300);
        third.observation.boot_id = "third".to_owned();
        third.observation.wall_offset = WallOffset(40_050 * SECOND as i64);
        holes.segment(Some(&third));
        let late = hole(40_050, 40_350, Why::Silence);
        assert_eq!(holes.until(wall(40_360)), [hole(100, 40_000, Why::Boot), late]);
    }

    #[test]
    fn a_clock_that_is_set_is_not_silence() {
        let mut holes = Holes::default();
        holes.segment(Some(&header(10)));
        let clock = Input::Clock(WallOffset(50_000 * SECOND as i64));
        holes.frame(at(20), TAG_INPUT, &input_json(&clock).unwrap());
        let mut next = header(40);
        next.observation.wall_offset = WallOffset(50_000 * SECOND as i64);
        holes.segment(Some(&next));
        assert_eq!(holes.until(wall(50_060)), []);
    }

    #[test]
    fn lost_reports_are_a_hole_and_holes_are_bounded() {
        let mut holes = Holes::default();
        for n in 0..100 {
            let mut frame = Vec::new();
            let lost = LostReports {
                reports: 2,
                first: wall(n * 10),
                last: wall(n * 10 + 5),
                why: Some("full".to_owned()),
            };
            lost.append(&mut frame, at(0)).unwrap();
            let (now, tag, body) = crate::recording::frames::of_numbered(&frame);
            holes.frame(now, tag, body);
        }
        let all = holes.until(wall(0));
        let lost = |n: u64| {
            let state = Some("full".to_owned());
            hole(n * 10, n * 10 + 5, Why::Lost { reports: 2, state })
        };
        assert_eq!((all.len(), &all[0]), (MOST, &hole(0, 945, Why::Several(95))));
        assert_eq!((&all[1], &all[5]), (&lost(95), &lost(99)));
    }
}
