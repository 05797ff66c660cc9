//! The demo: builds the agent, and hands it to the stories of crate `epitaph-tests`, which play, judge and compare.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent::Built, bpf, shell};

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let otlp: Option<String> = args.opt_value_from_str("--otlp")?;
    let keep = args.contains("--keep");
    let stories = args.finish();
    if let Some(flag) = stories.iter().find(|name| name.as_encoded_bytes().starts_with(b"-")) {
        bail!(
            "unexpected flag `{}`; `cargo xtask` lists the tasks and their flags",
            flag.to_string_lossy()
        );
    }
    if !shell::is_root() {
        bail!("the demo needs root: it creates cgroups and pid namespaces and loads probes");
    }
    bpf::build()?;
    // Unoptimised: minutes sooner on two cores. The demo looks for the players' binaries in its own directory.
    let selection = ["--package", "epitaph", "--package", "epitaph-tests", "--bins"];
    let built = Built::of(&selection, "building the agent and the players")?;
    let (epitaph, demo) = (built.bin("epitaph")?, built.bin("demo")?);
    shell::log("playing the stories");
    let mut command = Command::new(&demo);
    command
        .arg(&epitaph)
        .args(keep.then_some("--keep"))
        .args(&stories)
        .env("PATH", shell::path());
    if let Some(url) = otlp {
        command.args(["--otlp", &url]);
    }
    let status = command.status().with_context(|| format!("running {}", demo.display()))?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, signal) => bail!("the demo was terminated by signal {}", signal.unwrap_or(0)),
    })
}
