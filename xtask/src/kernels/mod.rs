//! `cargo xtask kernels`: the same probes and the same agent on other kernels, each in a machine of its own.
//!
//! QEMU emulates the machines in software (no KVM), so every host gives the same answer. Nothing is installed but
//! QEMU, busybox and cpio; kernels live in the cache.

mod guest;
mod initramfs;
mod packages;
mod vm;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use packages::{Apt, Package};

/// Played where nobody names a kernel: the long-term kernels, and each step at which an argument or a struct moved.
const MATRIX: [&str; 6] = ["5.10", "6.1", "6.12", "6.18", "6.19", "7.1"];

/// Emulated 16-byte compare-and-exchange crashes guests now and then; five-level paging makes them slow.
const CPU: &str = "max,la57=off,-cx16";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Series to boot, such as 6.12 (default: the long-term ones and the newest)
    names: Vec<String>,
    /// Show the kernels that there are, boot none
    #[arg(long)]
    list: bool,
    /// Seconds that one machine may take
    #[arg(long, default_value_t = 900)]
    deadline: u64,
    /// What this program does inside a guest
    #[arg(long, hide = true)]
    in_guest: Option<guest::Role>,
}

/// Boots every kernel asked for and judges what its guest reports; failure where one guest failed.
///
/// # Errors
/// The host lacks something: apt's archive, a program, the agent's binary. A kernel that fails is no error here.
pub fn kernels(args: Args) -> Result<ExitCode> {
    if let Some(role) = args.in_guest {
        return guest::run(role);
    }
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the guests are x86_64 and run this machine's own binaries: this is no x86_64"
    );
    let cache = cache()?;
    let apt = Apt::open(&cache)?;
    let known = apt.series()?;
    if args.list {
        for kernel in &known {
            let mark = if default(kernel, &known) { "*" } else { " " };
            println!("{mark} {:<6} {}", kernel.series, kernel.upstream);
        }
        println!("* without names, these");
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&args.names, &known)?;
    tools()?;
    let programs = guest::programs()?;
    let own = std::env::current_exe().context("finding xtask's own binary")?;
    let command = format!(
        "/bin/{} kernels --in-guest play",
        own.file_name().context("xtask has no name")?.display()
    );
    println!("kernels: packing the guest");
    let initramfs = initramfs::build(&cache.join("guest"), &programs, &command)?;
    let mut totals = Vec::new();
    for kernel in chosen {
        let image = apt.image(kernel)?;
        totals.push((
            kernel.upstream.as_str(),
            boot(kernel, &image, &initramfs, Duration::from_secs(args.deadline))?,
        ));
    }
    println!();
    for (upstream, total) in &totals {
        println!(
            "kernel {upstream}: {} passed, {} failed, {} skipped",
            total.passed, total.failed, total.skipped
        );
    }
    let sum = |part: fn(&Total) -> u32| totals.iter().map(|(_, total)| part(total)).sum::<u32>();
    let failed = sum(|total| total.failed);
    println!(
        "kernels: {} passed, {failed} failed, {} skipped",
        sum(|total| total.passed),
        sum(|total| total.skipped)
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Debug, Default)]
struct Total {
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// One kernel: its guest's report, printed as it comes and counted. The boot itself counts as a check.
fn boot(kernel: &Package, image: &Path, initramfs: &Path, deadline: Duration) -> Result<Total> {
    println!("\nkernel {}: booting", kernel.upstream);
    let console = image.with_file_name("console.log");
    let mut total = Total::default();
    let run = vm::boot(image, initramfs, &console, CPU, deadline, |line| {
        match line.split_once(' ').map(|(word, _)| word) {
            Some("pass") => total.passed += 1,
            Some("fail") => total.failed += 1,
            Some("skip") => total.skipped += 1,
            _ => {}
        }
        println!("  {line}");
    })?;
    match (&run.trouble, run.code) {
        (None, Some(0)) if total.passed > 0 => total.passed += 1,
        (trouble, code) => {
            total.failed += 1;
            let why = trouble
                .clone()
                .unwrap_or_else(|| format!("the guest's command ended with {code:?}"));
            println!(
                "  fail the machine runs to its end: {why}; the console's last lines ({}):",
                console.display()
            );
            println!("{}", vm::tail(&console, 40));
        }
    }
    println!("kernel {}: {:.0} s", kernel.upstream, run.took.as_secs_f64());
    Ok(total)
}

fn choose<'k>(names: &[String], known: &'k [Package]) -> Result<Vec<&'k Package>> {
    if names.is_empty() {
        return Ok(known.iter().filter(|kernel| default(kernel, known)).collect());
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
        found.with_context(|| format!("no kernel {name} in the archive's suites: there are {}", all()))
    };
    names.iter().map(find).collect()
}

/// The fixed matrix, and whatever is newest on the day.
fn default(kernel: &Package, known: &[Package]) -> bool {
    MATRIX.contains(&kernel.series.as_str()) || known.iter().rev().take(2).any(|newest| newest == kernel)
}

/// Installs what is missing and can be: three small Debian packages.
fn tools() -> Result<()> {
    let wanted = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("cpio", "cpio"),
    ];
    let missing: Vec<&str> = wanted
        .into_iter()
        .filter(|(program, _)| !["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists()))
        .map(|(_, package)| package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("kernels: installing {}", missing.join(", "));
    let done = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing)
        .status()?;
    if !done.success() {
        bail!(
            "apt-get could not install {}: run apt-get update, and this as root",
            missing.join(", ")
        );
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a task for people: where their caches are is the environment's to say"
)]
fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    Ok(base.join("epitaph/kernels"))
}
