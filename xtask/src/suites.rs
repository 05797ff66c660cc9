//! The test programs that cargo built, each run in its lane. The lanes run side by side.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    agent::Built,
    dist, shell,
    tally::Tally,
    times::{self, Stopwatch},
};

/// What may run beside what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Loads probes, or plays containers: agents of other tests would see them. Also a program that no list below names.
    Live,
    /// Real servers, for which the tests mostly wait, and no container.
    Servers,
    /// Neither: only processors are shared, of which these get less than the others.
    Pure,
}

const SERVERS: &[&str] = &[
    "lost_nodes",
    "api_cost",
    "observer",
    "kubernetes_events",
    "epitaphs",
    "chart",
    "kubernetes_api",
    "jaeger",
];
const PURE: &[&str] = &[
    "epitaph (lib)",
    "epitaph_core (lib)",
    "epitaph_story (lib)",
    "kubectl_epitaph (lib)",
    "kubectl_usage",
    "corpus",
    "past",
    "memory",
    "delivery",
    "replay",
    "kernel_btf",
    "image",
    "architecture",
    "epitaph_image (lib)",
    "epitaph_ebpf (lib)",
    "epitaph (bin)",
    "random-histories (bin)",
    "xtask (bin)",
    DOC,
];
/// A list of programs by one name: those whose subject is time, or that play processes and servers, in which the kernel and the load of the
/// machine decide what comes first.
pub const TIMING: &str = "timing";
const OF_TIMING: &[&str] = &[
    "alerts",
    "api_cost",
    "cgroups",
    "clean",
    "delivery",
    "epitaph (lib)",
    "epitaphs",
    "first_contact",
    "hostile",
    "http_attacks",
    "journal",
    "kubernetes_events",
    "logind",
    "look_back",
    "lost_nodes",
    "misbehaving",
    "neighbours",
    "nested",
    "observer",
    "players",
    "pods_source",
    "privileges",
    "probes",
    "random_histories",
    "refusals",
    "scans",
    "service",
    "stories",
    "traffic",
];
/// How many tests libtest runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";
const DOC: &str = "the documentation";
/// Tests of the library as it is in the program for pods, which has other features.
pub const FOR_PODS: &str = "epitaph for pods (lib)";
/// Its modules in which the features make a difference. Fuzzing is not repeated.
const WITH_FEATURES: [&str; 7] = [
    "config::",
    "source::in_cluster::",
    "source::kubelet::",
    "source::pods::",
    "runtime::logging::",
    "--skip",
    "fuzz",
];

/// Whether the suite plays neither processes nor servers, as far as the lists know.
#[cfg(test)]
pub fn is_pure(name: &str) -> bool {
    Lane::of(name).0 == Lane::Pure
}

impl Suite {
    /// With these tests alone: those with one of these texts in their names. Only libtest knows several texts: another harness runs all.
    pub fn choose(&mut self, tests: &[&str]) {
        if !self.own_harness {
            self.args.extend(tests.iter().map(|test| (*test).to_owned()));
        }
    }
}

impl Lane {
    pub const ALL: [Lane; 3] = [Lane::Live, Lane::Servers, Lane::Pure];

    /// Lane and place in it, the slowest first: a program that no list names is taken for a live one.
    fn of(name: &str) -> (Lane, usize) {
        let place = |list: &[&str]| list.iter().position(|listed| *listed == name);
        match (place(SERVERS), place(PURE)) {
            _ if name == FOR_PODS => (Lane::Pure, PURE.len()),
            (Some(place), _) => (Lane::Servers, place),
            (_, Some(place)) => (Lane::Pure, place),
            (None, None) => (Lane::Live, 0),
        }
    }

    /// Programs at a time.
    fn width(self) -> usize {
        match self {
            Lane::Servers => 2,
            Lane::Live | Lane::Pure => 1,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Lane::Live => "live",
            Lane::Servers => "servers",
            Lane::Pure => "pure",
        }
    }
}

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    pub name: String,
    program: PathBuf,
    args: Vec<String>,
    /// Of its package.
    directory: PathBuf,
    /// Without libtest: the program does not report the time of each test.
    own_harness: bool,
}

/// What became of a suite.
pub struct Ran {
    pub name: String,
    pub lane: Lane,
    pub took: Duration,
    /// Of the program and of the children that it waited for.
    pub processors: Duration,
    /// Name and time of each test.
    pub tests: Vec<(String, Duration)>,
    printed: Vec<String>,
    errors: String,
    status: ExitStatus,
}

/// The suites that `cargo test` with this selection would run, but for the tests in the documentation; and the programs that were built
/// with them.
pub fn of(selection: &[&str], what: &str) -> Result<(Vec<Suite>, Built)> {
    let cargo = || {
        let mut cargo = shell::cargo();
        cargo.args(["test", "--no-run"]).args(selection);
        cargo
    };
    shell::run(&mut cargo(), what)?;
    let messages = shell::read(cargo().args(["--quiet", "--message-format=json"]))?;
    let suites: Vec<Suite> = messages.lines().filter_map(suite).collect();
    ensure!(!suites.is_empty(), "{what}: cargo reported no test program");
    Ok((suites, Built::reported(&messages)))
}

/// What the tests in `tests/tests` run. The example has cargo join the features of dependencies as for tests, and build nothing once more.
const PROGRAMS: [&str; 10] = [
    "--bin",
    "epitaph",
    "--bin",
    "demo",
    "--bin",
    "kubectl-epitaph",
    "--bin",
    "random-histories",
    "--example",
    "grpc-server",
];

/// The suites of these names alone, for one who builds them again and again; and the programs that they run, if they run any.
pub fn named(names: &[&str]) -> Result<(Vec<Suite>, Option<Built>)> {
    let mut suites = Vec::new();
    // By itself a package can have other features of its dependencies: these two have few.
    for (suite, package) in [("epitaph_core (lib)", "epitaph-core"), ("epitaph_ebpf (lib)", "epitaph-ebpf")] {
        if names.contains(&suite) {
            suites.extend(of(&["--package", package, "--lib"], &format!("building {suite}"))?.0);
        }
    }
    let mut selection = Vec::new();
    for name in names {
        match name.split_once(" (") {
            _ if *name == DOC => suites.push(documentation()),
            _ if *name == FOR_PODS || suites.iter().any(|suite: &Suite| suite.name == *name) => {}
            Some((_, "lib)")) if selection.contains(&"--lib") => {}
            Some((_, "lib)")) => selection.push("--lib"),
            Some((program, _)) => selection.extend(["--bin", program]),
            None => selection.extend(["--test", *name]),
        }
    }
    if !selection.is_empty() {
        let mut others = of(&selection, "building the tests that were named")?.0;
        others.retain(|other| suites.iter().all(|suite: &Suite| suite.name != other.name));
        suites.extend(others);
    }
    suites.retain(|suite| names.contains(&&*suite.name));
    let runs_programs = selection.contains(&"--test");
    let programs = runs_programs.then(|| Built::of(&PROGRAMS, "building the programs that the tests run"));
    Ok((suites, programs.transpose()?))
}

/// See [`FOR_PODS`].
pub fn for_pods() -> Result<Vec<Suite>> {
    let selection = [&["--package", "epitaph", "--lib"][..], &dist::FOR_PODS].concat();
    let (mut suites, _) = of(&selection, "building the tests of the program for pods")?;
    for suite in &mut suites {
        FOR_PODS.clone_into(&mut suite.name);
        suite.args = WITH_FEATURES.map(str::to_owned).into();
    }
    Ok(suites)
}

/// The tests in the documentation, which cargo itself runs.
pub fn documentation() -> Suite {
    Suite {
        name: DOC.to_owned(),
        program: shell::cargo_path(),
        args: ["test", "--doc", "--no-fail-fast"].map(str::to_owned).into(),
        directory: shell::root(),
        own_harness: true,
    }
}

/// The test program of a message of cargo's.
fn suite(message: &str) -> Option<Suite> {
    let value = |key: &str| {
        let (_, rest) = message.split_once(&format!("\"{key}\":\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let (_, profile) = message.split_once("\"profile\":{")?;
    if !profile.split_once('}')?.0.ends_with("\"test\":true") {
        return None;
    }
    let program = PathBuf::from(value("executable")?);
    let manifest = PathBuf::from(value("manifest_path")?);
    let target = message.split_once("\"target\":{")?.1;
    let name = target.split_once("\"name\":\"")?.1.split_once('"')?.0;
    let kind = target.split_once("\"kind\":[\"")?.1.split_once('"')?.0;
    let own_harness = kind == "test" && has_own_harness(&fs::read_to_string(&manifest).ok()?, name);
    Some(Suite {
        name: match kind {
            "test" => name.to_owned(),
            kind => format!("{name} ({kind})"),
        },
        program,
        args: Vec::new(),
        directory: manifest.parent()?.to_owned(),
        own_harness,
    })
}

fn has_own_harness(manifest: &str, test: &str) -> bool {
    let tables = manifest.split("\n[").filter(|table| table.starts_with("[test]]"));
    let lines = |table: &str, line: &str| table.lines().any(|found| found == line);
    tables
        .filter(|table| lines(table, &format!("name = \"{test}\"")))
        .any(|table| lines(table, "harness = false"))
}

/// The suites in their lanes, in the order in which they run. `only`: names, separated by commas, or [`TIMING`].
pub fn lanes(suites: Vec<Suite>, only: Option<&str>) -> Result<Vec<(Lane, VecDeque<Suite>)>> {
    let names: BTreeSet<&str> = suites.iter().map(|suite| &*suite.name).collect();
    let missing = |wanted: &[&str]| -> Vec<String> {
        let missing = wanted.iter().filter(|name| !names.contains(*name));
        missing.map(|name| (*name).to_owned()).collect()
    };
    // Of named ones alone the others were not built.
    let listed = match only {
        None | Some(TIMING) => missing(&[SERVERS, PURE, OF_TIMING].concat()),
        Some(_) => Vec::new(),
    };
    if names.len() != suites.len() || !listed.is_empty() {
        bail!("the lanes in xtask/src/suites.rs do not fit: two suites of a name in {names:?}, or without a suite: {listed:?}");
    }
    let only: Option<Vec<&str>> = only.map(|only| match only {
        TIMING => OF_TIMING.to_vec(),
        only => only.split(',').collect(),
    });
    let unknown = missing(only.as_deref().unwrap_or_default());
    if !unknown.is_empty() {
        bail!("no program of tests {unknown:?}; the programs are {names:?}");
    }
    let is_wanted = |suite: &Suite| only.as_ref().is_none_or(|only| only.contains(&&*suite.name));
    let mut wanted: Vec<((Lane, usize), Suite)> = Vec::new();
    for suite in suites {
        if is_wanted(&suite) {
            wanted.push((Lane::of(&suite.name), suite));
        }
    }
    wanted.sort_by(|((_, a), left), ((_, b), right)| (a, &left.name).cmp(&(b, &right.name)));
    let lane = |lane| {
        let of_lane = wanted.extract_if(.., |((of, _), _)| *of == lane);
        (lane, of_lane.map(|(_, suite)| suite).collect())
    };
    Ok(Lane::ALL.into_iter().map(lane).collect())
}

/// Runs the suites with `prepare` called for each command; prints the output of each when it is over, whole.
pub fn run(
    lanes: Vec<(Lane, VecDeque<Suite>)>,
    times: bool,
    prepare: &(dyn Fn(&mut Command) + Sync),
    tally: &mut Tally,
) -> Result<(u64, Vec<Ran>)> {
    let output = shell::root().join("target/xtask/suites");
    fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    let lanes: Vec<_> = lanes.into_iter().map(|(lane, queue)| (lane, Mutex::new(queue))).collect();
    let (done, finished) = mpsc::channel();
    let (mut ran, mut broken) = (Vec::new(), 0);
    thread::scope(|scope| {
        for (lane, queue) in lanes
            .iter()
            .flat_map(|(lane, queue)| std::iter::repeat_n((*lane, queue), lane.width()))
        {
            let (done, output) = (done.clone(), &output);
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            scope.spawn(move || {
                while let Some(suite) = next() {
                    shell::log(format_args!("running {} (lane: {})", suite.name, lane.name()));
                    let result = play(&suite, lane, times, prepare, output).with_context(|| suite.name.clone());
                    if done.send(result).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        for suite in finished {
            let suite = suite?;
            broken += u64::from(!reported(&suite, tally));
            ran.push(suite);
        }
        Ok((broken, ran))
    })
}

/// Prints and counts what the suite printed. False if it failed without a failed test, or reported no totals.
fn reported(suite: &Ran, tally: &mut Tally) -> bool {
    let failed_before = tally.failed;
    println!("\n     Running {}", suite.name);
    let mut totals = false;
    for line in &suite.printed {
        println!("{line}");
        tally.line(line);
        totals |= line.starts_with("test result: ");
    }
    print!("{}", suite.errors);
    if !totals || (!suite.status.success() && tally.failed == failed_before) {
        println!("{}: {} outside of the tests; see above", suite.name, suite.status);
        return false;
    }
    true
}

/// Tests of one program at a time: more than processors, for half of their time is waiting. Not of the live ones, which would load probes
/// in each.
fn threads() -> usize {
    2 * thread::available_parallelism().map_or(1, |processors| processors.get())
}

/// How long nothing is printed before a look whether the suite is over.
const QUIET: Duration = Duration::from_secs(5);

/// Read by a thread, which is left behind where a process holds the pipe open that outlives the tests.
fn lines_of(output: ChildStdout) -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut all = BufReader::new(output).split(b'\n');
        while all.next().is_some_and(|line| sender.send(line).is_ok()) {}
    });
    lines
}

/// Most time of a suite, seconds: a test without an end costs that suite, and not the whole run. Many times what the longest takes.
const DEADLINE: &str = "1800";

fn play(suite: &Suite, lane: Lane, times: bool, prepare: &(dyn Fn(&mut Command) + Sync), output: &Path) -> Result<Ran> {
    let mut command = Command::new("timeout");
    // In the foreground: Ctrl-C ends the suite too.
    command.args(["--foreground", "--verbose", "--kill-after=10", DEADLINE]);
    // The live ones get their turn.
    if lane == Lane::Pure {
        command.args(["nice", "-n", "5", "--"]);
    }
    prepare(&mut command);
    command.arg(&suite.program).args(&suite.args).current_dir(&suite.directory);
    command
        .env("CARGO", shell::cargo_path())
        .env("CARGO_MANIFEST_DIR", &suite.directory);
    if lane != Lane::Live && shell::env(THREADS).is_none() {
        command.env(THREADS, threads().to_string());
    }
    if times && !suite.own_harness {
        times::report_each(&mut command);
    }
    // A file: a process that outlives the tests would hold a pipe open. The pipe of the standard output is left when the suite is over.
    let errors = output.join(format!("{}.stderr", suite.name));
    let file = File::create(&errors).with_context(|| format!("creating {}", errors.display()))?;
    let begin = Stopwatch::start();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn()?;
    let lines = lines_of(child.stdout.take().context("the pipe that was just asked for")?);
    let (mut printed, mut tests) = (Vec::new(), Vec::new());
    let mut last = Duration::ZERO;
    loop {
        let text = match lines.recv_timeout(QUIET) {
            Ok(line) => String::from_utf8_lossy(&line.context("reading its output")?).into_owned(),
            Err(RecvTimeoutError::Timeout) if !times::is_over(&child)? => continue,
            Err(_) => break,
        };
        let now = begin.elapsed();
        if let Some((name, reported)) = times::of_line(&text) {
            tests.push((name.to_owned(), reported.unwrap_or(now - last)));
            last = now;
        }
        // At once: what never ends is named here only.
        if text.contains("has been running for over") {
            shell::log(format_args!("{}: {text}", suite.name));
        }
        printed.push(text);
    }
    let processors = times::processors(&child)?;
    let status = child.wait()?;
    let took = begin.elapsed();
    let errors = fs::read(&errors).with_context(|| format!("reading {}", errors.display()))?;
    Ok(Ran {
        name: suite.name.clone(),
        lane,
        took,
        processors,
        tests,
        printed,
        errors: String::from_utf8_lossy(&errors).into_owned(),
        status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/tests#epitaph-tests@0.1.0","manifest_path":"MANIFEST","target":{"kind":["test"],"crate_types":["bin"],"name":"NAME","src_path":"/w/x.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"0","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":TEST},"features":[],"filenames":["/w/target/debug/deps/x-1"],"executable":"/w/target/debug/deps/x-1","fresh":true}"#;

    fn message(name: &str, test: &str) -> Option<Suite> {
        let manifest = shell::root().join("tests/Cargo.toml").display().to_string();
        suite(
            &MESSAGE
                .replace("MANIFEST", &manifest)
                .replace("NAME", name)
                .replace("TEST", test),
        )
    }

    /// What it leaves behind holds its standard output open. Without an end the test does not return.
    #[test]
    fn a_suite_is_over_although_a_process_that_it_began_is_not() {
        let output = std::env::temp_dir().join(format!("epitaph-suites-{}", std::process::id()));
        fs::create_dir_all(&output).unwrap();
        let suite = Suite {
            name: "leaves".to_owned(),
            program: "/bin/sh".into(),
            args: ["-c", "sleep 86400 & echo $!"].map(str::to_owned).to_vec(),
            directory: output.clone(),
            own_harness: true,
        };
        let ran = play(&suite, Lane::Live, false, &|_| {}, &output).unwrap();
        let [left] = ran.printed.try_into().unwrap();
        // The shell's own: not every machine has a program of that name.
        let killed = Command::new("/bin/sh").args(["-c", "kill $0", &left]).status().unwrap();
        assert!(killed.success(), "{left} runs");
        fs::remove_dir_all(&output).unwrap();
    }

    #[test]
    fn a_test_program_is_a_suite_and_a_plain_one_is_not() {
        let found = message("hostile", "true").unwrap();
        assert_eq!((&*found.name, found.own_harness), ("hostile", false));
        assert_eq!(found.program, Path::new("/w/target/debug/deps/x-1"));
        assert_eq!(found.directory, shell::root().join("tests"));
        assert!(message("stories", "true").unwrap().own_harness);
        assert_eq!(message("victim", "false"), None);
    }

    #[test]
    fn what_no_list_names_is_live() {
        assert_eq!(Lane::of("stories").0, Lane::Live);
        assert_eq!(Lane::of("a test that is new").0, Lane::Live);
        // Thousands of cgroups: every agent of the machine has records of them.
        assert_eq!(Lane::of("epitaph_tests (lib)").0, Lane::Live);
        // One of its agents has probes: it would be a peer of another test's agent.
        assert_eq!(Lane::of("pods_source").0, Lane::Live);
        assert_eq!(Lane::of("observer").0, Lane::Servers);
        assert_eq!(Lane::of(DOC).0, Lane::Pure);
        assert_eq!(Lane::of(FOR_PODS).0, Lane::Pure);
    }

    fn script(name: &str, script: &str, directory: &Path) -> Suite {
        Suite {
            name: name.to_owned(),
            program: "sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            directory: directory.to_owned(),
            own_harness: true,
        }
    }

    /// Each live program meets a pure one, and holds a lock until then.
    #[test]
    fn lanes_run_side_by_side_and_live_programs_one_after_the_other() {
        let directory = std::env::temp_dir().join(format!("epitaph-lanes-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let totals = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let fifos = ["first", "second"].map(|fifo| {
            assert!(Command::new("mkfifo").arg(directory.join(fifo)).status().unwrap().success());
            fifo
        });
        let live = fifos.map(|fifo| {
            let meets = format!("mkdir lock && echo met > {fifo} && rmdir lock && {totals}");
            script(&format!("live {fifo}"), &meets, &directory)
        });
        let pure = fifos.map(|fifo| {
            script(
                &format!("pure {fifo}"),
                &format!("grep -q met {fifo} && {totals}"),
                &directory,
            )
        });
        let lanes = vec![(Lane::Live, live.into()), (Lane::Pure, pure.into())];
        let mut tally = Tally::default();
        let (broken, ran) = run(lanes, false, &|_| {}, &mut tally).unwrap();
        assert_eq!((broken, tally.passed, ran.len()), (0, 4, 4));
        let of_lane = |lane| -> Vec<&str> {
            let of_lane = ran.iter().filter(|suite| suite.lane == lane);
            of_lane.map(|suite| &*suite.name).collect()
        };
        assert_eq!(of_lane(Lane::Live), ["live first", "live second"]);
        assert_eq!(of_lane(Lane::Pure), ["pure first", "pure second"]);
        fs::remove_dir_all(&directory).unwrap();
    }

    fn shown(text: &str) -> (bool, Tally) {
        let suite = script("shell", text, &shell::root());
        let output = std::env::temp_dir();
        let ran = play(&suite, Lane::Live, false, &|_| {}, &output).unwrap();
        let mut tally = Tally::default();
        (reported(&ran, &mut tally), tally)
    }

    #[test]
    fn a_suite_that_fails_outside_of_its_tests_or_ends_without_totals_is_broken() {
        let totals = "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored";
        assert!(shown(&format!("echo '{totals}'")).0);
        assert!(!shown(&format!("echo '{totals}'; exit 3")).0);
        assert!(!shown("echo 'test a ... ok'").0);
        let (whole, tally) = shown("echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101");
        assert!(whole);
        assert_eq!((tally.passed, tally.failed), (1, 1));
    }

    #[test]
    fn tests_that_load_no_probes_run_more_at_a_time() {
        let seen = |lane| {
            let suite = script("shell", "echo \"$RUST_TEST_THREADS\"", &shell::root());
            let ran = play(
                &suite,
                lane,
                false,
                &|command| {
                    command.env_remove(THREADS);
                },
                &std::env::temp_dir(),
            );
            ran.unwrap().printed
        };
        assert_eq!(seen(Lane::Live), [""]);
        if shell::env(THREADS).is_none() {
            assert_eq!(seen(Lane::Pure), [threads().to_string()]);
        }
    }

    #[test]
    fn totals_on_standard_error_do_not_count() {
        let (whole, tally) = shown("echo 'test result: ok. 1 passed; 0 failed; 0 ignored' >&2");
        assert!(!whole);
        assert_eq!(tally.passed, 0);
    }
}
