//! A part of the journal as a recording: evidence for a bug report, judged again by `epitaph replay`.
//!
//! The evidence before the part is missing in it, and stated as lost: a termination that began before is judged as unknown where that
//! evidence decides.

use std::collections::BTreeMap;
use std::io::Write;

use epitaph_core::decode::decode;
use epitaph_core::event::{Event, Kind};
use epitaph_core::ids::{CgroupId, Pid};
use epitaph_core::input::{Input, Observation};
use epitaph_core::stored::StoredInput;
use epitaph_core::time::{Boot, Wall, WallOffset};

use super::format::SegmentHeader;
use super::reader::{Evidence, Reader};
use crate::recording::{TAG_INPUT, TAG_KERNEL, WriteError, Writer};

/// Most bytes of the states of one run: the later ones are missing in the part.
const STATES: usize = 4 << 20;

/// Evidence that came within it, by the wall clock of its run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub since: Option<Wall>,
    pub until: Option<Wall>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Pieces of evidence.
    pub inputs: u64,
    /// Runs of the agent.
    pub runs: u64,
    /// When the first and the last piece came.
    pub between: Option<(Wall, Wall)>,
}

/// Copies that part of the journal. Nothing is written if there is no evidence in it.
///
/// # Errors
/// Writing failed.
pub fn export<W: Write>(reader: &mut Reader, part: Part, out: W) -> Result<Exported, WriteError> {
    let mut export = Export {
        part,
        out: Some(out),
        writer: None,
        run: None,
        expected: None,
        last: Boot(0),
        misses: false,
        left_out: None,
        begun: None,
        exported: Exported::default(),
    };
    while let Some(evidence) = reader.next_evidence() {
        match evidence {
            Evidence::Began { number, header } => export.segment(number, header)?,
            Evidence::Missing => export.missing(),
            Evidence::Frame { damaged, now, tag, body } => {
                if damaged {
                    export.missing();
                }
                export.frame(now, tag, body)?;
            }
        }
    }
    export.end()
}

struct Export<W: Write> {
    part: Part,
    /// Until the first evidence.
    out: Option<W>,
    writer: Option<Writer<W>>,
    run: Option<Run>,
    /// Number of the segment that continues the last one.
    expected: Option<u64>,
    last: Boot,
    /// After the last frame evidence is missing.
    misses: bool,
    /// Since when evidence was left out, of the boot with this id: also of a run that ended before the part.
    left_out: Option<(String, Boot)>,
    /// Boot id of the run that was begun last.
    begun: Option<String>,
    exported: Exported,
}

/// A run of the agent.
struct Run {
    observation: Observation,
    /// As of the last frame: the wall clock may have been set since the run's begin.
    clock: WallOffset,
    /// Until the first evidence.
    states: States,
    /// Evidence before is left out or missing.
    is_cut: bool,
    begun: bool,
}

impl<W: Write> Export<W> {
    fn segment(&mut self, number: u64, header: &SegmentHeader) -> Result<(), WriteError> {
        let is_next = self.expected.replace(number + 1) == Some(number);
        if !self.run.as_ref().is_some_and(|run| header.is_of(&run.observation)) {
            self.lose(self.last)?;
            self.run = Some(Run {
                observation: header.observation.clone(),
                clock: header.observation.wall_offset,
                states: States::default(),
                is_cut: !header.first,
                begun: false,
            });
        } else {
            // What it said in between may be missing.
            if let Some(run) = &mut self.run {
                run.clock = header.observation.wall_offset;
            }
            if !is_next {
                self.missing();
            }
        }
        Ok(())
    }

    fn missing(&mut self) {
        match &mut self.run {
            Some(run) if run.begun => self.misses = true,
            Some(run) => run.is_cut = true,
            None => {}
        }
    }

    /// What is missing is known to be before `now`.
    fn lose(&mut self, now: Boot) -> Result<(), WriteError> {
        match &mut self.writer {
            Some(writer) if std::mem::take(&mut self.misses) => {
                let lost = Input::part_missing(self.last);
                lost.iter().try_for_each(|lost| writer.input(now, lost))
            }
            _ => Ok(()),
        }
    }

    fn frame(&mut self, now: Boot, tag: u8, body: &[u8]) -> Result<(), WriteError> {
        let Some(run) = &mut self.run else { return Ok(()) };
        if tag == TAG_INPUT
            && let Some(offset) = clock_set(body)
        {
            run.clock = offset;
        }
        let wall = run.clock.wall(now);
        if self.part.until.is_some_and(|until| wall > until) {
            return Ok(());
        }
        if self.part.since.is_some_and(|since| wall < since) && !run.begun {
            run.is_cut |= !run.states.take(now, tag, body);
            let (boot, since) = (&run.observation.boot_id, run.observation.since);
            if run.is_cut && self.left_out.as_ref().is_none_or(|(of, _)| of != boot) {
                self.left_out = Some((boot.clone(), since));
            }
            return Ok(());
        }
        if !run.begun {
            // Stated by the first run of its boot.
            let boot = &run.observation.boot_id;
            let is_first = self.begun.as_ref() != Some(boot);
            let left_out = self.left_out.as_ref().filter(|(of, _)| is_first && of == boot);
            let since = left_out.map(|(_, since)| *since);
            self.begun = Some(boot.clone());
            begin(run, since, self.last, &mut self.out, &mut self.writer, now)?;
            self.exported.runs += 1;
        }
        self.lose(now)?;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.frame(now, tag, body)?;
        self.last = now;
        self.exported.inputs += 1;
        let first = self.exported.between.map_or(wall, |(first, _)| first);
        self.exported.between = Some((first, wall));
        Ok(())
    }

    fn end(mut self) -> Result<Exported, WriteError> {
        self.lose(self.last)?;
        if let Some(writer) = &mut self.writer {
            clients_lost(writer, self.last)?;
            writer.flush()?;
        }
        Ok(self.exported)
    }
}

/// Writes what the evidence of a run needs before it. `left_out`: since when evidence is left out.
fn begin<W: Write>(
    run: &mut Run,
    left_out: Option<Boot>,
    last: Boot,
    out: &mut Option<W>,
    writer: &mut Option<Writer<W>>,
    now: Boot,
) -> Result<(), WriteError> {
    run.begun = true;
    let since = run.observation.since;
    if let Some(out) = out.take() {
        *writer = Some(Writer::new(out, &run.observation)?);
    } else if let Some(writer) = writer {
        clients_lost(writer, last)?;
    }
    let Some(writer) = writer else { return Ok(()) };
    writer.input(since, &Input::Start(run.observation.clone()))?;
    for (at, body) in std::mem::take(&mut run.states).in_order() {
        writer.frame(at, TAG_INPUT, &body)?;
    }
    if run.is_cut || left_out.is_some() {
        let before = Input::none_recorded(left_out.unwrap_or(since));
        before.iter().try_for_each(|lost| writer.input(now, lost))?;
    }
    Ok(())
}

/// What holds until the next input of its name, the last of each, with its time. The journal introduces the cgroup of a sender, and a
/// container or unit with its processes, once: before the first evidence about them.
#[derive(Default)]
struct States {
    of: BTreeMap<String, (Boot, Vec<u8>)>,
    bytes: usize,
}

impl States {
    /// False if the frame is evidence, or introduces who is in the evidence: then the part lacks what came before.
    fn take(&mut self, now: Boot, tag: u8, body: &[u8]) -> bool {
        if tag == TAG_KERNEL {
            match decode(body).map(|(_, event)| event) {
                Ok(Event::CgroupRmdir(removed)) => self.remove(&of_cgroup(removed.cgroup)),
                Ok(Event::ProcessExit(exit)) => self.remove(&of_process(exit.task.tgid)),
                _ => {}
            }
            return false;
        }
        if tag != TAG_INPUT {
            return false;
        }
        let (name, is_whole) = match serde_json::from_slice(body) {
            Ok(StoredInput::Probe { name, .. }) => (format!("probe {name}"), true),
            Ok(StoredInput::Clock { .. }) => ("clock".to_owned(), true),
            Ok(StoredInput::Pods { .. }) => ("pods".to_owned(), true),
            Ok(StoredInput::ApiClock(_)) => ("API clock".to_owned(), true),
            Ok(StoredInput::Cgroup(fact)) => (of_cgroup(fact.cgroup), false),
            Ok(StoredInput::Process(fact)) => (of_process(fact.tgid), false),
            _ => return false,
        };
        self.remove(&name);
        let bytes = name.len() + body.len();
        let fits = self.bytes + bytes <= STATES;
        if fits {
            self.bytes += bytes;
            self.of.insert(name, (now, body.to_vec()));
        }
        fits && is_whole
    }

    fn remove(&mut self, name: &str) {
        if let Some((_, body)) = self.of.remove(name) {
            self.bytes -= name.len() + body.len();
        }
    }

    fn in_order(self) -> Vec<(Boot, Vec<u8>)> {
        let mut all: Vec<_> = self.of.into_values().collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }
}

fn of_cgroup(cgroup: CgroupId) -> String {
    format!("cgroup {} {}", cgroup.hierarchy, cgroup.id)
}

fn of_process(pid: Pid) -> String {
    format!("process {pid}")
}

/// A wall clock that was set.
pub(super) fn clock_set(body: &[u8]) -> Option<WallOffset> {
    // Most inputs are not: they are not parsed.
    let is_clock = body.starts_with(br#"{"input":"clock""#);
    match is_clock.then(|| serde_json::from_slice(body).ok()).flatten()? {
        StoredInput::Clock { offset } => Some(offset),
        _ => None,
    }
}

/// The journal does not keep the connects of clients.
fn clients_lost<W: Write>(writer: &mut Writer<W>, now: Boot) -> Result<(), WriteError> {
    writer.input(now, &Input::lost_by_machine(Kind::Tcp, Boot(0), 1))
}
