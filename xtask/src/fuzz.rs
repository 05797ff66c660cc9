//! The fuzz targets of crate `epitaph` (`agent/src/fuzz.rs`), for longer than the tests of every day.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{bpf, done, shell, test};

/// Names of the tests.
const TARGETS: [&str; 14] = [
    "kernel_record",
    "recording",
    "cgroup_path",
    "replay",
    "procfs",
    "kubernetes_object",
    "configuration",
    "kernel_types",
    "container_file",
    "finished_report",
    "journal_segment",
    "kubelet_configuration",
    "logind_conf",
    "logind_frame",
];

/// Without `--time`: an hour of CPU for all targets.
const SECONDS: u64 = 3_600;

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let seconds: Option<u64> = args.opt_value_from_str("--time").context("--time: seconds of CPU")?;
    let target: Option<String> = args.opt_free_from_str()?;
    done(args)?;
    if let Some(unknown) = target.as_deref().filter(|target| !TARGETS.contains(target)) {
        bail!("no fuzz target `{unknown}`; the targets are {}", TARGETS.join(", "));
    }
    let count = if target.is_some() { 1 } else { TARGETS.len() as u64 };
    let each = (seconds.unwrap_or(SECONDS) / count).max(1);
    bpf::build()?;
    let mut cargo = shell::cargo();
    test::without_telemetry_settings(&mut cargo);
    cargo.env("EPITAPH_FUZZ_SECONDS", each.to_string());
    cargo.args(["test", "--package", "epitaph", "--lib", "fuzz::"]);
    cargo.args(["--", "--nocapture"]);
    if let Some(target) = &target {
        // The test's path differs by target; every other target is left out.
        for other in TARGETS.iter().filter(|other| *other != target) {
            cargo.args(["--skip", &format!("fuzz::{other}")]);
        }
    }
    let what = target.as_deref().unwrap_or("all targets");
    shell::run(&mut cargo, &format!("fuzzing {what}, {each} s of CPU each"))?;
    Ok(ExitCode::SUCCESS)
}
