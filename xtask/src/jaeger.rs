//! A real Jaeger, for `--otlp` and for the tests.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use pico_args::Arguments;

use crate::{agent, debian, done, go, shell};

const PROGRAM: &str = "github.com/jaegertracing/jaeger/cmd/all-in-one";
const HOST: &str = "127.0.0.1";
const ADMIN: u16 = 14269;
const QUERY: u16 = 16686;
const OTLP_GRPC: u16 = 4317;
const OTLP_HTTP: u16 = 4318;
const COLLECTOR: u16 = 14250;
/// What docs/kubernetes.md advises.
const UI: &str = r#"{"topTagPrefixes": ["epitaph.sentence", "epitaph.remedy", "epitaph.verdict"]}"#;
/// A real server under load, as the demo played it.
const PICTURED: &str = "tests/corpus/stories/load-close-and-drain.epitaph";
/// Pixels of the picture: the root span's attributes, and the other spans below.
const WINDOW: &str = "1280,1030";
/// In Jaeger's own pages it opens the root span with its attributes, as a person does with two clicks.
const OPENS: &str = include_str!("jaeger/picture.html");
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
fn start(program: &Path, ui: Option<&Path>) -> Result<Child> {
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

/// `cargo xtask picture`: docs/images/jaeger.png, the trace of a recorded termination of a real server, in Jaeger's own pages.
pub fn picture(mut args: Arguments) -> Result<ExitCode> {
    let ui: PathBuf = args
        .value_from_os_str("--ui", |dir| Ok::<_, std::convert::Infallible>(dir.into()))
        .context("--ui DIR names the built pages of jaeger-ui: packages/jaeger-ui/build after `yarn install` and `yarn build` in its repository, of Jaeger's own version (v1.62.0)")?;
    done(args)?;
    debian::ensure(
        &["chromium-headless-shell", "fonts-dejavu-core", "pngquant"],
        "a picture of a page",
    )?;
    let epitaph = agent::build(false)?;
    let pages = shell::root().join("target/xtask/jaeger-pages");
    if pages.exists() {
        fs::remove_dir_all(&pages).with_context(|| format!("removing {}", pages.display()))?;
    }
    shell::run_quietly(Command::new("cp").arg("-r").arg(&ui).arg(&pages), "copying Jaeger's pages")?;
    let opens = pages.join("static/picture.html");
    fs::write(&opens, OPENS).with_context(|| format!("writing {}", opens.display()))?;
    let mut jaeger = start(&path()?, Some(&pages))?;
    let pictured = pictured(&epitaph);
    jaeger.kill().context("stopping Jaeger")?;
    jaeger.wait().context("stopping Jaeger")?;
    println!("{}", pictured?.display());
    Ok(ExitCode::SUCCESS)
}

fn pictured(epitaph: &Path) -> Result<PathBuf> {
    let mut replay = Command::new(epitaph);
    replay
        .arg("replay")
        .arg(shell::root().join(PICTURED))
        .args(["--output", "json"]);
    replay.arg(format!("--otlp=http://{HOST}:{OTLP_GRPC}"));
    let printed = shell::read(&mut replay)?;
    let trace = printed
        .split_once("\"trace_id\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(id, _)| id.to_owned())
        .with_context(|| format!("{PICTURED} has no trace: {printed}"))?;
    let picture = shell::root().join("docs/images/jaeger.png");
    let whole = shell::root().join("target/xtask/jaeger.png");
    let mut chromium = Command::new("chromium-headless-shell");
    chromium
        .args(["--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=20000"])
        .arg(format!("--window-size={WINDOW}"))
        .arg(format!("--screenshot={}", whole.display()))
        .arg(format!("http://{HOST}:{QUERY}/static/picture.html#{trace}"));
    shell::run_quietly(&mut chromium, "making the picture")?;
    let mut smaller = Command::new("pngquant");
    smaller
        .args(["--force", "--strip", "--speed", "1", "--output"])
        .arg(&picture)
        .arg("64")
        .arg(&whole);
    shell::run_quietly(&mut smaller, "making it smaller")?;
    Ok(picture)
}

/// Jaeger ends with this task, however that ends, where util-linux can see to it.
fn tied(program: &Path) -> Command {
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
        Ok((answers(ADMIN, "/") && answers(QUERY, "/api/services")).then_some(()))
    })?;
    if ready.is_none() {
        let _ = child.kill();
        let _ = child.wait();
        bail!("Jaeger was not ready within {} s; see {}", TO_START.as_secs(), log.display());
    }
    Ok(())
}

/// Whether an HTTP GET of `path` is answered with 200.
fn answers(port: u16, path: &str) -> bool {
    let get = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {HOST}\r\n\r\n").as_bytes())?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    };
    get().unwrap_or(false)
}
