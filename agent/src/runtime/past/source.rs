//! Where finished terminations are read: the journal of this node's agent, JSON lines, or a recording.

use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use epitaph_core::text::escape;
use epitaph_core::time::Wall;

use crate::cli::{PastArgs, SysExit};
use crate::config::{Config, Env, Overrides};
use crate::journal::reader::{self, OpenError, READERS, Reader, Skipped};
use epitaph_story::history::{Counts, Line, Lines, MAX_LINE, Report, parse};

use super::super::input::{self, Expected, Given};
use super::super::{RuntimeError, core, counted, privileges};
use super::Flow;
use super::holes;
use super::judged::Judged;

/// Configurations of the agent as it is installed: by the chart, by the Debian package. They name the journal.
const INSTALLED: [&str; 2] = ["/etc/epitaph/config/epitaph.toml", "/etc/epitaph/epitaph.toml"];

/// Where the installed configurations have the journal, for those who may not read the configuration.
const DEFAULT: &str = "/var/lib/epitaph/journal";

const EXPECTED: Expected = Expected {
    file: "a recording, or a file with what `epitaph watch --output json` prints",
    journal: |path| {
        format!(
            "`--journal {}`, without `--from`, reads the journal of an agent",
            path.display()
        )
    },
};

pub struct Source {
    name: String,
    input: Input,
    /// The earliest begin of an observation.
    since: Option<Wall>,
    objects: u64,
    /// Reports of the journal that are not objects of docs/json.md.
    damaged: u64,
}

enum Input {
    Lines(Lines<Box<dyn BufRead>>),
    Recording(Box<Judged>),
    Journal(Box<Reader>),
}

impl Source {
    pub fn open(args: &PastArgs, env: &dyn Env) -> Result<Source, RuntimeError> {
        let Some(from) = &args.from else {
            return Source::journal(&directory(args.journal.as_deref(), args.config.as_deref(), env)?);
        };
        let Given { name, bytes } = input::open(from, EXPECTED)?;
        // A file is untrusted input: it is read without capabilities.
        if let Err(error) = privileges::drop_all_but(&mut []) {
            eprintln!("warning: {error}; running with more privileges than needed");
        }
        Source::file(name, bytes, env)
    }

    fn journal(directory: &Path) -> Result<Source, RuntimeError> {
        let (reader, name) = open_journal(directory)?;
        Ok(Source::of(name, Input::Journal(Box::new(reader))))
    }

    /// A recording, known by its beginning, or else JSON lines.
    fn file(name: String, mut input: Box<dyn BufRead>, env: &dyn Env) -> Result<Source, RuntimeError> {
        let begin = input.fill_buf().map_err(|error| input::unreadable(&name, &error))?;
        if !begin.starts_with(b"EPITAPH\n") {
            return Ok(Source::of(name, Input::Lines(Lines::new(input))));
        }
        // The core as `epitaph replay` has it.
        let config = Config::for_person(env, &Overrides::default())?;
        let judged = Judged::new(input, &name, core(&config))?;
        let since = judged.since();
        let mut source = Source::of(name, Input::Recording(Box::new(judged)));
        source.since = Some(since);
        Ok(source)
    }

    fn of(name: String, input: Input) -> Source {
        Source {
            name,
            input,
            since: None,
            objects: 0,
            damaged: 0,
        }
    }

    /// Hands over each report with its line.
    pub fn each(&mut self, mut to: impl FnMut(&Report, &str) -> Result<Flow, RuntimeError>) -> Result<(), RuntimeError> {
        loop {
            let judged;
            let (object, line) = match &mut self.input {
                Input::Recording(recording) => {
                    let Some(next) = recording.next_object() else { return Ok(()) };
                    judged = next;
                    match parse(judged.as_bytes()) {
                        Some(object) => (object, judged.as_str()),
                        None => {
                            self.damaged += 1;
                            continue;
                        }
                    }
                }
                Input::Lines(lines) => match lines.next_line() {
                    Ok(Some(next)) => next,
                    Ok(None) => return Ok(()),
                    Err(error) => return Err(input::unreadable(&self.name, &error)),
                },
                Input::Journal(reader) => {
                    let Some(finished) = reader.next_report() else { return Ok(()) };
                    match parse(finished.json).zip(str::from_utf8(finished.json).ok()) {
                        Some(next) => next,
                        None => {
                            self.damaged += 1;
                            continue;
                        }
                    }
                }
            };
            self.objects += 1;
            match object {
                Line::Report(report) => {
                    if to(&report, line.trim_end())? == Flow::Stop {
                        return Ok(());
                    }
                }
                Line::Other(since) => self.since = self.since.into_iter().chain(since.map(|at| at.0)).min(),
            }
        }
    }

    /// What was not read, each kind with its number.
    fn not_read(&self) -> Vec<String> {
        match &self.input {
            Input::Lines(lines) => {
                let skipped = lines.skipped();
                let too_long = [
                    format!("line longer than {MAX_LINE} bytes"),
                    format!("lines longer than {MAX_LINE} bytes"),
                ];
                counted([
                    (skipped.damaged, "damaged line", "damaged lines"),
                    (skipped.too_long, &too_long[0], &too_long[1]),
                ])
            }
            Input::Recording(judged) => judged.recorded().missing(),
            Input::Journal(reader) => not_read(reader.skipped(), self.damaged),
        }
    }

    pub fn warn(&self) {
        let Input::Recording(judged) = &self.input else {
            return warn_of(&self.name, &self.not_read());
        };
        let recorded = judged.recorded();
        match recorded.not_whole(&self.name) {
            Some(error) => eprintln!("warning: {}", crate::error::line(&error)),
            None => recorded
                .notes(&self.name)
                .iter()
                .for_each(|note| eprintln!("warning: {note}")),
        }
    }

    /// Says of which times terminations are missing in the journal; as far as the journal was read, and it is `now`.
    pub fn warn_of_holes(&self, since: Option<Wall>, until: Option<Wall>, now: Wall) {
        if let Input::Journal(reader) = &self.input {
            for note in holes::notes(&reader.holes(now), since, until) {
                eprintln!("warning: {note}");
            }
        }
    }

    /// There is something, and nothing of it was understood.
    pub fn parsed_nothing(&self) -> bool {
        let nothing = match &self.input {
            Input::Recording(judged) => judged.inputs() == 0,
            Input::Lines(_) | Input::Journal(_) => self.objects == 0,
        };
        nothing && !self.not_read().is_empty()
    }

    pub fn nothing_readable(&self) -> RuntimeError {
        let error = RuntimeError::new(
            SysExit::Data,
            format!("{} has no report that this version can read", self.name),
        );
        match self.input {
            Input::Lines(_) => {
                error.with_remedy("give what `epitaph watch --output json` or `epitaph list --output json` prints")
            }
            Input::Recording(_) => error.with_remedy("replay it with the epitaph that recorded it, or a newer one"),
            Input::Journal(ref reader) if reader.skipped().denied > 0 => not_allowed(&self.name),
            Input::Journal(_) => error.with_remedy("use the epitaph that wrote the journal, or a newer one"),
        }
    }

    /// Whether the agent of a machine knows, rather than a file.
    pub fn is_journal(&self) -> bool {
        matches!(self.input, Input::Journal(_))
    }

    /// Where, and how far back: after "no termination".
    pub fn reach(&self, counts: &Counts) -> String {
        match self.since.into_iter().chain(counts.first).min() {
            Some(since) => format!(
                " in {}, which has {} termination{} since {} UTC",
                self.name,
                counts.total,
                if counts.total == 1 { "" } else { "s" },
                epitaph_story::story::moment(since)
            ),
            None => match &self.input {
                // An agent begins a segment at its start.
                Input::Journal(reader) if reader.has_segments() => format!(" in {}, which has none so far", self.name),
                Input::Journal(_) => format!(" in {}: no agent has written there; the agent's /readyz shows why", self.name),
                _ => format!(" in {}, which has none", self.name),
            },
        }
    }
}

/// Segments are there, of which this user may read none.
pub fn not_allowed(journal: &str) -> RuntimeError {
    RuntimeError::new(SysExit::NoPerm, format!("this user may not read {journal}")).with_remedy(READERS)
}

/// The journal, and its name for people.
pub fn open_journal(directory: &Path) -> Result<(Reader, String), RuntimeError> {
    // systemd's state directory is a link, for a service with a user of systemd's making. The writer's own refusal of links
    // protects what is written; a reader follows them.
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let reader = Reader::open(&directory).map_err(|error| {
        let OpenError::Open { error: cause, .. } = &error;
        let code = match cause.kind() {
            io::ErrorKind::PermissionDenied => SysExit::NoPerm,
            _ => SysExit::NoInput,
        };
        RuntimeError::of(code, &error)
    })?;
    if !may_be_journal(&directory) {
        let problem = format!(
            "{} is not a journal: none of its files is one of a journal",
            directory.display()
        );
        let inner = directory.join("journal");
        let remedy = match inner.is_dir() {
            true => format!("give {}", inner.display()),
            false => "give the directory that `journal.directory` of the agent names".to_owned(),
        };
        return Err(RuntimeError::new(SysExit::NoInput, problem).with_remedy(remedy));
    }
    Ok((reader, format!("the journal {}", directory.display())))
}

/// An empty directory may be one whose agent has not begun; one with other files only is not.
fn may_be_journal(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return true;
    };
    let mut any = false;
    for entry in entries.flatten() {
        any = true;
        if entry.file_name().to_str().is_some_and(is_of_journal) {
            return true;
        }
    }
    !any
}

/// The lock, a segment, or one of a newer version.
fn is_of_journal(name: &str) -> bool {
    name == "lock" || reader::is_file(name)
}

/// What was not read of a journal, each kind with its number. `damaged`: reports that are no objects of docs/json.md.
pub fn not_read(skipped: &Skipped, damaged: u64) -> Vec<String> {
    let why = skipped
        .error
        .as_deref()
        .map(|error| format!(" ({})", escape(error)))
        .unwrap_or_default();
    let unreadable = ["segment", "segments"].map(|what| format!("{what} that cannot be read{why}"));
    let named = match &skipped.newer[..] {
        [] => String::new(),
        [one] => escape(one),
        [first, .., last] => format!("{} to {}", escape(first), escape(last)),
    };
    let newer = ["segment", "segments"].map(|what| format!("{what} of a newer epitaph ({named})"));
    counted([
        (skipped.damaged, "damaged place", "damaged places"),
        (skipped.missing, "missing record", "missing records"),
        (
            skipped.torn,
            "segment that ends in an incomplete write",
            "segments that end in an incomplete write",
        ),
        (skipped.unreadable, &unreadable[0], &unreadable[1]),
        (
            skipped.denied,
            "segment that this user may not read",
            "segments that this user may not read",
        ),
        (
            skipped.removed,
            "segment that the agent removed meanwhile",
            "segments that the agent removed meanwhile",
        ),
        (skipped.newer.len() as u64, &newer[0], &newer[1]),
        (
            skipped.unknown + damaged,
            "report that this version does not understand",
            "reports that this version does not understand",
        ),
    ])
}

pub fn warn_of(name: &str, not_read: &[String]) {
    if !not_read.is_empty() {
        eprintln!("warning: skipped in {name}: {}", not_read.join(", "));
    }
}

/// The journal's: as given, else as the agent is configured.
pub fn directory(given: Option<&Path>, config: Option<&Path>, env: &dyn Env) -> Result<PathBuf, RuntimeError> {
    if let Some(directory) = given {
        return Ok(directory.to_owned());
    }
    let config = installed(config, env)?;
    Ok(config.journal.directory.unwrap_or_else(|| DEFAULT.into()))
}

/// The agent's configuration as it is installed here, or as given.
pub(in crate::runtime) fn installed(file: Option<&Path>, env: &dyn Env) -> Result<Config, RuntimeError> {
    let installed = || INSTALLED.map(PathBuf::from).into_iter().find(|file| File::open(file).is_ok());
    let file = file.map(Path::to_owned).or_else(installed);
    Ok(Config::load(file.as_deref(), env, &Overrides::default())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Vars(Option<&'static str>);

    impl Env for Vars {
        fn get(&self, name: &str) -> Option<String> {
            self.0.filter(|_| name == "EPITAPH_JOURNAL_DIRECTORY").map(str::to_owned)
        }
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }

    /// Without capabilities, root reads nobody else's files.
    #[test]
    fn what_this_user_may_not_read_is_named_with_the_remedy() {
        if !nix::unistd::geteuid().is_root() {
            println!("not root: skipped");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let segment = directory.path().join("0000000000000001.journal");
        std::fs::write(&segment, "x").unwrap();
        std::os::unix::fs::chown(&segment, Some(65_534), None).unwrap();
        std::fs::set_permissions(&segment, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        privileges::without(|| {
            let mut source = Source::journal(directory.path()).unwrap();
            source.each(|_, _| panic!("read")).unwrap();
            assert_eq!(source.not_read(), ["1 segment that this user may not read"]);
            assert!(source.parsed_nothing());
            let error = source.nothing_readable();
            assert_eq!(error.code, SysExit::NoPerm);
            let text = crate::error::lines(&error);
            assert!(
                text.contains("may not read the journal") && text.contains("a member of the group"),
                "{text}"
            );
        });
        // A damaged one is another matter.
        let mut source = Source::journal(directory.path()).unwrap();
        source.each(|_, _| panic!("read")).unwrap();
        let not_read = source.not_read().concat();
        assert!(not_read.starts_with("1 segment that cannot be read ("), "{not_read}");
    }

    #[test]
    fn segments_of_a_newer_epitaph_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let not_read = || {
            let mut source = Source::journal(directory.path()).unwrap();
            source.each(|_, _| panic!("read")).unwrap();
            source.not_read().concat()
        };
        let write = |number: u64| std::fs::write(directory.path().join(format!("{number:016x}.journal.newer")), "x").unwrap();
        write(1);
        assert_eq!(not_read(), "1 segment of a newer epitaph (0000000000000001.journal.newer)");
        write(3);
        assert_eq!(
            not_read(),
            "2 segments of a newer epitaph (0000000000000001.journal.newer to 0000000000000003.journal.newer)"
        );
    }

    #[test]
    fn a_directory_is_not_a_file_and_the_remedy_is_the_option() {
        let directory = tempfile::tempdir().unwrap();
        let Err(refused) = input::open(directory.path(), EXPECTED) else {
            panic!()
        };
        let path = directory.path().display();
        assert_eq!(
            crate::error::lines(&refused),
            format!("{path} is a directory\nremedy: `--journal {path}`, without `--from`, reads the journal of an agent")
        );
    }

    /// What is installed names one directory, in the way that a command by hand finds, too: a variable of the service's unit is the
    /// service's alone, one of a container's also `kubectl exec`'s.
    #[test]
    fn the_commands_read_where_the_installed_agent_writes() {
        let deploy = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"));
        let text = |name: &str| std::fs::read_to_string(deploy.join(name)).unwrap();

        let package = directory(None, Some(&deploy.join("epitaph.toml")), &Vars(None)).unwrap();
        assert_eq!(package, Path::new(DEFAULT));
        let unit = text("epitaph.service");
        assert!(!unit.contains("Environment"), "{unit}");
        assert!(unit.contains("\nStateDirectory=epitaph\n"), "{unit}");

        for manifest in ["kubernetes/agent.yaml", "helm/epitaph/templates/agent/_container.tpl"] {
            let manifest = text(manifest);
            let (_, value) = manifest.split_once("{name: EPITAPH_JOURNAL_DIRECTORY, value: ").unwrap();
            let (value, _) = value.split_once('}').unwrap();
            let container = Vars(Some(DEFAULT).filter(|_| value == DEFAULT));
            assert_eq!(directory(None, None, &container).unwrap(), Path::new(value));
            assert!(manifest.contains("{name: journal, mountPath: /var/lib/epitaph}"));
        }
    }
}
