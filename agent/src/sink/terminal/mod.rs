//! Terminations to a person or a pipe: a live view, a text stream, or JSON lines.
//!
//! The sink writes one complete block per call, so that two blocks never mix. It uses no clock and no terminal: sizes are
//! arguments, and only [`screen`] touches the tty.

mod background;
pub mod screen;

use std::collections::BTreeMap;
use std::io::{self, Write};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{Clear, ClearType};
use epitaph_core::event::Kind;
use epitaph_core::input::{Observation, ProbeState};
use epitaph_core::render::text::Style;
use epitaph_core::render::{json, text};
use epitaph_core::report::Report;

pub use background::Background;

use crate::cli::Filter;

/// How terminations are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Text(Style),
    /// Text that scrolls above a status line; the terminal keeps all of it.
    Live {
        style: Style,
        columns: u16,
    },
}

/// Whether the caller continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    Continue,
    /// The reader of the output is gone (`| head`): the command ends without an error.
    ReaderGone,
}

pub struct Sink<W> {
    out: W,
    form: Form,
    filter: Filter,
    status: Status,
}

/// Numbers in the status line.
#[derive(Debug, Default)]
struct Status {
    verdicts: BTreeMap<&'static str, u64>,
    hidden: u64,
    lost: u64,
    dropped: u64,
    probes_active: usize,
    probes: usize,
    /// Columns of the status line on the screen; 0 without a status line.
    drawn: usize,
}

impl<W: Write> Sink<W> {
    pub fn new(out: W, form: Form, filter: Filter) -> Sink<W> {
        Sink {
            out,
            form,
            filter,
            status: Status::default(),
        }
    }

    pub fn out(&self) -> &W {
        &self.out
    }

    /// The first output, once every probe is attached (or the recording's start was read).
    pub fn observing(&mut self, observation: &Observation, probes: &[(String, ProbeState)]) -> io::Result<Flow> {
        self.status.probes = probes.len();
        self.status.probes_active = probes.iter().filter(|(_, state)| *state == ProbeState::Active).count();
        let block = match self.form {
            Form::Json => json::line(&json::observing(observation, probes)),
            Form::Text(style) | Form::Live { style, .. } => text::observing(observation, probes, style),
        };
        self.show(&block)
    }

    /// `path`: the cgroup's path of a subject that is still running, if known. A termination has its own.
    pub fn report(&mut self, report: &Report, observation: &Observation, path: Option<&str>) -> io::Result<Flow> {
        let block = match report {
            Report::Terminated(t) => {
                if !self.filter.matches(t) {
                    self.status.hidden += 1;
                    return self.refresh();
                }
                *self.status.verdicts.entry(t.verdict.headline).or_default() += 1;
                match self.form {
                    Form::Json => json::line(&json::termination(t, observation)),
                    Form::Text(style) | Form::Live { style, .. } => text::termination(t, observation, style),
                }
            }
            Report::PodTerminated(p) => {
                if !self.filter.matches_pod(p) {
                    self.status.hidden += 1;
                    return self.refresh();
                }
                *self.status.verdicts.entry(p.verdict.headline).or_default() += 1;
                match self.form {
                    Form::Json => json::line(&json::pod_termination(p, observation)),
                    Form::Text(style) | Form::Live { style, .. } => text::pod_termination(p, observation, style),
                }
            }
            Report::StopSignalIgnored(e) if self.filter.matches_early(e, path) => match self.form {
                Form::Json => json::line(&json::early(e, observation)),
                Form::Text(style) | Form::Live { style, .. } => text::early(e, observation, style),
            },
            // Not a termination: a filter by verdict hides this report.
            Report::ChildOomKilled { subject, container, oom }
                if self.filter.verdict.is_empty() && self.filter.matches_subject(subject, path) =>
            {
                match self.form {
                    Form::Json => json::line(&json::child_oom(subject, container.as_deref(), oom, observation)),
                    Form::Text(style) | Form::Live { style, .. } => {
                        text::child_oom(subject, container.as_deref(), oom, observation, style)
                    }
                }
            }
            Report::NodeShutdown(s) if self.filter.matches_shutdown(&s.verdict) => match self.form {
                Form::Json => json::line(&json::node_shutdown(s)),
                Form::Text(style) | Form::Live { style, .. } => text::node_shutdown(s, style),
            },
            Report::NodeDown(d) if self.filter.matches_node("down", false) => match self.form {
                Form::Json => json::line(&json::node_down(d)),
                Form::Text(style) | Form::Live { style, .. } => text::node_down(d, style),
            },
            Report::Dropped { count, .. } => {
                self.status.dropped += count;
                return self.refresh();
            }
            Report::Workload(_)
            | Report::WorkloadGone(_)
            | Report::OptedOut { .. }
            | Report::Stuck(_)
            | Report::PodHeld(_)
            | Report::NodeShutdown(_)
            | Report::NodeDown(_)
            | Report::StopSignalIgnored(_)
            | Report::ChildOomKilled { .. } => {
                return Ok(Flow::Continue);
            }
        };
        self.show(&block)
    }

    pub fn is_live(&self) -> bool {
        matches!(self.form, Form::Live { .. })
    }

    /// A message that is not a termination: in a live view, a line of the log would be mistaken for output.
    pub fn note(&mut self, text: &str) -> io::Result<Flow> {
        self.show(&format!("{text}\n"))
    }

    /// Records that the probes could not pass on.
    pub fn lost(&mut self, kind: Kind, count: u64) -> io::Result<Flow> {
        self.status.lost += count;
        match self.form {
            Form::Json => self.show(&json::line(&json::lost(kind, count))),
            Form::Text(_) | Form::Live { .. } => self.refresh(),
        }
    }

    /// The terminal's width changed.
    pub fn resize(&mut self, to: u16) -> io::Result<Flow> {
        if let Form::Live { columns, .. } = &mut self.form {
            *columns = to;
        }
        self.refresh()
    }

    /// Replaces the status line with a summary.
    pub fn finish(&mut self) -> io::Result<Flow> {
        if let Form::Live { columns, .. } = self.form {
            let mut bytes = Vec::new();
            self.status.erase(&mut bytes, columns)?;
            bytes.extend_from_slice(self.status.summary().as_bytes());
            bytes.push(b'\n');
            return self.write(&bytes);
        }
        Ok(Flow::Continue)
    }

    fn refresh(&mut self) -> io::Result<Flow> {
        match self.form {
            Form::Live { .. } => self.show(""),
            Form::Json | Form::Text(_) => Ok(Flow::Continue),
        }
    }

    fn show(&mut self, block: &str) -> io::Result<Flow> {
        let mut bytes = Vec::with_capacity(block.len() + 256);
        if let Form::Live { columns, .. } = self.form {
            self.status.erase(&mut bytes, columns)?;
            bytes.extend_from_slice(block.as_bytes());
            self.status.draw(&mut bytes, columns);
        } else {
            bytes.extend_from_slice(block.as_bytes());
        }
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Flow> {
        flow(self.out.write_all(bytes).and_then(|()| self.out.flush()))
    }
}

impl Sink<Background> {
    /// Ends the output, and waits until it is written.
    pub fn end(&mut self) -> io::Result<Flow> {
        match self.finish()? {
            Flow::Continue => flow(self.out.finish()),
            gone => Ok(gone),
        }
    }

    /// Whether the output so far could be written, without waiting for the next output.
    pub fn written(&self) -> io::Result<Flow> {
        flow(self.out.failure().map_or(Ok(()), Err))
    }
}

fn flow(written: io::Result<()>) -> io::Result<Flow> {
    match written {
        Ok(()) => Ok(Flow::Continue),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Flow::ReaderGone),
        Err(e) => Err(e),
    }
}

impl Status {
    /// A narrower terminal has wrapped the line: the line takes several rows, with the cursor on the last.
    fn erase(&mut self, out: &mut Vec<u8>, columns: u16) -> io::Result<()> {
        if self.drawn == 0 {
            return Ok(());
        }
        let rows = self.drawn.div_ceil(usize::from(columns.max(1)));
        if rows > 1 {
            queue!(out, MoveUp(u16::try_from(rows - 1).unwrap_or(u16::MAX)))?;
        }
        self.drawn = 0;
        queue!(out, MoveToColumn(0), Clear(ClearType::FromCursorDown))
    }

    /// The line never reaches the last column: terminals differ on when they wrap.
    fn draw(&mut self, out: &mut Vec<u8>, columns: u16) {
        let mut line = format!("q quits | {}", self.summary());
        line.truncate(usize::from(columns).saturating_sub(1));
        self.drawn = line.len();
        out.extend_from_slice(line.as_bytes());
    }

    /// ASCII, so that bytes are columns.
    fn summary(&self) -> String {
        let total: u64 = self.verdicts.values().sum();
        let mut verdicts: Vec<_> = self.verdicts.iter().collect();
        verdicts.sort_by_key(|&(name, count)| (std::cmp::Reverse(*count), *name));
        let verdicts: Vec<String> = verdicts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let mut line = format!("{} of {} probes", self.probes_active, self.probes);
        for (count, what) in [
            (self.hidden, "not shown"),
            (self.lost, "records LOST"),
            (self.dropped, "evidence items LOST"),
        ] {
            if count > 0 {
                line += &format!(" | {count} {what}");
            }
        }
        // A narrow terminal cuts off the end: the least important part comes last.
        line += &format!(" | {total} termination{}", if total == 1 { "" } else { "s" });
        if !verdicts.is_empty() {
            line += &format!(": {}", verdicts.join(", "));
        }
        line
    }
}

#[cfg(test)]
mod tests;
