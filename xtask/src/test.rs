//! All that CI checks, and its totals as the last line.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use pico_args::Arguments;

use crate::{
    agent::Built,
    bpf, cluster, deb, debian, deny, dist, done, faults, fresh, go,
    go::NoGo,
    image, in_a_row, jaeger, journal, kernels, monitoring, platforms, programs, random, release, shell, skips,
    skips::Allowed,
    suites::{self, Ran, Suite},
    tally::Tally,
    times::{self, Steps, Stopwatch},
};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let (unprivileged, times) = (args.contains("--unprivileged"), args.contains("--times"));
    let only: Option<String> = args.opt_value_from_str("--only")?;
    let tests: Option<String> = args.opt_value_from_str("--tests")?;
    let repeat: Option<usize> = args.opt_value_from_str("--repeat")?;
    let loops: Option<usize> = args.opt_value_from_str("--loops")?;
    match args.subcommand().context("reading what to test")?.as_deref() {
        None => {}
        Some("cluster") => return cluster::test(args),
        Some("oldest") => return cluster::test_oldest(args),
        Some("kernels") => return kernels::task(args),
        Some("fresh") => return fresh::task(args),
        Some("image") => return image::test(args),
        Some("release") => return release::test(args),
        Some("platforms") => return platforms::test(args),
        Some("deb") => return deb::test(args),
        Some("systemd") => return deb::test_systemd(args),
        Some("runtimes") => return deb::test_runtimes(args),
        Some("oom") => return deb::test_oom(args),
        Some("programs") => return programs::task(args),
        Some("journal") => return journal::task(args),
        Some("random") => return random::task(args),
        Some("faults") => return faults::task(args),
        Some(other) => bail!("no test tier `{other}`; `cargo xtask` lists the tasks"),
    }
    done(args)?;
    if !shell::is_root() && !unprivileged {
        bail!("the probes and the stories need root; run as root, or with --unprivileged to skip them (skips are counted)");
    }
    if tests.is_some() && only.is_none() {
        bail!("--tests needs --only: of which programs?");
    }
    let (begin, mut steps) = (Stopwatch::start(), Steps::default());
    if repeat.is_some() || loops.is_some() {
        ensure!(tests.is_none(), "--repeat runs whole programs: not with --tests");
        let (ready, suites) = Ready::set_up(only.as_deref(), &mut steps)?;
        let run = || {
            if only.is_none() {
                checks(&mut Steps::default())?;
            }
            let (counts, _) = ready.run(suites.clone(), only.as_deref(), false)?;
            Ok(counts)
        };
        return in_a_row::runs(only.as_deref(), repeat.unwrap_or(1), loops.unwrap_or(0), run);
    }
    if only.is_none() {
        checks(&mut steps)?;
    }
    let (ready, mut suites) = Ready::set_up(only.as_deref(), &mut steps)?;
    let chosen: Vec<&str> = tests.iter().flat_map(|tests| tests.split(',')).collect();
    suites.iter_mut().for_each(|suite| suite.choose(&chosen));
    let (counts, ran) = ready.run(suites, only.as_deref(), times)?;
    if times {
        println!("{}", times::table(&steps, &ran, begin.elapsed()));
    }
    Ok(counts.verdict())
}

/// Of the sources.
fn checks(steps: &mut Steps) -> Result<()> {
    steps.step("format", || {
        components()?;
        shell::run(shell::cargo().args(["fmt", "--all", "--check"]), "checking the format")
    })?;
    steps.step("probes", bpf::build)?;
    steps.step("clippy", clippy)?;
    steps.step("licences and known vulnerabilities", deny::if_built)
}

/// What the tests need, built.
struct Ready {
    /// What the tests read from the environment; None: not set.
    variables: Vec<(&'static str, Option<PathBuf>)>,
    /// Where tests write down their skips.
    recorded: PathBuf,
    /// Known before the tests.
    known_skips: String,
    allowed: Allowed,
}

impl Ready {
    /// `only`: as for [`suites::lanes`].
    fn set_up(only: Option<&str>, steps: &mut Steps) -> Result<(Ready, Vec<Suite>)> {
        let mut holding = steps.step("packages of Debian, and what this machine lacks", packages);
        if !shell::is_root() {
            holding.insert("unprivileged".into());
        }
        steps.step("probes", bpf::build)?;
        let jaeger = steps.step("Jaeger", || unless_no_go(jaeger::path(), "no-jaeger", &mut holding))?;
        let cluster = steps.step("Kubernetes", || {
            unless_no_go(cluster::api_tools(), "no-kubernetes", &mut holding)
        })?;
        let monitoring = steps.step("Prometheus and collector", || {
            unless_no_go(monitoring::programs(), "no-monitoring", &mut holding)
        })?;
        let traffic = steps.step("servers of the traffic tests", || {
            unless_no_go(traffic(), "no-traffic", &mut holding)
        })?;
        let kernels = steps.step("types of Debian's kernels", kernels::btf::of_every_series)?;
        if !kernels.missing.is_empty() {
            holding.insert("no-kernel-packages".into());
        }
        let named: Option<Vec<&str>> = only
            .filter(|only| *only != suites::TIMING)
            .map(|only| only.split(',').collect());
        let (mut suites, built) = steps.step("workspace and tests: build", || match &named {
            Some(named) => suites::named(named),
            None => built().map(|(suites, built)| (suites, Some(built))),
        })?;
        // Most of the crates once more: not for one who names other programs.
        if only.is_none_or(|only| only.split(',').any(|name| name == suites::FOR_PODS)) {
            suites.extend(steps.step("tests of the program for pods: build", suites::for_pods)?);
        }
        let program = |name| built.as_ref().map(|built| built.bin(name)).transpose();
        if let Some(demo) = program("demo")?
            && shell::is_root()
            && !steps.step("programs of Debian", || programs::of_everyday(&demo))
        {
            holding.insert("no-programs".into());
        }

        let recorded = shell::root().join("target/xtask/skips.txt");
        fs::create_dir_all(shell::root().join("target/xtask")).context("creating target/xtask")?;
        let mut variables = vec![
            ("EPITAPH_BIN", program("epitaph")?),
            ("EPITAPH_SKIPS", Some(recorded.clone())),
            ("EPITAPH_KERNEL_BTF", Some(kernels.dir.clone())),
            ("EPITAPH_JAEGER", jaeger),
            ("EPITAPH_CLUSTER_TOOLS", cluster),
            ("EPITAPH_TRAFFIC", traffic),
        ];
        variables.extend(monitoring.into_iter().flatten().map(|(name, path)| (name, Some(path))));
        let ready = Ready {
            variables,
            recorded,
            known_skips: kernels.skips(),
            allowed: Allowed::read(holding)?,
        };
        Ok((ready, suites))
    }

    /// Runs the suites once; prints what they print, the skips and the closing line.
    fn run(&self, suites: Vec<Suite>, only: Option<&str>, times: bool) -> Result<(Counts, Vec<Ran>)> {
        let (recorded, path) = (&self.recorded, self.recorded.display());
        fs::write(recorded, &self.known_skips).with_context(|| format!("beginning {path}"))?;
        let suites = suites::lanes(suites, only)?;
        shell::log("testing the workspace");
        let mut tally = Tally::default();
        let (broken, ran) = suites::run(suites, times, &|command| self.prepare(command), &mut tally)?;
        let text = fs::read_to_string(recorded).with_context(|| format!("reading {path}"))?;
        Ok((settled(tally, broken, &text, &self.allowed), ran))
    }

    fn prepare(&self, command: &mut Command) {
        shell::as_called_by_a_person(command);
        without_telemetry_settings(command);
        command.envs(self.variables.iter().filter_map(|(name, path)| Some((name, path.as_ref()?))));
    }
}

/// Installs packages where that is possible; the conditions of skips that hold on this machine.
fn packages() -> BTreeSet<String> {
    debian::ensure_optional("ip", "iproute2", "the tests that need a network namespace");
    debian::ensure_optional(
        "mke2fs",
        "e2fsprogs",
        "the tests with a disk that fails or is cut from its power",
    );
    debian::ensure_optional("dbus-daemon", "dbus-daemon", "the tests of the system bus");
    let mut holding = skips::of_this_machine();
    if shell::which("dbus-daemon").is_none() {
        holding.insert("no-dbus".into());
    }
    holding
}

/// What became of all tests.
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    /// Of the tests that failed; a program that failed outside of its tests has none.
    pub failed_names: Vec<String>,
}

impl Counts {
    pub fn are_well(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    fn verdict(&self) -> ExitCode {
        if self.are_well() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

pub fn verdict(tally: Tally, broken: u64, recorded: &str, allowed: &Allowed) -> ExitCode {
    settled(tally, broken, recorded, allowed).verdict()
}

/// Prints every skip and the closing line. A skip that is not allowed here is a failure.
fn settled(mut tally: Tally, broken: u64, recorded: &str, allowed: &Allowed) -> Counts {
    println!();
    let (mut skipped, mut refused) = (0, 0);
    for skip in tally.settle(recorded) {
        let permission = match allowed.condition(&skip.name) {
            Some(condition) => format!("allowed: {condition}"),
            None => "NOT ALLOWED by tests/allowed-skips.txt on this machine".to_owned(),
        };
        println!("SKIP {}: {} ({permission})", skip.name, skip.reason);
        if permission.starts_with("allowed") {
            skipped += 1
        } else {
            refused += 1
        }
    }
    let failed = tally.failed + broken + refused;
    println!("{} passed, {failed} failed, {skipped} skipped", tally.passed);
    Counts {
        passed: tally.passed,
        failed,
        failed_names: tally.failed_names,
    }
}

/// rustup's minimal profile lacks both.
fn components() -> Result<()> {
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !shell::succeeds(shell::cargo().args([subcommand, "--version"])) {
            let mut rustup = Command::new("rustup");
            rustup.args(["component", "add", component]).env("PATH", shell::path());
            shell::run(&mut rustup, &format!("adding {component} to this toolchain"))?;
        }
    }
    Ok(())
}

/// All suites, and the programs that were built with them.
fn built() -> Result<(Vec<Suite>, Built)> {
    let (mut suites, built) = suites::of(&[], "building the workspace and its tests")?;
    let shared = ["--package", "epitaph-ebpf", "--lib"];
    suites.extend(suites::of(&shared, "building the tests of the records shared with the kernel")?.0);
    suites.push(suites::documentation());
    Ok((suites, built))
}

/// Servers of many protocols, and clients that log what they lose.
fn traffic() -> Result<PathBuf> {
    go::build(&shell::root().join("tests/traffic-go"), "epitaph/traffic", "half a minute")
}

fn clippy() -> Result<()> {
    const DENY: [&str; 3] = ["--", "-D", "warnings"];
    shell::run(
        shell::cargo().args(["clippy", "--all-targets"]).args(DENY),
        "clippy on the workspace",
    )?;
    // Targets with `test = false`, which `--all-targets` leaves out: the tests of the slow tiers.
    shell::run(
        shell::cargo().args(["clippy", "--workspace", "--test", "*"]).args(DENY),
        "clippy on the tests of the other tiers",
    )?;
    shell::run(
        shell::cargo()
            .args(["clippy", "--package", "epitaph", "--all-targets"])
            .args(dist::FOR_PODS)
            .args(DENY),
        "clippy on the program for pods",
    )?;
    let mut shared = shell::cargo();
    shared
        .args(["clippy", "--package", "epitaph-ebpf", "--lib", "--tests"])
        .args(DENY);
    shell::run(&mut shared, "clippy on the records shared with the kernel")?;
    bpf::clippy()
}

/// Without Go, and without a package of Go, the tests of Go programs are skipped; a failed build is an error.
fn unless_no_go<T>(built: Result<T>, condition: &str, holding: &mut BTreeSet<String>) -> Result<Option<T>> {
    match built {
        Ok(built) => Ok(Some(built)),
        Err(error) if error.is::<NoGo>() => {
            shell::log(format_args!("{condition}: {error:#}"));
            holding.insert(condition.into());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The person's own exporter settings are not the tests'.
pub fn without_telemetry_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OTEL_") || text.starts_with("EPITAPH_") {
            command.env_remove(&name);
        }
    }
}

/// Runs `cargo` with its standard output in view and counted; whether it succeeded.
pub fn counted(cargo: &mut Command, what: &str, tally: &mut Tally) -> Result<bool> {
    shell::log(what);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| what.to_owned())?;
    let mut output = BufReader::new(child.stdout.take().context("the pipe that was just asked for")?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if output
            .read_until(b'\n', &mut line)
            .with_context(|| format!("{what}: reading its output"))?
            == 0
        {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\n');
        println!("{text}");
        tally.line(text);
    }
    Ok(child.wait().with_context(|| what.to_owned())?.success())
}
