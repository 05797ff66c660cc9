//! `epitaph why`, `list` and `export`: what the agent has kept, read back as a stream.
//!
//! Without the asynchronous runtime: in Kubernetes the commands share the agent's memory limit.

mod holes;
mod judged;
mod source;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::Path;

use epitaph_core::render::text::Style;
use epitaph_core::time::Wall;

use crate::cli::{self, ListFormat, SysExit, When, WhyFormat};
use crate::clock;
use crate::config::{Env, settings};
use crate::journal::export::{self, Exported, Part};
use crate::recording::WriteError;
use crate::sink::terminal::screen::Screen;
use epitaph_story::color::Color;
use epitaph_story::history::{Counts, Line, Report, Search, Wanted, parse};
use epitaph_story::story::{self, Brief, Columns, Hidden, List, Story};

use super::RuntimeError;
use super::new_recording::NewRecording;
use source::Source;
pub(super) use source::installed;

/// Columns of `epitaph why` where there is no terminal, and most of them.
const PAGE: usize = 80;
const WIDEST: usize = 100;

/// `epitaph why WHAT`.
pub fn why(args: &cli::WhyArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let period = Period::of(args.past.since, args.past.until)?;
    let mut source = Source::open(&args.past, env)?;
    let mut search = Search::new(Wanted::new(&args.what));
    let mut counts = Counts::default();
    source.each(|report, line| {
        if period.has(report) && args.filter.matches_past(report) {
            search.look(report, line, &counts, Brief::of);
        }
        counts.add(report);
        Ok(Flow::Continue)
    })?;
    source.warn();
    let found = search.finish();
    // What is missing before the termination that is shown does not matter.
    let shown = found.as_ref().and_then(|(found, ..)| found.end);
    source.warn_of_holes(period.since.max(shown), period.until, period.now);
    let Some((found, others, more)) = found else {
        return Err(not_found(&source, &args.what, &counts));
    };
    let Some(Line::Report(report)) = parse(found.line.as_bytes()) else {
        return Err(source.nothing_readable());
    };
    let report = *report;
    let story = Story {
        ahead: report.end.map_or(0, |end| clock::ahead_of_utc(end.0)),
        program: story::NODE_PROGRAM,
        report,
        found,
        others,
        more,
    };
    let text = match args.output {
        WhyFormat::Text => {
            let columns = terminal().map_or(PAGE, |columns| columns.min(WIDEST));
            story::text(&story, Columns(columns), style(args.color, env), args.verbose)
        }
        WhyFormat::Json => story::why_object(&story),
        WhyFormat::Markdown => story::markdown(&story),
        WhyFormat::Svg => story::picture(&story),
    };
    cli::print(&text).map_err(no_output)
}

/// `epitaph list`.
pub fn list(args: &cli::ListArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let period = Period::of(args.past.since, args.past.until)?;
    let mut source = Source::open(&args.past, env)?;
    let (width, style) = (terminal(), style(args.color, env));
    let mut out = BufWriter::new(io::stdout().lock());
    let list = List::new(width, style).with_header().with_local_time(clock::ahead_of_utc);
    let mut list = list.wide(args.output == ListFormat::Wide);
    let mut shown = Counts::folded();
    let mut all = Counts::default();
    let mut hidden = Hidden::default();
    source.each(|report, line| {
        all.saw(report);
        if !period.has(report) || !args.filter.matches_past(report) {
            if period.has(report) && args.filter.hides_as_not_unclean(report) {
                hidden.add(&report.verdict);
            }
            return Ok(Flow::Continue);
        }
        shown.add(report);
        let written = match (args.summary, args.output) {
            (true, _) => return Ok(Flow::Continue),
            (false, ListFormat::Text | ListFormat::Wide) => out.write_all(list.line(&Brief::of(report)).as_bytes()),
            (false, ListFormat::Json) => writeln!(out, "{}", story::safe(line)),
        };
        flow(written)
    })?;
    let written = match (args.summary, args.output) {
        (true, ListFormat::Text | ListFormat::Wide) => out.write_all(story::summary(&shown, width, style).as_bytes()),
        (true, ListFormat::Json) => story::summary_object(&shown, &mut out),
        (false, _) => Ok(()),
    };
    flow(written.and_then(|()| out.flush()))?;
    drop(out);
    source.warn();
    source.warn_of_holes(period.since, period.until, period.now);
    if shown.total == 0 && source.parsed_nothing() {
        return Err(source.nothing_readable());
    }
    if shown.total == 0 {
        // Not an error: a list may be empty.
        let such = if all.total > 0 { "such " } else { "" };
        eprintln!("no {such}termination{}", source.reach(&all));
    }
    if let Some(hidden) = hidden.text("--verdict ") {
        eprintln!("{hidden}");
    }
    Ok(())
}

/// `epitaph export`.
pub fn export(args: &cli::ExportArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let Period { since, until, .. } = Period::of(args.since, args.until)?;
    let part = Part { since, until };
    let directory = source::directory(args.journal.as_deref(), args.config.as_deref(), env)?;
    let (mut reader, name) = source::open_journal(&directory)?;
    let exported = if args.file == Path::new("-") {
        if io::stdout().is_terminal() {
            return Err(
                RuntimeError::new(SysExit::Usage, "a recording is binary, and standard output is a terminal")
                    .with_remedy("give a file, or redirect standard output"),
            );
        }
        match copied(export::export(&mut reader, part, BufWriter::new(io::stdout().lock())))? {
            Some(exported) => exported,
            None => return Ok(()),
        }
    } else {
        let file = NewRecording::create(&args.file)?;
        let exported = export::export(&mut reader, part, BufWriter::new(file.as_file()))?;
        if exported.inputs > 0 {
            file.keep().sync_all().map_err(RuntimeError::os("write the recording"))?;
        }
        exported
    };
    source::warn_of(&name, &source::not_read(reader.skipped(), 0));
    let Some((first, last)) = exported.between else {
        if reader.skipped().denied > 0 {
            return Err(source::not_allowed(&name));
        }
        let (of, remedy) = match (since, until) {
            (None, None) => ("", "the journal keeps the evidence of terminations only, and has none yet"),
            _ => (
                " of that time",
                "`epitaph list` shows the times of the terminations; the journal keeps the evidence of terminations only",
            ),
        };
        return Err(RuntimeError::new(SysExit::NoInput, format!("no evidence{of} in {name}")).with_remedy(remedy));
    };
    eprintln!(
        "{} of evidence from {} of the agent, between {} and {} UTC. `epitaph replay` judges the evidence again. Names and addresses of \
         all tenants of this machine are in the recording.",
        story::many(exported.inputs, "piece"),
        story::many(exported.runs, "run"),
        story::moment(first),
        story::moment(last),
    );
    Ok(())
}

/// None: the reader of the output is gone (`| head`): an end like any other.
fn copied(exported: Result<Exported, WriteError>) -> Result<Option<Exported>, RuntimeError> {
    match exported {
        Err(WriteError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
        Err(WriteError::Write(error)) => Err(RuntimeError::os("write to standard output")(error)),
        exported => Ok(Some(exported?)),
    }
}

#[derive(PartialEq, Eq)]
enum Flow {
    Continue,
    /// The reader of the output is gone (`| head`).
    Stop,
}

fn flow(written: io::Result<()>) -> Result<Flow, RuntimeError> {
    match written {
        Ok(()) => Ok(Flow::Continue),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Flow::Stop),
        Err(error) => Err(no_output(error)),
    }
}

fn no_output(error: io::Error) -> RuntimeError {
    RuntimeError::os("write to standard output")(error)
}

/// Columns; None where standard output is not a terminal.
pub fn terminal() -> Option<usize> {
    io::stdout().is_terminal().then(|| usize::from(Screen::columns()))
}

fn style(color: Color, env: &dyn Env) -> Style {
    color.style(io::stdout().is_terminal(), |name| env.get(name))
}

/// Terminations that ended within it.
struct Period {
    since: Option<Wall>,
    until: Option<Wall>,
    now: Wall,
}

impl Period {
    fn of(since: Option<When>, until: Option<When>) -> Result<Period, RuntimeError> {
        let now = clock::wall_offset().wall(clock::now());
        let (since, until) = (since.map(|when| when.before(now)), until.map(|when| when.until(now)));
        if let Some((since, until)) = since.zip(until)
            && since > until
        {
            let (since, until) = (story::moment(since), story::moment(until));
            let problem = format!("--since ({since} UTC) is after --until ({until} UTC)");
            let remedy = "a duration is before now: `--since 2h --until 1h`";
            return Err(RuntimeError::new(SysExit::Usage, problem).with_remedy(remedy));
        }
        Ok(Period { since, until, now })
    }

    /// A report without a time is in every period.
    fn has(&self, report: &Report) -> bool {
        let Some(end) = report.end.map(|at| at.0) else { return true };
        self.since.is_none_or(|since| end >= since) && self.until.is_none_or(|until| end <= until)
    }
}

fn not_found(source: &Source, what: &str, counts: &Counts) -> RuntimeError {
    if source.parsed_nothing() {
        return source.nothing_readable();
    }
    let problem = format!("no termination of `{}`{}", what.escape_debug(), source.reach(counts));
    let names = counts.names();
    let nearest = settings::nearest_of(what, names.iter().map(String::as_str));
    let did_you_mean = nearest.map_or(String::new(), |nearest| format!("did you mean `{nearest}`? "));
    let too_short = match Wanted::new(what).is_short_id() {
        true => "the beginning of an id needs 4 digits or more; ",
        false => "",
    };
    let known = match source.is_journal() {
        true => {
            "`epitaph list` shows what is known; each agent knows only the terminations of its own machine: of a pod, run this on the pod's \
             node"
        }
        false => "`epitaph list` with the same `--from` shows what is known",
    };
    RuntimeError::new(SysExit::NoInput, problem).with_remedy(format!("{did_you_mean}{too_short}{known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_an_end_and_a_full_disk_an_error() {
        let written = |kind: io::ErrorKind| copied(Err(WriteError::Write(kind.into())));
        assert!(matches!(written(io::ErrorKind::BrokenPipe), Ok(None)));
        assert!(written(io::ErrorKind::StorageFull).is_err());
        assert_eq!(copied(Ok(Exported::default())).unwrap(), Some(Exported::default()));
    }
}
