//! The same probes and the same agent on other kernels, each in a machine of its own.
//!
//! QEMU emulates the machines in software (no KVM), so every host gives the same answer. What happens inside one is
//! `epitaph-tests`' program `guest`; this module packs and boots the guest, counts the results, and compares the row with
//! `docs/kernels.md`.
//! Kernels are kept in the cache; only QEMU, busybox and cpio are installed.

pub mod btf;
mod cgroups;
mod initramfs;
mod outside;
pub mod packages;
mod page;
mod platform;
mod row;
mod running;
mod table;
mod vm;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;

use self::{
    cgroups::Layout,
    packages::{Apt, Package},
    page::RUNNING,
    platform::Platform,
    row::{Played, Row},
    table::{Measured, Total},
};
use crate::{arm64, bpf, debian, dist::Arch, done, shell, tally::Tally, test};

/// The default kernels, with the two newest and the running one: the long-term kernels, and those at which an argument, a struct or
/// the verifier changed.
const MATRIX: [&str; 6] = ["5.10", "6.1", "6.12", "6.18", "6.19", "7.1"];

/// Seconds that one machine may take, by default.
const DEADLINE: u64 = 900;

pub const FLAGS: &str = "[--list|--btf] [--arm64] [--deadline SECONDS] [--cgroups v1|hybrid|v2] [--story NAME]... [--run COMMAND [--with FILE]...] \
                         [KERNEL... | running]";

/// Boots every kernel asked for and counts what its guest reports; failure where one guest failed, or a row is not as expected.
pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let (list, btf) = (args.contains("--list"), args.contains("--btf"));
    let platform = Platform::of(if args.contains("--arm64") { Arch::Arm64 } else { Arch::Amd64 });
    let deadline = Duration::from_secs(args.opt_value_from_str("--deadline")?.unwrap_or(DEADLINE));
    let cgroups: Layout = args.opt_value_from_str("--cgroups")?.unwrap_or_default();
    let command: Option<String> = args.opt_value_from_str("--run")?;
    let extra: Vec<PathBuf> = args.values_from_str("--with")?;
    let stories: Vec<String> = args.values_from_str("--story")?;
    let mut names: Vec<String> = Vec::new();
    while let Some(name) = args.opt_free_from_str()? {
        names.push(name);
    }
    done(args)?;
    if btf {
        return show_btf();
    }
    ensure!(command.is_some() || extra.is_empty(), "--with needs --run");
    let update = shell::env("UPDATE_EXPECT").is_some();
    ensure!(
        !update || command.is_none() && stories.is_empty(),
        "UPDATE_EXPECT=1 writes whole rows of docs/kernels.md; omit --run and --story"
    );
    let emulated = platform.arch == Arch::Arm64;
    ensure!(
        !emulated || list || !names.is_empty() && names.iter().all(|name| name != RUNNING),
        "--arm64 needs the names of kernels; `cargo xtask kernels --arm64 --list` has them"
    );
    if !list && command.is_none() && !names.is_empty() && names.iter().all(|name| name == RUNNING) {
        let guest = Guest::play(&stories, cgroups, platform)?;
        return table::verdict(vec![running::play(&guest.programs, &stories)?], played(&stories), update);
    }
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the emulated machines are x86_64 and run this machine's binaries, but this machine is not x86_64"
    );

    let cache = shell::cache().join(if emulated { "kernels-arm64" } else { "kernels" });
    let apt = Apt::open(&cache, platform.arch)?;
    let known = apt.series()?;
    if list {
        for kernel in &known {
            let mark = if by_default(kernel, &known) && !emulated { "*" } else { " " };
            println!("{mark} {:<5} {}", kernel.series, kernel.upstream);
        }
        if !emulated {
            println!("* {RUNNING:<5} this machine's own kernel, without emulation");
            println!("* marks the default kernels");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (chosen, running) = choose(&names, &known)?;
    let running = running && command.is_none();
    let whole_matrix = names.is_empty() && stories.is_empty() && command.is_none();
    debian::ensure(&[platform.package, "busybox-static", "cpio"], "booting kernels")?;
    let guest = match command {
        Some(command) => Guest {
            command,
            programs: extra,
        },
        None => Guest::play(&stories, cgroups, platform)?,
    };
    let mut measured = Vec::new();
    if whole_matrix {
        measured.push(types(&cache, &apt, &known)?);
    }
    if !chosen.is_empty() {
        let files = platform.files(&cache, &apt)?;
        let initramfs = initramfs::build(&cache.join("guest"), &guest, cgroups, platform, &files)?;
        for kernel in chosen {
            let (image, modules) = (apt.image(kernel)?, apt.modules(kernel));
            let initramfs = initramfs::with_modules(&initramfs, &modules)?;
            measured.push(boot(kernel, &image, &initramfs, cgroups, platform, deadline)?);
        }
    }
    if running {
        measured.push(running::play(&guest.programs, &stories)?);
    }
    table::verdict(measured, played(&stories), update)
}

fn played(stories: &[String]) -> Played {
    if stories.is_empty() { Played::All } else { Played::Some }
}

/// Takes every kernel's BTF out of its package, for the tests that need no machine; prints where it is.
fn show_btf() -> Result<ExitCode> {
    let extracted = btf::of_every_series()?;
    for (kernel, why) in &extracted.missing {
        shell::log(format_args!("kernel {kernel} is missing: {why}"));
    }
    println!("{}", extracted.dir.display());
    Ok(ExitCode::SUCCESS)
}

/// Tests what the probes find in every kernel's types, kernels without a row included.
fn types(cache: &Path, apt: &Apt, known: &[Package]) -> Result<Measured> {
    btf::unpackers()?;
    let extracted = btf::of(cache, apt, known)?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--package", "epitaph-tests", "--test", "kernel_btf"]);
    test::without_telemetry_settings(&mut cargo);
    cargo
        .env("EPITAPH_KERNEL_BTF", &extracted.dir)
        .env("EPITAPH_KERNEL_BTF_STRICT", "1");
    let mut tally = Tally::default();
    let succeeded = test::counted(&mut cargo, "testing what the probes find in each kernel's types", &mut tally)?;
    for (kernel, why) in &extracted.missing {
        println!("skip the types of {kernel}: {why}");
    }
    Ok(Measured {
        name: "types".to_owned(),
        total: Total {
            passed: u32::try_from(tally.passed)?,
            failed: u32::try_from(tally.failed.max(u64::from(!succeeded)))?,
            skipped: u32::try_from(extracted.missing.len())?,
        },
        row: Row {
            release: "nothing booted".to_owned(),
            ..Row::default()
        },
    })
}

/// What one machine printed.
pub struct Printed {
    /// As in `uname`.
    pub kernel: String,
    pub lines: Vec<String>,
    /// Why the command did not run to its end.
    pub trouble: Option<String>,
}

/// Boots each kernel of `names` with `programs` in `/bin` and runs `command` there; prints each line of the machine as it comes.
///
/// # Errors
/// A kernel is not known or cannot be fetched, or the machine cannot be made.
pub fn print(names: &[String], command: String, programs: Vec<PathBuf>, deadline: Duration) -> Result<Vec<Printed>> {
    let platform = Platform::of(Arch::Amd64);
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the emulated machines are x86_64 and run this machine's binaries, but this machine is not x86_64"
    );
    ensure!(names.iter().all(|name| name != RUNNING), "`{RUNNING}` is not emulated");
    let cache = shell::cache().join("kernels");
    let apt = Apt::open(&cache, platform.arch)?;
    let known = apt.series()?;
    let (chosen, _) = choose(names, &known)?;
    debian::ensure(&[platform.package, "busybox-static", "cpio"], "booting kernels")?;
    let (guest, cgroups) = (Guest { command, programs }, Layout::default());
    let files = platform.files(&cache, &apt)?;
    let initramfs = initramfs::build(&cache.join("guest"), &guest, cgroups, platform, &files)?;
    let mut all = Vec::new();
    for kernel in chosen {
        let image = apt.image(kernel)?;
        let initramfs = initramfs::with_modules(&initramfs, &apt.modules(kernel))?;
        println!("\nkernel {}: booting", kernel.upstream);
        let mut lines = Vec::new();
        let console = image.with_file_name("console.log");
        let run = until_begun(&image, &initramfs, &console, platform, deadline, &mut |line| {
            println!("{line}");
            lines.push(line.to_owned());
        })?;
        println!("kernel {}: {:.0} s", kernel.upstream, run.took.as_secs_f64());
        if run.trouble.is_some() {
            println!("end of the console ({}):\n{}", console.display(), vm::tail(&console, 40));
        }
        all.push(Printed {
            kernel: kernel.upstream.clone(),
            lines,
            trouble: run.trouble,
        });
    }
    Ok(all)
}

/// What runs inside.
struct Guest {
    command: String,
    programs: Vec<PathBuf>,
}

impl Guest {
    /// The agent, the probes' tests, and the stories' processes.
    fn play(stories: &[String], cgroups: Layout, platform: &Platform) -> Result<Guest> {
        bpf::build()?;
        let built = |arguments: &[&str]| built(platform.arch, arguments);
        let tests = built(&["test", "--no-run", "--package", "epitaph-tests", "--test", "probes"])?;
        let mut programs = built(&["build", "--package", "epitaph", "--bins", "--package", "epitaph-tests"])?;
        let name = |path: &Path| path.file_name().map(|name| name.display().to_string()).unwrap_or_default();
        let test = tests
            .iter()
            .find(|path| name(path).starts_with("probes-"))
            .context("cargo reported no test `probes`")?;
        let command = format!(
            "/bin/guest /bin/epitaph {} --tests /bin/{} {}",
            cgroups.arguments(),
            name(test),
            stories.join(" ")
        );
        programs.push(test.clone());
        Ok(Guest { command, programs })
    }
}

/// Runs a cargo build; the programs that it made, wherever the person's target directory is.
fn built(arch: Arch, arguments: &[&str]) -> Result<Vec<PathBuf>> {
    let cargo = || {
        if arch == Arch::host()? {
            let mut cargo = shell::cargo();
            cargo.args(arguments);
            return Ok(cargo);
        }
        let mut cargo = arm64::cargo()?;
        cargo.args(arguments).args(arm64::target());
        anyhow::Ok(cargo)
    };
    shell::run(
        &mut cargo()?,
        &format!("building what runs in the guest (cargo {})", arguments.join(" ")),
    )?;
    let messages = shell::read(cargo()?.args(["--quiet", "--message-format=json"]))?;
    let paths = messages
        .lines()
        .filter_map(|line| line.split_once("\"executable\":\"")?.1.split_once('"'));
    Ok(paths.map(|(path, _)| PathBuf::from(path)).collect())
}

/// Emulation sometimes crashes a kernel that patches itself at boot. A crash before the test began is not the agent's fault, and is
/// retried; a later crash is never retried.
const BOOTS: u32 = 3;

fn has_begun(console: &Path) -> bool {
    // Not always UTF-8: a crashing kernel writes any bytes.
    std::fs::read(console).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(initramfs::BEGIN))
}

/// Boots until the test begins, [`BOOTS`] times at most.
fn until_begun(
    image: &Path,
    initramfs: &Path,
    console: &Path,
    platform: &Platform,
    deadline: Duration,
    line: &mut dyn FnMut(&str),
) -> Result<vm::Run> {
    let mut run = vm::boot(image, initramfs, console, platform, deadline, &mut *line)?;
    for _ in 1..BOOTS {
        if run.trouble.is_none() || has_begun(console) {
            break;
        }
        println!("  the emulated kernel crashed before the test began; booting again");
        run = vm::boot(image, initramfs, console, platform, deadline, &mut *line)?;
    }
    Ok(run)
}

/// One kernel: prints and counts the guest's report line by line. A machine that does not run to the end of the test is a failure.
fn boot(
    kernel: &Package,
    image: &Path,
    initramfs: &Path,
    cgroups: Layout,
    platform: &Platform,
    deadline: Duration,
) -> Result<Measured> {
    println!("\nkernel {}: booting", kernel.upstream);
    let console = image.with_file_name("console.log");
    let (mut total, mut row) = (Total::default(), Row::default());
    let run = until_begun(
        image,
        initramfs,
        &console,
        platform,
        deadline,
        &mut |line| match outside::answer(line) {
            Some(Ok(())) => {}
            Some(Err(error)) => println!("  {error:#}"),
            None => count_line(line, &mut total, &mut row),
        },
    )?;
    match (&run.trouble, run.code) {
        (None, Some(0)) => {
            println!("  pass the machine runs to the end of the test");
            total.passed += 1;
        }
        // The guest's own failures are counted already; its exit code adds nothing.
        (None, Some(_)) if total.failed > 0 => {}
        (trouble, code) => {
            total.failed += 1;
            let why = trouble.clone().unwrap_or_else(|| format!("the command exited with {code:?}"));
            println!(
                "  fail the machine runs to the end of the test: {why}; end of the console ({}):",
                console.display()
            );
            println!("{}", vm::tail(&console, 40));
        }
    }
    println!("kernel {}: {:.0} s", kernel.upstream, run.took.as_secs_f64());
    // The page has cgroup v2's rows; for other layouts the stories themselves hold the expected verdicts.
    row.complete &= cgroups == Layout::V2;
    // Debian's older packages name another release than the version that they hold.
    row.release.clone_from(&kernel.upstream);
    Ok(Measured {
        name: page::name(&kernel.series, platform.arch),
        total,
        row,
    })
}

/// A line of a guest's report.
fn count_line(line: &str, total: &mut Total, row: &mut Row) {
    match line.split_once(' ') {
        Some(("row", cells)) => return row.read_line(cells),
        Some(("pass", _)) => total.passed += 1,
        Some(("fail", _)) => total.failed += 1,
        Some(("skip", _)) => total.skipped += 1,
        _ => {}
    }
    println!("  {line}");
}

/// Kernels to boot, and whether the running one is played too.
fn choose<'k>(names: &[String], known: &'k [Package]) -> Result<(Vec<&'k Package>, bool)> {
    if names.is_empty() {
        return Ok((known.iter().filter(|kernel| by_default(kernel, known)).collect(), true));
    }
    let find = |name: &'_ String| {
        // From the newest on: a series' name means its newest.
        let found = known
            .iter()
            .rfind(|kernel| kernel.series == *name || kernel.upstream == *name);
        let all = || {
            known
                .iter()
                .map(|kernel| kernel.series.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        found.with_context(|| format!("no kernel `{name}` in Debian's suites; the kernels are {}", all()))
    };
    let (own, others): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| *name == RUNNING);
    Ok((others.into_iter().map(find).collect::<Result<_>>()?, !own.is_empty()))
}

/// The fixed matrix, and the newest kernel of the day.
fn by_default(kernel: &Package, known: &[Package]) -> bool {
    let of_series = known.iter().rfind(|newest| newest.series == kernel.series);
    let named = MATRIX.contains(&kernel.series.as_str()) && of_series == Some(kernel);
    named || known.iter().rev().take(2).any(|newest| newest == kernel)
}
