//! `epitaph why` and `epitaph list`: finished terminations, read back as a stream.
//!
//! Without the asynchronous runtime: in Kubernetes the commands share the agent's memory limit.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Write};
use std::path::Path;

use epitaph_core::render::text::Style;
use epitaph_core::time::Wall;

use crate::cli::{self, ListFormat, PastArgs, SysExit, WhyFormat};
use crate::clock;
use crate::config::{Env, settings};
use crate::history::{Counts, Line, Lines, MAX_LINE, Report, Search, Wanted};
use crate::sink::terminal::screen::Screen;
use crate::story::{self, Brief, Columns, List, Story};

use super::{RuntimeError, privileges};

/// Columns of `epitaph why` where there is no terminal, and most of them.
const PAGE: usize = 80;
const WIDEST: usize = 100;

/// `epitaph why WHAT`.
pub fn why(args: &cli::WhyArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let mut source = Source::open(&args.past)?;
    let period = Period::of(&args.past);
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
    let Some((found, others, more)) = search.finish() else {
        return Err(source.not_found(&args.what, &counts));
    };
    let report = serde_json::from_str(&found.line).expect("the line was parsed");
    let story = Story {
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
    };
    cli::print(&text).map_err(no_output)
}

/// `epitaph list`.
pub fn list(args: &cli::ListArgs, env: &dyn Env) -> Result<(), RuntimeError> {
    let mut source = Source::open(&args.past)?;
    let period = Period::of(&args.past);
    let (width, style) = (terminal(), style(args.color, env));
    let mut out = BufWriter::new(io::stdout().lock());
    let mut list = List::new(width, style);
    let mut shown = Counts::default();
    let mut all = Counts::default();
    source.each(|report, line| {
        all.saw(report);
        if !period.has(report) || !args.filter.matches_past(report) {
            return Ok(Flow::Continue);
        }
        shown.add(report);
        let written = match (args.summary, args.output) {
            (true, _) => return Ok(Flow::Continue),
            (false, ListFormat::Text) => out.write_all(list.line(&Brief::of(report)).as_bytes()),
            (false, ListFormat::Json) => writeln!(out, "{}", story::safe(line)),
        };
        flow(written)
    })?;
    let written = match (args.summary, args.output) {
        (true, ListFormat::Text) => out.write_all(story::summary(&shown, width, style).as_bytes()),
        (true, ListFormat::Json) => out.write_all(story::summary_object(&shown).as_bytes()),
        (false, _) => Ok(()),
    };
    flow(written.and_then(|()| out.flush()))?;
    drop(out);
    source.warn();
    if shown.total == 0 && source.parsed_nothing() {
        return Err(source.nothing_readable());
    }
    if shown.total == 0 {
        // Not an error: a list may be empty.
        eprintln!("no termination found{}", reach(&source, &all));
    }
    Ok(())
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
fn terminal() -> Option<usize> {
    io::stdout().is_terminal().then(|| usize::from(Screen::columns()))
}

fn style(color: cli::Color, env: &dyn Env) -> Style {
    color.style(io::stdout().is_terminal(), env)
}

/// Terminations that ended within it.
struct Period {
    since: Option<Wall>,
    until: Option<Wall>,
}

impl Period {
    fn of(args: &PastArgs) -> Period {
        let now = clock::wall_offset().wall(clock::now());
        Period {
            since: args.since.map(|when| when.before(now)),
            until: args.until.map(|when| when.before(now)),
        }
    }

    /// A report without a time is in every period.
    fn has(&self, report: &Report) -> bool {
        let Some(end) = report.end.map(|at| at.0) else { return true };
        self.since.is_none_or(|since| end >= since) && self.until.is_none_or(|until| end <= until)
    }
}

/// Where the reports come from.
struct Source {
    name: String,
    lines: Lines<Box<dyn BufRead>>,
    /// The earliest begin of an observation.
    since: Option<Wall>,
    objects: u64,
}

impl Source {
    fn open(args: &PastArgs) -> Result<Source, RuntimeError> {
        let Some(from) = &args.from else {
            return Err(RuntimeError::new(SysExit::Usage, "no journal")
                .with_remedy("give --from FILE with what `epitaph watch --output json` prints"));
        };
        let (name, input): (String, Box<dyn BufRead>) = if from == Path::new("-") {
            ("standard input".to_owned(), Box::new(BufReader::new(io::stdin())))
        } else {
            (from.display().to_string(), Box::new(BufReader::new(open(from)?)))
        };
        // A file is untrusted input: it is read without capabilities.
        if let Err(error) = privileges::drop_all_but(&mut []) {
            eprintln!("warning: {error}; running with more privileges than needed");
        }
        Source::of(name, input)
    }

    fn of(name: String, mut input: Box<dyn BufRead>) -> Result<Source, RuntimeError> {
        let begin = input.fill_buf().map_err(|error| unreadable(&name, &error))?;
        if begin.starts_with(b"EPITAPH\n") {
            let problem = format!("{name} is a recording: evidence that is not judged yet");
            return Err(RuntimeError::new(SysExit::Data, problem).with_remedy(
                "judge it first: `epitaph replay FILE --output json | epitaph why --from - NAME`, or `list --from -`",
            ));
        }
        Ok(Source {
            name,
            lines: Lines::new(input),
            since: None,
            objects: 0,
        })
    }

    /// Hands over each report with its line.
    fn each(&mut self, mut to: impl FnMut(&Report, &str) -> Result<Flow, RuntimeError>) -> Result<(), RuntimeError> {
        loop {
            let next = match self.lines.next() {
                Ok(next) => next,
                Err(error) => return Err(unreadable(&self.name, &error)),
            };
            let Some((object, line)) = next else { return Ok(()) };
            self.objects += 1;
            match object {
                Line::Report(report) => {
                    if to(&report, line)? == Flow::Stop {
                        return Ok(());
                    }
                }
                Line::Other(since) => {
                    let earliest = self.since.into_iter().chain(since.map(|at| at.0)).min();
                    self.since = earliest;
                }
            }
        }
    }

    /// What was not read.
    fn warn(&self) {
        let skipped = self.lines.skipped();
        if skipped.damaged > 0 {
            eprintln!(
                "warning: {}: {} lines are damaged and were skipped",
                self.name, skipped.damaged
            );
        }
        if skipped.too_long > 0 {
            eprintln!(
                "warning: {}: {} lines are longer than {MAX_LINE} bytes and were skipped",
                self.name, skipped.too_long
            );
        }
    }

    fn parsed_nothing(&self) -> bool {
        let skipped = self.lines.skipped();
        self.objects == 0 && skipped.damaged + skipped.too_long > 0
    }

    fn nothing_readable(&self) -> RuntimeError {
        RuntimeError::new(SysExit::Data, format!("{} has no object of docs/json.md", self.name))
            .with_remedy("give what `epitaph watch --output json` or `epitaph list --output json` prints")
    }

    fn not_found(&self, what: &str, counts: &Counts) -> RuntimeError {
        if self.parsed_nothing() {
            return self.nothing_readable();
        }
        let problem = format!("no termination of `{}` found{}", what.escape_debug(), reach(self, counts));
        let names = counts.names();
        let nearest = settings::nearest_of(what, names.iter().map(String::as_str));
        let did_you_mean = nearest.map_or(String::new(), |nearest| format!("did you mean `{nearest}`? "));
        RuntimeError::new(SysExit::NoInput, problem).with_remedy(format!(
            "{did_you_mean}`epitaph list` shows what is known; only the agent of its own node knows a pod"
        ))
    }
}

/// How far back the source reaches.
fn reach(source: &Source, counts: &Counts) -> String {
    let since = source.since.into_iter().chain(counts.first).min();
    match since {
        Some(since) => format!(
            " in {}, which has {} terminations since {} UTC",
            source.name,
            counts.total,
            since.rfc3339_millis().replace('T', " ").trim_end_matches('Z')
        ),
        None => format!(" in {}, which has none", source.name),
    }
}

fn open(path: &Path) -> Result<File, RuntimeError> {
    File::open(path).map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => SysExit::NoPerm,
            _ => SysExit::NoInput,
        };
        RuntimeError::new(code, format!("cannot open {}: {error}", path.display()))
            .with_remedy("give a file with what `epitaph watch --output json` prints, or - for standard input")
    })
}

fn unreadable(name: &str, error: &io::Error) -> RuntimeError {
    RuntimeError::new(SysExit::NoInput, format!("cannot read {name}: {error}"))
}
