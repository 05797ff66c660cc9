//! A real Jaeger, with the configuration of deploy/examples/jaeger.yaml, for `--otlp` and for the tests.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{done, go, http, shell};

const PROGRAM: &str = "github.com/jaegertracing/jaeger/cmd/jaeger";
const EXAMPLE: &str = "deploy/examples/jaeger.yaml";
pub const HOST: &str = "127.0.0.1";
pub const QUERY: u16 = 16686;
pub const OTLP_GRPC: u16 = 4317;
const OTLP_HTTP: u16 = 4318;
const HEALTH: u16 = 13133;
const QUERY_GRPC: u16 = 16685;
/// The example's configuration has the listeners open to the network, unless a variable has another address.
const LISTENERS: [(&str, u16); 4] = [
    ("QUERY", QUERY),
    ("OTLP_GRPC", OTLP_GRPC),
    ("OTLP_HTTP", OTLP_HTTP),
    ("HEALTH", HEALTH),
];

pub fn task(mut args: Arguments) -> Result<ExitCode> {
    let print_path = args.contains("--print-path");
    let ui: Option<PathBuf> = args.opt_value_from_os_str("--ui", |dir| Ok::<_, std::convert::Infallible>(dir.into()))?;
    done(args)?;
    let program = path()?;
    if print_path {
        println!("{}", program.display());
        return Ok(ExitCode::SUCCESS);
    }
    serve(&program, ui.as_deref())
}

/// Where the program is, built if need be.
pub fn path() -> Result<PathBuf> {
    go::build(
        &shell::root().join("xtask/jaeger"),
        PROGRAM,
        "about five minutes on two cores",
    )
}

fn serve(program: &Path, ui: Option<&Path>) -> Result<ExitCode> {
    let mut child = start(program, ui)?;
    let query = format!("http://{HOST}:{QUERY}");
    println!("Jaeger is ready, and keeps traces in memory until Ctrl-C.");
    println!("  send to it:   --otlp http://{HOST}:{OTLP_GRPC}   (gRPC; http/protobuf: http://{HOST}:{OTLP_HTTP})");
    println!("  services:     {query}/api/services");
    println!("  traces:       {query}/api/traces?service=NAME");
    match ui {
        Some(_) => println!("  open:         {query}"),
        None => println!(
            "  open:         the two addresses above show JSON in any browser. The Go module does not include Jaeger's own \
             pages: `cargo xtask jaeger --ui DIR` serves a jaeger-ui that was built elsewhere, at {query}"
        ),
    }
    let status = child.wait().context("waiting for Jaeger")?;
    Ok(shell::exit_code(status))
}

/// A Jaeger that answers, with the pages of `ui`.
pub fn start(program: &Path, ui: Option<&Path>) -> Result<Child> {
    free_ports()?;
    let log = shell::root().join("target/xtask/jaeger.log");
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;

    let settings = settings(&log.with_file_name("jaeger"))?;
    let mut command = tied(program);
    command
        .arg("--config")
        .arg(settings.join("config.yaml"))
        .arg("--set=service.telemetry.metrics.level=none")
        .arg(format!("--set=extensions.jaeger_query.grpc.endpoint={HOST}:{QUERY_GRPC}"))
        .env("UI", settings.join("ui.json"))
        .envs(LISTENERS.map(|(name, port)| (name, format!("{HOST}:{port}"))));
    if let Some(dir) = ui {
        let index = dir.join("index.html");
        if !index.is_file() && !dir.join("index.html.gz").is_file() {
            bail!(
                "--ui {}: no index.html; the directory must hold the built pages of jaeger-ui",
                dir.display()
            );
        }
        command.arg(format!(
            "--set=extensions.jaeger_query.ui.assets_path={:?}",
            dir.display().to_string()
        ));
    }
    shell::log(format_args!("starting Jaeger, its log in {}", log.display()));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("starting Jaeger")?;
    ready(&mut child, &log)?;
    Ok(child)
}

/// The example's files in `dir`. Jaeger watches the directory, and logs each change in it: its own log must be elsewhere.
fn settings(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let example = shell::root().join(EXAMPLE);
    let text = fs::read_to_string(&example).with_context(|| format!("reading {}", example.display()))?;
    for name in ["config.yaml", "ui.json"] {
        let block = literal(&text, name).with_context(|| format!("{EXAMPLE} has no {name}"))?;
        let file = dir.join(name);
        fs::write(&file, block).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(dir.to_owned())
}

/// A server that ends with this task, however that ends, where util-linux can see to it.
pub fn tied(program: &Path) -> Command {
    let Some(setpriv) = shell::which("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

/// A literal block of a YAML file: what stands below `key: |`, without its indentation.
fn literal(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| line.trim() != format!("{key}: |"));
    let indent = lines.next()?.find(key)? + 2;
    let inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= indent;
    let block = lines.take_while(inside).map(|line| line.get(indent..).unwrap_or_default());
    Some(block.collect::<Vec<_>>().join("\n") + "\n")
}

fn free_ports() -> Result<()> {
    let ports = LISTENERS.iter().map(|(_, port)| *port).chain([QUERY_GRPC]);
    let taken = ports.filter(|port| TcpListener::bind((HOST, *port)).is_err());
    let taken: Vec<String> = taken.map(|port| port.to_string()).collect();
    if !taken.is_empty() {
        bail!(
            "port {} of {HOST} is in use, probably by another Jaeger or collector: stop that process, or send to it",
            taken.join(", ")
        );
    }
    Ok(())
}

fn ready(child: &mut Child, log: &Path) -> Result<()> {
    const TO_START: Duration = Duration::from_secs(60);
    let ready = shell::found_within(TO_START, || {
        if let Some(status) = child.try_wait().context("waiting for Jaeger")? {
            let text = fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(5).collect();
            bail!(
                "Jaeger exited at once ({status}): {}",
                tail.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
        let answers = |port, path| http::get(port, path).is_ok_and(|(status, _)| status == 200);
        Ok((answers(HEALTH, "/status") && answers(QUERY, "/api/services")).then_some(()))
    })?;
    if ready.is_none() {
        let _ = child.kill();
        let _ = child.wait();
        bail!("Jaeger was not ready within {} s; see {}", TO_START.as_secs(), log.display());
    }
    Ok(())
}
