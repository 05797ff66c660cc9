//! An agent with a journal, what terminates while it observes, and a collector that keeps what it gets.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::ensure;
use epitaph::journal::reader::Reader;
use epitaph::recording;
use epitaph_core::decode::decode;
use epitaph_core::event::Event;
use epitaph_core::input::Input;
use epitaph_core::time::Boot;
use epitaph_tests::agent::program;
use epitaph_tests::cgroup::Scope;
use epitaph_tests::epitaph::{Epitaph, run};
use epitaph_tests::http::{Request, request};
use epitaph_tests::machine::is_root;
use epitaph_tests::play::{Players, Role};
use epitaph_tests::service::Service;
use epitaph_tests::skip::skip;
use epitaph_tests::stories::stories;
use epitaph_tests::story::Story;
use epitaph_tests::sys::locked;
use epitaph_tests::timeout::{self, holds};
use nix::libc::SIGTERM;
use serde_json::Value;
use tempfile::TempDir;

pub struct Stage {
    pub players: Players,
    pub directory: TempDir,
    pub epitaph: Epitaph,
}

impl Stage {
    /// None, and a skip, if the test of that name cannot be played.
    pub fn set(test: &str) -> anyhow::Result<Option<Stage>> {
        if !is_root() {
            skip(test, "observing needs root");
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        Ok(Some(Stage {
            players: Players::new(&binaries())?,
            epitaph: Epitaph::copied(&program(&binaries()), directory.path())?,
            directory,
        }))
    }

    pub fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// An agent with a journal, and with a collector at that port.
    pub fn agent(&self, collector: u16) -> anyhow::Result<Service> {
        self.agent_at(&self.journal(), collector)
    }

    /// The same with its journal elsewhere.
    pub fn agent_at(&self, journal: &Path, collector: u16) -> anyhow::Result<Service> {
        self.agent_with(journal, collector, &[])
    }

    pub fn agent_with(&self, journal: &Path, collector: u16, more: &[&str]) -> anyhow::Result<Service> {
        let mut agent = self.begun(journal, collector, more)?;
        agent.until_ready()?;
        Ok(agent)
    }

    /// The same, only just started.
    pub fn begun(&self, journal: &Path, collector: u16, more: &[&str]) -> anyhow::Result<Service> {
        let journal = format!("journal.directory={}", journal.display());
        let url = format!("http://127.0.0.1:{collector}");
        let args = [
            "--set",
            &journal,
            "--otlp",
            &url,
            "--otlp-protocol",
            "http/protobuf",
            "--set",
            "otlp.metrics=false",
        ];
        Service::begun(&self.epitaph, self.directory.path(), &[&args, more].concat())
    }

    /// The evidence in a journal, the oldest first, each with the agent's time when it came; None: there is none yet.
    pub fn evidence(&self, journal: &Path) -> anyhow::Result<Option<impl Iterator<Item = (Boot, Input)> + use<>>> {
        let file = journal.with_extension("epitaph");
        let (journal, out) = (journal.display().to_string(), file.display().to_string());
        let exported = run(self.epitaph.command(), ["export", "--journal", &journal, &out])?;
        if exported.code == Some(66) {
            return Ok(None);
        }
        ensure!(exported.code == Some(0), "{exported:?}");
        let recording = BufReader::new(File::open(&file)?);
        // An export replaces no file.
        std::fs::remove_file(&file)?;
        Ok(Some(recording::Reader::new(recording, decode)?))
    }

    /// Waits until the agent's journal has the role's own stop signal, whatever else terminates on this machine.
    pub fn until_stopped(&self, role: &Role) -> anyhow::Result<()> {
        let scope = Scope::at(&self.players.machine().mounts, &role.scope);
        timeout::until("the stop signal in the journal", || {
            let Ok(cgroup) = scope.id() else {
                return Ok(Err("no cgroup".to_owned()));
            };
            let Some(evidence) = self.evidence(&self.journal())? else {
                return Ok(Err("no evidence".to_owned()));
            };
            let inputs: Vec<Input> = evidence.map(|(_, input)| input).collect();
            let is_stop = |input: &Input| match input {
                Input::Kernel {
                    event: Event::SignalGenerate(signal),
                    ..
                } => signal.target.cgroup.id == cgroup && i32::from(signal.signal.number()) == SIGTERM,
                _ => false,
            };
            Ok(holds(inputs.iter().any(is_stop), || {
                format!("{} inputs, the last: {:?}", inputs.len(), inputs.last())
            }))
        })
    }

    /// Plays the story; returns the id of its container.
    pub fn play(&self, story: &'static Story) -> anyhow::Result<String> {
        let role = self.players.cast(story)?;
        let differs = self.players.play(&role)?.differs(&role);
        ensure!(differs.is_empty(), "{}: {}", story.name, differs.join("\n"));
        Ok(role.subject.as_str().to_owned())
    }
}

fn binaries() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_victim"));
    path.pop();
    path
}

pub fn story(name: &str) -> &'static Story {
    stories().find(|s| s.name == name).expect("a story of that name")
}

/// A finished report.
pub struct Report {
    pub json: Value,
    pub request: Vec<u8>,
}

impl Report {
    pub fn subject(&self) -> &str {
        self.json["subject"]["id"].as_str().unwrap_or_default()
    }

    pub fn verdict(&self) -> &str {
        self.json["verdict"].as_str().unwrap_or_default()
    }
}

/// Trace id and span id.
pub type RootId = (Vec<u8>, Vec<u8>);

/// The finished reports by trace and root span; one that is there twice must be identical.
pub fn reports(journal: &Path) -> anyhow::Result<BTreeMap<RootId, Report>> {
    let mut reader = Reader::open(journal)?;
    let mut found: BTreeMap<_, Report> = BTreeMap::new();
    while let Some(report) = reader.next_report() {
        let json: Value = serde_json::from_slice(report.json)?;
        let request = report.request.to_vec();
        let key = (report.id.trace.to_vec(), report.id.span.to_vec());
        if let Some(first) = found.get(&key) {
            ensure!(
                first.request == request,
                "two requests for one root span: {json} {}",
                first.json
            );
        }
        found.insert(key, Report { json, request });
    }
    Ok(found)
}

/// The reports about each container.
pub fn by_subject(journal: &Path) -> anyhow::Result<HashMap<String, Vec<Value>>> {
    let mut subjects: HashMap<String, Vec<Value>> = HashMap::new();
    for report in reports(journal)?.into_values() {
        subjects.entry(report.subject().to_owned()).or_default().push(report.json);
    }
    Ok(subjects)
}

/// Accepts every request, and keeps its body.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<Vec<u8>>>>);

impl Collector {
    pub fn start(port: u16) -> anyhow::Result<Collector> {
        Collector::with(port, |_| {})
    }

    /// Calls `got` with each body before it answers.
    pub fn with(port: u16, got: impl Fn(&[u8]) + Clone + Send + 'static) -> anyhow::Result<Collector> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let collector = Collector::default();
        let kept = collector.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (kept, got) = (kept.clone(), got.clone());
                std::thread::spawn(move || {
                    while let Some(Request { body, .. }) = request(&mut stream) {
                        got(&body);
                        kept.bodies().push(body);
                        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                    }
                });
            }
        });
        Ok(collector)
    }

    pub fn bodies(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        locked(&self.0)
    }

    /// How often it got that request, alone or with others.
    pub fn times(&self, request: &[u8]) -> usize {
        self.bodies().iter().map(|body| times(body, request)).sum()
    }
}

pub fn times(body: &[u8], request: &[u8]) -> usize {
    body.windows(request.len()).filter(|part| *part == request).count()
}

/// The parts of an encoded `ExportTraceServiceRequest`: its `resource_spans` (field 1), each with key, length and bytes. Requests that are
/// sent together are one after the other. Without the agent's spans about itself.
pub fn fields(mut request: &[u8]) -> impl Iterator<Item = &[u8]> {
    const OWN: &[u8] = b"epitaph-agent";
    let all = std::iter::from_fn(move || {
        let mut at = 1;
        let mut length = 0;
        for shift in (0..35).step_by(7) {
            let byte = *request.get(at)?;
            at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        let (field, rest) = request.split_at_checked(at + length)?;
        request = rest;
        Some(field)
    });
    all.filter(|field| times(field, OWN) == 0)
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    timeout::until(what, || Ok(holds(done(), || "not yet".to_owned())))
}

/// A test's own setting, which no configuration file holds.
pub fn number(variable: &str, default: usize) -> anyhow::Result<usize> {
    #[expect(clippy::disallowed_methods, reason = "a test's own setting: no configuration file holds it")]
    let set = std::env::var(variable);
    Ok(set.map_or(Ok(default), |set| set.parse())?)
}

/// The same numbers in every run.
pub struct Random(pub u64);

impl Random {
    /// xorshift.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) as usize % below
    }
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
pub fn now() -> Instant {
    Instant::now()
}
