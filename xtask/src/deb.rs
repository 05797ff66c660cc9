//! The Debian package, by cargo-deb: `agent/Cargo.toml` says what is in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;

use crate::{
    agent::Built,
    bpf, cluster,
    crate_tool::CrateTool,
    debian,
    dist::{self, Arch},
    done, shell, skips,
    skips::Allowed,
    tally::Tally,
    test::{counted, verdict, without_telemetry_settings},
};

const CARGO_DEB: CrateTool = CrateTool {
    name: "cargo-deb",
    version: "3.8.0",
    subcommand: "deb",
};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    done(args)?;
    println!("{}", build(dev)?.display());
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask test deb`: the package's files, then installed, run, removed and purged in an emulated Debian.
pub fn test(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    done(args)?;
    let package = build(dev)?;
    contents(&package)?;
    in_machine(
        "deb",
        &package,
        &cluster::node_tools()?,
        "installing the package in an emulated Debian",
        &[],
    )
}

/// `cargo xtask test systemd`: shutdowns of an emulated Debian with the package, each by another command.
pub fn test_systemd(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    let debian: String = args.opt_value_from_str("--debian")?.unwrap_or_else(|| "13".to_owned());
    let suite = cluster::Suite::numbered(&debian).filter(|suite| *suite != cluster::Suite::Bookworm);
    let suite = suite.with_context(|| format!("no machine of Debian {debian}: 11 and 13"))?;
    let settings = [("EPITAPH_SHUTDOWNS", cases(args)), ("EPITAPH_DEBIAN", debian)];
    let package = build(dev)?;
    let tools = cluster::machine_tools(suite)?;
    in_machine(
        "systemd",
        &package,
        &tools,
        "shutting an emulated Debian down in many ways",
        &settings,
    )
}

/// `cargo xtask test runtimes`: containers of Docker, Podman and CRI-O in an emulated Debian with the package.
pub fn test_runtimes(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    let settings = [("EPITAPH_RUNTIMES", cases(args))];
    let package = build(dev)?;
    let tools = cluster::machine_tools(cluster::Suite::Runtimes)?;
    in_machine(
        "runtimes",
        &package,
        &tools,
        "running containers in an emulated Debian",
        &settings,
    )
}

/// `cargo xtask test oom`: systemd-oomd and earlyoom of an emulated Debian 12, and what the agent of the package reports of their kills.
pub fn test_oom(mut args: Arguments) -> Result<ExitCode> {
    let dev = args.contains("--dev");
    let settings = [("EPITAPH_OOM_DAEMONS", cases(args))];
    let package = build(dev)?;
    let tools = cluster::machine_tools(cluster::Suite::OomDaemons)?;
    in_machine(
        "oom_daemons",
        &package,
        &tools,
        "running out of memory in an emulated Debian",
        &settings,
    )
}

/// The names of cases, as the tests read them.
fn cases(args: Arguments) -> String {
    let all = args.finish().into_iter().map(|case| case.to_string_lossy().into_owned());
    all.collect::<Vec<_>>().join(",")
}

/// Runs `test` of crate `epitaph-tests`, which starts a machine of `tools` with the package.
fn in_machine(test: &str, package: &Path, tools: &Path, what: &str, settings: &[(&str, String)]) -> Result<ExitCode> {
    let allowed = Allowed::read(skips::of_this_machine())?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--package", "epitaph-tests", "--test", test, "--", "--nocapture"]);
    without_telemetry_settings(&mut cargo);
    cargo.env("EPITAPH_DEB", package).env("EPITAPH_CLUSTER_TOOLS", tools);
    cargo.envs(settings.iter().map(|(name, value)| (*name, value)));
    let mut tally = Tally::default();
    let clean = counted(&mut cargo, what, &mut tally)?;
    let broken = u64::from(!clean && tally.failed == 0);
    Ok(verdict(tally, broken, "", &allowed))
}

/// Builds this machine's package in `target/deb`; its path. With `dev` of the unoptimised binary.
pub fn build(dev: bool) -> Result<PathBuf> {
    build_for(Arch::host()?, dev)
}

/// The package of `arch`.
pub fn build_for(arch: Arch, dev: bool) -> Result<PathBuf> {
    // dpkg-shlibdeps finds the packages of the libraries that the binary needs.
    debian::ensure(&["binutils", "dpkg-dev"], "building the Debian package")?;
    let dir = shell::root().join("target/deb");
    fs::create_dir_all(dir.join("man")).with_context(|| format!("creating {}", dir.display()))?;
    bpf::build()?;
    let built = Built::of(
        &["--package", "epitaph", "--bins", "--example", "man"],
        "building epitaph and its manual",
    )?;
    shell::run(
        Command::new(built.bin("man")?).arg(dir.join("man")),
        "writing the manual pages",
    )?;
    let program = dir.join("epitaph");
    if dev {
        dist::strip(arch, &dist::whole(arch, false)?, &program)?;
    } else {
        let dist = dist::build(arch)?;
        fs::copy(&dist.program, &program).with_context(|| format!("copying {}", dist.program.display()))?;
    }
    let package = dir.join(format!("epitaph_{}_{}.deb", dist::version(), arch.name()));
    let mut command = CARGO_DEB.command("two minutes")?;
    command
        // The times of the files: the same input gives the same package.
        .env("SOURCE_DATE_EPOCH", dist::epoch()?.to_string())
        .args(["--package", "epitaph", "--no-build", "--no-strip", "--output"])
        .arg(&package);
    if arch != Arch::host()? {
        command.args(["--target", arch.target()]);
    }
    shell::run_quietly(&mut command, "building the Debian package")?;
    fields(&package, arch)?;
    Ok(package)
}

/// cargo-deb only warns where it finds no dependencies.
fn fields(package: &Path, arch: Arch) -> Result<()> {
    let field = |name: &str| shell::read(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    let (of, depends) = (field("Architecture")?, field("Depends")?);
    ensure!(of == arch.name(), "the package is of architecture {of}, not {}", arch.name());
    // The libraries of a cross compiler name the architecture, too.
    let libc = ["libc6 (>=".to_owned(), format!("libc6:{} (>=", arch.name())];
    ensure!(
        libc.iter().any(|libc| depends.contains(libc)),
        "the package depends on `{depends}`, without a version of libc6"
    );
    Ok(())
}

/// The files that people look for are in the package.
fn contents(package: &Path) -> Result<()> {
    let list = shell::read(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    for file in [
        "./usr/bin/epitaph",
        "./etc/epitaph/epitaph.toml",
        "./lib/systemd/system/epitaph.service",
        "./lib/systemd/system/epitaph-logind.service",
        "./lib/systemd/system/epitaph-logind.socket",
        "./usr/lib/sysusers.d/epitaph.conf",
        "./usr/share/man/man1/epitaph.1.gz",
        "./usr/share/man/man1/epitaph-agent.1.gz",
        "./usr/share/doc/epitaph/copyright",
    ] {
        let found = list
            .lines()
            .any(|line| line.ends_with(file) || line.ends_with(&file.replace("./lib/", "./usr/lib/")));
        ensure!(found, "the package has no {file}:\n{list}");
    }
    Ok(())
}
