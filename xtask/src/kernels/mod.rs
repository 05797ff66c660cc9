//! The same probes and the same agent on other kernels, each in a machine of its own.
//!
//! QEMU emulates the machines in software (no KVM), so every host gives the same answer. What happens inside one is
//! `epitaph-tests`' program `guest`; here it is packed, booted and counted. Kernels live in the cache, nothing is installed
//! but QEMU, busybox and cpio.

mod cgroups;
mod initramfs;
pub mod packages;
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
};
use crate::{bpf, debian, done, shell};

/// Played where nobody names a kernel, and with them the two newest: the long-term kernels, and the steps at which an argument,
/// a struct or the verifier changed.
const MATRIX: [&str; 6] = ["5.10", "6.1", "6.12", "6.18", "6.19", "7.1"];

/// Emulated 16-byte compare-and-exchange crashes guests now and then; five-level paging makes them slow.
const CPU: &str = "max,la57=off,-cx16";

/// Seconds that one machine may take, by default.
const DEADLINE: u64 = 900;

pub const FLAGS: &str =
    "[--list] [--deadline SECONDS] [--cgroups v1|hybrid|v2] [--story NAME]… [--run COMMAND [--with FILE]…] [KERNEL…]";

/// Boots every kernel asked for and counts what its guest reports; failure where one guest failed.
pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let list = args.contains("--list");
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
    ensure!(
        command.is_some() || extra.is_empty(),
        "--with is for --run: without it the guest has what it needs"
    );
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the machines are x86_64 and run this one's binaries: this is no x86_64"
    );

    let cache = shell::cache().join("kernels");
    let apt = Apt::open(&cache)?;
    let known = apt.series()?;
    if list {
        for kernel in &known {
            let mark = if by_default(kernel, &known) { "*" } else { " " };
            println!("{mark} {:<5} {}", kernel.series, kernel.upstream);
        }
        println!("those with * are booted where none is named");
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&names, &known)?;
    debian::ensure(&["qemu-system-x86", "busybox-static", "cpio"], "booting kernels")?;
    let guest = match command {
        Some(command) => Guest {
            command,
            programs: extra,
        },
        None => Guest::play(&stories, cgroups)?,
    };
    let initramfs = initramfs::build(&cache.join("guest"), &guest.programs, &guest.command, cgroups)?;
    let mut totals = Vec::new();
    for kernel in chosen {
        let image = apt.image(kernel)?;
        totals.push((kernel.upstream.as_str(), boot(kernel, &image, &initramfs, deadline)?));
    }
    Ok(verdict(&totals))
}

/// What runs inside.
struct Guest {
    command: String,
    programs: Vec<PathBuf>,
}

impl Guest {
    /// The agent, the probes' tests, and all that dies in front of them.
    fn play(stories: &[String], cgroups: Layout) -> Result<Guest> {
        bpf::build()?;
        let tests = built(&["test", "--no-run", "--package", "epitaph-tests", "--test", "probes"])?;
        let mut programs = built(&["build", "--package", "epitaph", "--bins", "--package", "epitaph-tests"])?;
        let name = |path: &Path| path.file_name().map(|name| name.display().to_string()).unwrap_or_default();
        let test = tests
            .iter()
            .find(|path| name(path).starts_with("probes-"))
            .context("cargo built no test `probes`")?;
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
fn built(arguments: &[&str]) -> Result<Vec<PathBuf>> {
    let cargo = || {
        let mut cargo = shell::cargo();
        cargo.args(arguments);
        cargo
    };
    shell::run(
        &mut cargo(),
        &format!("building what runs in the guest (cargo {})", arguments.join(" ")),
    )?;
    let messages = shell::read(cargo().args(["--quiet", "--message-format=json"]))?;
    let paths = messages
        .lines()
        .filter_map(|line| line.split_once("\"executable\":\"")?.1.split_once('"'));
    Ok(paths.map(|(path, _)| PathBuf::from(path)).collect())
}

#[derive(Debug, Default)]
struct Total {
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// Emulation sometimes kills a kernel while it patches itself at boot. That says nothing of the agent as long as nothing of ours
/// had run; from then on a death of the machine is never tried again.
const BOOTS: u32 = 3;

fn has_begun(console: &Path) -> bool {
    // Not text: a dying kernel writes what it likes.
    std::fs::read(console).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(initramfs::BEGIN))
}

/// One kernel: its guest's report, shown as it comes and counted. That the machine lives to its end is a check too.
fn boot(kernel: &Package, image: &Path, initramfs: &Path, deadline: Duration) -> Result<Total> {
    println!("\nkernel {}: booting", kernel.upstream);
    let console = image.with_file_name("console.log");
    let mut total = Total::default();
    let mut attempt = || {
        vm::boot(image, initramfs, &console, CPU, deadline, |line| {
            match line.split(' ').next() {
                Some("pass") => total.passed += 1,
                Some("fail") => total.failed += 1,
                Some("skip") => total.skipped += 1,
                _ => {}
            }
            println!("  {line}");
        })
    };
    let mut run = attempt()?;
    for _ in 1..BOOTS {
        if run.trouble.is_none() || has_begun(&console) {
            break;
        }
        println!("  the emulated kernel died before it ran anything of ours; booting again");
        run = attempt()?;
    }
    match (&run.trouble, run.code) {
        (None, Some(0)) => {
            println!("  pass the machine lives to its end");
            total.passed += 1;
        }
        // The guest's own failures are counted; its exit code says nothing new then.
        (None, Some(_)) if total.failed > 0 => {}
        (trouble, code) => {
            total.failed += 1;
            let why = trouble.clone().unwrap_or_else(|| format!("its command ended with {code:?}"));
            println!(
                "  fail the machine lives to its end: {why}; the console ({}) ends:",
                console.display()
            );
            println!("{}", vm::tail(&console, 40));
        }
    }
    println!("kernel {}: {:.0} s", kernel.upstream, run.took.as_secs_f64());
    Ok(total)
}

/// Prints the totals, the closing line last.
fn verdict(totals: &[(&str, Total)]) -> ExitCode {
    println!();
    for (upstream, total) in totals {
        println!(
            "kernel {upstream}: {} passed, {} failed, {} skipped",
            total.passed, total.failed, total.skipped
        );
    }
    let sum = |part: fn(&Total) -> u32| totals.iter().map(|(_, total)| part(total)).sum::<u32>();
    let (passed, failed) = (sum(|total| total.passed), sum(|total| total.failed));
    println!(
        "kernels: {passed} passed, {failed} failed, {} skipped",
        sum(|total| total.skipped)
    );
    if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn choose<'k>(names: &[String], known: &'k [Package]) -> Result<Vec<&'k Package>> {
    if names.is_empty() {
        return Ok(known.iter().filter(|kernel| by_default(kernel, known)).collect());
    }
    let find = |name: &String| {
        let found = known.iter().find(|kernel| kernel.series == *name || kernel.upstream == *name);
        let all = || {
            known
                .iter()
                .map(|kernel| kernel.series.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        found.with_context(|| format!("no kernel `{name}` in Debian's suites; there are {}", all()))
    };
    names.iter().map(find).collect()
}

/// The fixed matrix, and whatever is newest on the day.
fn by_default(kernel: &Package, known: &[Package]) -> bool {
    MATRIX.contains(&kernel.series.as_str()) || known.iter().rev().take(2).any(|newest| newest == kernel)
}
