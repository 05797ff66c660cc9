//! Hostile bytes for everything that reads bytes from outside of epitaph.
//!
//! A target gets its corpus (`tests/fuzz/TARGET`: inputs that failed once), and mutations of the corpus and of its seeds. It must not
//! panic, and each input may cost [`CPU`] and [`MEMORY`] at most. The toolchain is the stable one, without instrumentation: an input
//! with a new outcome becomes a seed. `cargo xtask fuzz [TARGET] [--time SECONDS]` runs longer than the tests of every day.
//!
//! A failing input is shrunk and written to the corpus, where it stays as a regression test. A target is a test in the module `fuzz` of its
//! room (`fuzz_tests.rs`), and has a name in `xtask/src/fuzz.rs`.

mod finished_report;
mod memory;
mod mutation;
pub(crate) mod recordings;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use epitaph_core::attribute::path::{self, Nodes};
use epitaph_core::correlate::{Correlator, Limits};
use epitaph_core::decode::decode;
use epitaph_core::event::Kind;
use epitaph_core::input::{Input, LossScope};
use epitaph_core::render::json;
use epitaph_core::report::Report;
use epitaph_core::time::Boot;
use nix::time::{ClockId, clock_gettime};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::recording::Reader;
use crate::render::span;
use mutation::{Mutations, mutations};

/// CPU time of one target in the tests of every day.
const TIME: Duration = Duration::from_secs(2);

/// CPU time of one input, in an unoptimised build.
const CPU: Duration = Duration::from_secs(10);

/// Memory that the thread of one input holds at most, bytes. The longest input has [`mutation::LONGEST`] bytes.
const MEMORY: usize = 64 << 20;

/// Most inputs of a new outcome that become seeds.
const GROWN: usize = 1_000;

/// Cases between two looks at the clock.
const BATCH: u32 = 32;

/// Runs `check` on the corpus of `target`, and on mutations of the corpus and of `seeds`. `check` returns the outcome, as a number.
///
/// # Panics
/// If an input fails; the message names the file with the input.
pub(crate) fn run(target: &str, seeds: Vec<Vec<u8>>, check: impl Fn(&[u8]) -> u64) {
    run_mutated(target, seeds, |seed, mutations, pool| mutations.apply(seed, pool), check);
}

/// As [`run`], of recordings; of some seeds the checksums of changed frames stay valid.
pub(crate) fn run_frames(target: &str, seeds: Vec<Vec<u8>>, check: impl Fn(&[u8]) -> u64) {
    let mutate = |seed: &[u8], mutations: &Mutations, pool: &[Vec<u8>]| match seed.len() % 2 {
        0 => recordings::mutate_inputs(seed, mutations, pool),
        _ => mutations.apply(seed, pool),
    };
    run_mutated(target, seeds, mutate, check);
}

/// As [`run`], with the target's own way to apply mutations: seed, mutations, all seeds.
fn run_mutated(
    target: &str,
    seeds: Vec<Vec<u8>>,
    mutate: impl Fn(&[u8], &Mutations, &[Vec<u8>]) -> Vec<u8>,
    check: impl Fn(&[u8]) -> u64,
) {
    assert!(!seeds.is_empty(), "{target} has no seeds");
    let (time, mut rng) = match seconds() {
        // Every day the same inputs, as far as the time reaches.
        None => (TIME, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
        Some(time) => (time, TestRunner::default().new_rng()),
    };
    let corpus = corpus(target);
    let mut outcomes = HashSet::new();
    for input in &corpus {
        outcomes.insert(bounded(&check, input).unwrap_or_else(|error| panic!("{target}: {error}")));
    }
    let mut pool = seeds;
    pool.extend(corpus);
    let (begin, grown_from, mut cases) = (thread_time(), pool.len(), 0_u64);
    while thread_time() - begin < time {
        let config = Config {
            cases: BATCH,
            failure_persistence: None,
            max_shrink_iters: 4_000,
            // An input that fails by its time takes that much of it in each step.
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let found: RefCell<Vec<(u64, Vec<u8>)>> = RefCell::default();
        let input = |(seed, mutations): &(usize, Mutations)| mutate(&pool[seed % pool.len()], mutations, &pool);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let result = runner.run(&mutations(), |of| {
            let input = input(&of);
            let outcome = bounded(&check, &input).map_err(TestCaseError::fail)?;
            if !outcomes.contains(&outcome) {
                found.borrow_mut().push((outcome, input));
            }
            Ok(())
        });
        match result {
            Ok(()) => {}
            Err(TestError::Fail(why, of)) => panic!("{target}: {why}; the input is {}", keep(target, &input(&of))),
            Err(TestError::Abort(why)) => panic!("{target}: {why}"),
        }
        rng = runner.new_rng();
        cases += u64::from(BATCH);
        for (outcome, input) in found.into_inner() {
            if pool.len() < grown_from + GROWN && outcomes.insert(outcome) {
                pool.push(input);
            }
        }
    }
    println!(
        "fuzz {target}: {cases} inputs, {} outcomes, {:.0} s of CPU",
        outcomes.len(),
        (thread_time() - begin).as_secs_f64()
    );
}

/// The outcome, unless the input costs too much. A panic passes through.
fn bounded(check: impl Fn(&[u8]) -> u64, input: &[u8]) -> Result<u64, String> {
    let begin = thread_time();
    let (outcome, peak) = memory::peak(|| check(input));
    let took = thread_time() - begin;
    if took > CPU {
        return Err(format!("an input of {} bytes took {took:?}", input.len()));
    }
    if peak > MEMORY {
        return Err(format!("an input of {} bytes needed {} KiB", input.len(), peak >> 10));
    }
    Ok(outcome)
}

/// A hash of what is told apart.
pub(crate) fn outcome(of: impl std::hash::Hash) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}

/// The words of a debug text without its numbers and names: two errors of the same kind are the same outcome.
pub(crate) fn shape(of: &impl std::fmt::Debug) -> String {
    let mut text = String::new();
    let _ = write!(text, "{of:?}");
    text.truncate(text.find(['(', '{', '"']).unwrap_or(text.len()));
    text
}

/// CPU time of this thread: a busy machine gives a target no fewer inputs.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn seconds() -> Option<Duration> {
    #[expect(clippy::disallowed_methods, reason = "set by cargo xtask fuzz; not a setting of epitaph")]
    let text = std::env::var("EPITAPH_FUZZ_SECONDS").ok()?;
    Some(Duration::from_secs(
        text.parse().expect("EPITAPH_FUZZ_SECONDS is a number of seconds"),
    ))
}

fn directory(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz").join(target)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let Ok(files) = std::fs::read_dir(directory(target)) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a directory entry").path()).collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).expect("a file of the corpus"))
        .collect()
}

/// Writes a failing input to the corpus; its file.
fn keep(target: &str, input: &[u8]) -> String {
    let directory = directory(target);
    let file = directory.join(format!("{:016x}", outcome(input)));
    let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&file, input));
    match written {
        Ok(()) => file.display().to_string(),
        Err(error) => format!("not written ({error}): {input:?}"),
    }
}

/// Kernel records, as any process can cause them and a damaged recording can hold them.
#[test]
fn kernel_record() {
    run("kernel_record", recordings::kernel_records(), |bytes| match decode(bytes) {
        Ok((_, event)) => outcome(("ok", shape(&event), bytes.len())),
        Err(error) => outcome(("error", shape(&error))),
    });
}

/// Any bytes as a recording.
#[test]
fn recording() {
    run("recording", recordings::small(), |bytes| {
        let mut reader = match Reader::new(bytes, decode) {
            Ok(reader) => reader,
            Err(error) => return outcome(("no recording", shape(&error))),
        };
        let inputs = reader.by_ref().count() as u64;
        let report = reader.report();
        assert_eq!(report.inputs, inputs);
        assert!(report.damaged_bytes + report.tail_bytes <= bytes.len() as u64);
        outcome((
            report.damaged.min(3),
            report.unknown_inputs.min(3),
            report.undecodable.min(3),
            (report.missing.len().min(3), report.repeated.min(3), report.another.is_some()),
            inputs.min(20),
        ))
    });
}

/// Names of cgroups, which anyone with a writable cgroup tree chooses.
#[test]
fn cgroup_path() {
    let seeds = [
        "/",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1c07ff2d_8b1b_4b3c_9f65_0f3a3c0f6a11.slice/cri-containerd-3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b.scope",
        "/kubepods/besteffort/pod1c07ff2d-8b1b-4b3c-9f65-0f3a3c0f6a11/3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b/init",
        "/machine.slice/libpod-3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b.scope/container",
        "/docker/3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b",
        "/system.slice/docker-3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b3f1c9a0b.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome\\x2dterminal-4711.scope",
        "/system.slice/nginx.service",
    ];
    run("cgroup_path", seeds.map(|seed| seed.as_bytes().to_vec()).into(), |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let shown = path::shown(&text);
        assert!(!shown.contains(char::is_control), "{shown:?} can change a terminal");
        let outermost = path::outermost_container(&text);
        for nodes in [Nodes::default(), Nodes::Containers] {
            for part in outermost.into_iter().chain(path::enclosing_container(&text, nodes)) {
                assert!(text.starts_with(part), "{part:?} is not a cgroup above {text:?}");
            }
        }
        match path::parse(&text, Nodes::default()) {
            Ok(place) => outcome(("ok", shape(&place))),
            Err(error) => outcome(("error", shape(&error))),
        }
    });
}

/// Whole recordings with valid checksums and mutated inputs, through the core and into what the sinks get.
#[test]
fn replay() {
    run_mutated("replay", recordings::small(), recordings::mutate_inputs, |bytes| {
        let Ok(mut reader) = Reader::new(bytes, decode) else {
            return 0;
        };
        let observation = reader.header().observation.clone();
        let mut core = Correlator::new(Limits::default());
        let options = span::Options::default();
        let (mut seen, mut last) = (Vec::new(), Boot::default());
        let mut take = |now: Boot, input: Input| {
            let _ = core.questions(&input);
            for report in core.handle(now, input).reports {
                let verdict = match &report {
                    Report::Terminated(t) => {
                        let _ = json::line(&json::termination(t, &observation));
                        let _ = span::trace(t, &observation, &options);
                        t.verdict.headline
                    }
                    Report::PodTerminated(pod) => {
                        let _ = span::pod_trace(pod, &observation, &options);
                        pod.verdict.headline
                    }
                    Report::StopSignalIgnored(early) => {
                        let _ = json::line(&json::early(early, &observation));
                        "early"
                    }
                    Report::ChildOomKilled { subject, container, oom } => {
                        let _ = json::line(&json::child_oom(subject, container.as_deref(), oom, &observation));
                        "child oom"
                    }
                    _ => "other",
                };
                if seen.len() < 8 {
                    seen.push(verdict);
                }
            }
        };
        for (now, input) in reader.by_ref() {
            last = now;
            take(now, input);
        }
        for kind in Kind::ALL {
            let (since, count) = (last, 1);
            let scope = LossScope::Machine;
            take(
                last,
                Input::Lost {
                    kind,
                    scope,
                    since,
                    count,
                },
            );
        }
        take(last, Input::End);
        outcome(seen)
    });
}
