//! Containers of Docker and Podman, of Debian's packages, and of CRI-O, of its Go module, in an emulated Debian: the reports of the
//! package's agent, compared with the case and with the runtime's own `inspect`. `cargo xtask test runtimes` builds the package and the machine; arguments choose cases.

mod cases;
mod runtime;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::node::{Node, NodeConfig};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{MOST_NODES, Tools};
use epitaph_tests::sys::boot_now;
use epitaph_tests::timeout::{holds, until_within};
use serde_json::Value;

use cases::{CASES, Case, Seen};
use runtime::{Known, Runtime};

/// No other test with a machine has this index.
const INDEX: u8 = MOST_NODES - 3;
/// The kernel verifies the probes at load, which takes long on an emulated processor.
const LIMIT: Duration = Duration::from_secs(180);

/// A node's own containerd and its configuration are in the place of Debian's.
const PREPARE: &str = "cd /etc/systemd/system; systemctl stop kubelet kube-proxy containerd; \
    rm -f {.,*.wants}/{kubelet,kube-proxy,containerd}.service /etc/containerd/config.toml; \
    systemctl daemon-reload; systemctl reset-failed; systemctl start containerd docker; mkdir -p /etc/containers/systemd";
/// The image, without a registry.
const IMAGE: &str = "mkdir -p /root/image/bin && cd /root/image && cp /bin/busybox bin && \
    for applet in sh sleep dd; do ln -s busybox bin/$applet; done
cat >bin/handles <<'END'
#!/bin/sh
trap 'exit 0' TERM QUIT
echo ready
while :; do sleep 1 & wait $!; done
END
cat >bin/ignores <<'END'
#!/bin/sh
trap '' TERM
echo ready
while :; do sleep 1; done
END
cat >bin/waits <<'END'
#!/bin/sh
echo ready
exec sleep 600
END
chmod 755 bin/* && tar -cf /tmp/image.tar . && useradd --create-home dev && systemctl start user@$(id -u dev)";
const UNTIL_OBSERVING: &str = "for i in $(seq 240); do busybox wget -q -O - http://127.0.0.1:9464/readyz 2>/dev/null && exit; sleep 0.5; done; \
    journalctl --no-pager --unit epitaph --output cat | tail -n 20 >&2; exit 1";
const WATCH: &str = "systemd-run --quiet --unit=watch sh -c 'exec epitaph watch --output text >/root/watch' && \
    for i in $(seq 240); do grep -q observing /root/watch && exit; sleep 0.5; done; exit 1";
/// What the agent did not read, and why.
const UNREAD: &str = "journalctl --no-pager --unit epitaph --output cat | grep 'name of a container' || true";

struct Machine(Node);

impl Machine {
    fn run(&self, script: &str) -> anyhow::Result<String> {
        self.0.run(script)
    }

    fn with(&self, runtime: Runtime, container: &str, script: &str) -> anyhow::Result<String> {
        self.run(&format!("{}\nc={container}\n{script}", runtime.functions()))
    }

    fn start(&self, runtime: Runtime, case: &Case) -> anyhow::Result<()> {
        self.with(runtime, case.name, &format!("{} && {}", case.run, runtime::UNTIL_READY))?;
        Ok(())
    }

    /// The container as its runtime has it; None if the runtime has it no longer.
    fn known(&self, runtime: Runtime, case: &Case) -> anyhow::Result<Option<Known>> {
        runtime.known(&self.with(runtime, case.name, "inspect 2>/dev/null || true")?)
    }

    /// The terminations in the agent's journal.
    fn reports(&self) -> anyhow::Result<Vec<Value>> {
        let text = self.run("epitaph list --output json")?;
        let all: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        all.with_context(|| format!("epitaph list: {text}"))
    }
}

#[test]
fn containers_are_reported_as_their_runtime_knows_them() -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own settings: no configuration file holds them"
    )]
    let (package, only) = (
        std::env::var_os("EPITAPH_DEB").map(PathBuf::from),
        std::env::var("EPITAPH_RUNTIMES").unwrap_or_default(),
    );
    let package = package.context("no EPITAPH_DEB: run `cargo xtask test runtimes`")?;
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test runtimes`")?;
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    for name in &only {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        ensure!(names.contains(name), "no case `{name}`; the cases are {}", names.join(", "));
    }
    let played: Vec<(Runtime, &Case, Seen)> = Runtime::ALL
        .into_iter()
        .flat_map(|runtime| CASES.iter().filter_map(move |case| Some((runtime, case, case.on(runtime)?))))
        .filter(|(_, case, _)| only.is_empty() || only.contains(&case.name))
        .collect();

    let dir = tempfile::tempdir()?;
    let mut config = NodeConfig::machine(INDEX)?;
    config.memory_mib = 2048;
    config.processors = 2;
    let machine = Machine(Node::start(&tools, &config, dir.path(), Lifetime::Caller)?);
    machine.run(PREPARE)?;
    machine.run(IMAGE)?;
    for runtime in Runtime::ALL {
        machine.with(runtime, "", runtime.prepare())?;
    }
    for (runtime, case, _) in played.iter().filter(|(_, case, _)| case.is_older) {
        machine.start(*runtime, case)?;
    }
    machine.0.shell().put(&package, "/root/epitaph.deb", 0o644)?;
    machine.run("dpkg --install /root/epitaph.deb")?;
    machine.run(UNTIL_OBSERVING)?;
    machine.run(WATCH)?;
    println!(
        "{}",
        machine
            .run("docker --version; podman --version; crio --version | head -n 2; uname -r")?
            .trim()
    );

    let mut wrong = Vec::new();
    for (runtime, case, seen) in played {
        let what = format!("{runtime:?} {}", case.name);
        match play(&machine, runtime, case, seen) {
            Ok(report) => println!("{what}: {} {}: {}", report["verdict"], report["cause"], report["sentence"]),
            Err(error) => {
                println!("{what}: {error:#}");
                wrong.push(format!("{what}: {error:#}"));
            }
        }
    }
    let unread = machine.run(UNREAD)?;
    if !unread.is_empty() {
        wrong.push(unread);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Plays the case, waits for the report, and compares the report with the case and with the runtime's state.
fn play(machine: &Machine, runtime: Runtime, case: &Case, seen: Seen) -> anyhow::Result<Value> {
    let before = machine.reports()?.len();
    if !case.is_older {
        machine.start(runtime, case)?;
    }
    let running = machine.known(runtime, case)?.context("the runtime has no such container")?;
    machine.with(runtime, case.name, case.end)?;
    let ended = machine.known(runtime, case)?;
    let report = report_of(machine, &running, before)?;
    let found = |pointer: &str| report.pointer(pointer).and_then(Value::as_str);
    let by = found("/stop/sender/role").or(found("/kill/sender/role"));
    ensure!(
        (found("/verdict"), found("/cause"), by) == (Some(seen.verdict), Some(seen.cause), seen.by),
        "not {seen:?}: {report}"
    );
    ensure!(found("/subject/runtime") == Some(runtime.name()), "another runtime: {report}");
    if let Some(sent) = found("/stop/signal") {
        ensure!(
            sent == running.stop_signal,
            "the stop signal was {}: {report}",
            running.stop_signal
        );
    }
    let title = match runtime {
        Runtime::Rootless => running.id[..12].to_owned(),
        Runtime::Docker | Runtime::Podman | Runtime::CriO => {
            for (pointer, expected) in [
                ("name", &running.name),
                ("image", &running.image),
                ("stop_signal", &running.stop_signal),
            ] {
                let text = found(&format!("/container/{pointer}"));
                ensure!(text == Some(expected), "{pointer} is {expected:?}: {report}");
            }
            ensure!(running.name == case.name, "the runtime's name is {:?}", running.name);
            format!("{} (image {})", running.name, running.image)
        }
    };
    if let Some(Known { code, oom, .. }) = ended {
        let exit = report.pointer("/status/code").and_then(Value::as_i64);
        let exit = exit.or(match found("/status/signal") {
            Some("SIGKILL") => Some(137),
            _ => None,
        });
        ensure!(Some(code) == exit, "the runtime's exit code is {code}: {report}");
        let reported = report["oom"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["is_main"] == true));
        ensure!(oom == reported, "the runtime reports OOM kill: {oom}: {report}");
    }
    let line = format!("container {title}  {}", seen.verdict);
    let watched = machine.run(&format!(
        "for i in $(seq 20); do grep --text --fixed-strings '{line}' /root/watch && exit; sleep 0.5; done; tail -n 30 /root/watch"
    ))?;
    ensure!(watched.contains(&line), "`epitaph watch` has no `{line}`: {watched}");
    Ok(report)
}

/// The container's only report. No other report, such as the report of the pod's infra container, may be unclean.
fn report_of(machine: &Machine, container: &Known, before: usize) -> anyhow::Result<Value> {
    let is_its = |report: &Value| report.pointer("/subject/id").and_then(Value::as_str) == Some(&container.id);
    until_within(LIMIT, "a report", || {
        let is_there = machine.reports()?.iter().any(is_its);
        let log = || {
            machine
                .run("journalctl --no-pager --unit epitaph | tail -n 20")
                .unwrap_or_default()
        };
        Ok(holds(is_there, log))
    })?;
    // Further reports are there by the report of a unit that fails now.
    let marker = format!("marker-{:x}", boot_now());
    machine.run(&format!("systemd-run --quiet --collect --unit={marker} sh -c 'exit 3'"))?;
    let is_markers = |report: &Value| report["subject"].to_string().contains(&marker);
    until_within(LIMIT, "the marker's report", || {
        let count = machine.reports()?.iter().filter(|report| is_markers(report)).count();
        Ok(holds(count > 0, || "not listed".to_owned()))
    })?;
    let (its, mut others): (Vec<Value>, Vec<Value>) = machine.reports()?.into_iter().skip(before).partition(is_its);
    others.retain(|report| !is_markers(report));
    let unclean: Vec<&Value> = others.iter().filter(|report| report["unclean"] == true).collect();
    ensure!(unclean.is_empty(), "unclean, too: {unclean:?}");
    ensure!(its.len() == 1, "{} reports: {its:?}", its.len());
    its.into_iter().next().context("one was counted")
}
