//! A real Jaeger, for `--otlp` and for the tests.

use std::{
    fs::{self, File},
    net::{TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{done, go, http, shell};

const PROGRAM: &str = "github.com/jaegertracing/jaeger/cmd/all-in-one";
pub const HOST: &str = "127.0.0.1";
const ADMIN: u16 = 14269;
pub const QUERY: u16 = 16686;
pub const OTLP_GRPC: u16 = 4317;
const OTLP_HTTP: u16 = 4318;
const COLLECTOR: u16 = 14250;
/// What docs/kubernetes.md advises.
const UI: &str = r#"{"topTagPrefixes": ["epitaph.sentence", "epitaph.remedy", "epitaph.verdict"]}"#;
/// Every listener that the program has: left alone, most of them would be open to the network.
const TCP: &[(&str, u16)] = &[
    ("--admin.http.host-port", ADMIN),
    ("--query.http-server.host-port", QUERY),
    ("--query.grpc-server.host-port", 16685),
    ("--collector.otlp.grpc.host-port", OTLP_GRPC),
    ("--collector.otlp.http.host-port", OTLP_HTTP),
    ("--collector.grpc-server.host-port", COLLECTOR),
    ("--collector.http-server.host-port", 14268),
    ("--http-server.host-port", 5778),
];
const UDP: &[(&str, u16)] = &[
    ("--processor.jaeger-binary.server-host-port", 6832),
    ("--processor.jaeger-compact.server-host-port", 6831),
    ("--processor.zipkin-compact.server-host-port", 5775),
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
    go::build(&shell::root().join("xtask/jaeger"), PROGRAM, "two to three minutes")
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
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A Jaeger that answers, with the pages of `ui`.
pub fn start(program: &Path, ui: Option<&Path>) -> Result<Child> {
    free_ports()?;
    let log = shell::root().join("target/xtask/jaeger.log");
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;

    let mut command = tied(program);
    for (flag, port) in TCP.iter().chain(UDP) {
        command.arg(format!("{flag}={HOST}:{port}"));
    }
    command.arg(format!("--reporter.grpc.host-port={HOST}:{COLLECTOR}"));
    if let Some(dir) = ui {
        let index = dir.join("index.html");
        if !index.is_file() && !dir.join("index.html.gz").is_file() {
            bail!(
                "--ui {}: no index.html; the directory must hold the built pages of jaeger-ui",
                dir.display()
            );
        }
        // Jaeger watches the directory, and logs each change of any file in it: its own log must be elsewhere.
        let settings = log.with_file_name("jaeger-ui");
        fs::create_dir_all(&settings).with_context(|| format!("creating {}", settings.display()))?;
        let settings = settings.join("settings.json");
        fs::write(&settings, UI).with_context(|| format!("writing {}", settings.display()))?;
        command
            .arg("--query.static-files")
            .arg(dir)
            .arg("--query.ui-config")
            .arg(settings);
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

/// A server that ends with this task, however that ends, where util-linux can see to it.
pub fn tied(program: &Path) -> Command {
    let Some(setpriv) = shell::which("setpriv") else {
        return Command::new(program);
    };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

fn free_ports() -> Result<()> {
    let tcp = TCP.iter().filter(|(_, port)| TcpListener::bind((HOST, *port)).is_err());
    let udp = UDP.iter().filter(|(_, port)| UdpSocket::bind((HOST, *port)).is_err());
    let taken: Vec<String> = tcp.chain(udp).map(|(_, port)| port.to_string()).collect();
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
        Ok((answers(ADMIN, "/") && answers(QUERY, "/api/services")).then_some(()))
    })?;
    if ready.is_none() {
        let _ = child.kill();
        let _ = child.wait();
        bail!("Jaeger was not ready within {} s; see {}", TO_START.as_secs(), log.display());
    }
    Ok(())
}
