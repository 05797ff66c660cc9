//! Shutdowns of an emulated Debian with systemd and logind, by the commands that people use: what the agent of the package reports,
//! at once or after the next boot. `cargo xtask test systemd` builds the package and the machine; arguments choose cases. The cases and
//! what is expected of them: `tests/src/shutdowns.rs`.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use epitaph_tests::cluster::node::{Node, NodeConfig, quoted};
use epitaph_tests::cluster::process::Lifetime;
use epitaph_tests::cluster::{MOST_NODES, Tools};
use epitaph_tests::shutdowns::{CASES, Case, Debian, Does, Seen, Then, When};
use serde_json::Value;

/// Not the one of the package's test.
const INDEX: u8 = MOST_NODES - 2;
/// The kernel verifies the probes at load: an emulated processor takes its time.
const STEPS: u32 = 480;
const STEP: Duration = Duration::from_millis(500);
/// A machine that is expected to stay as it is, is looked at for so long.
const QUIET_STEPS: u32 = 80;
/// Every report about the node that the journal has.
const REPORTS: &str = "cat /var/lib/epitaph/journal/*.journal | grep -a -o '{\"type\":\"node-[a-z]*\".*}' || true";
/// A witness of the bus that is not Epitaph. Line by line on disk, and not ended with the services.
const WITNESS: &str = "rm -f /root/witness; systemd-run --quiet --collect --unit=witness --property=KillMode=none sh -c \"exec dbus-monitor --system \
    type=signal,interface=org.freedesktop.login1.Manager type=signal,interface=org.freedesktop.systemd1.Manager,member=JobNew \
    >/root/witness\"; busctl call org.freedesktop.DBus / org.freedesktop.DBus GetNameOwner s org.freedesktop.login1";
/// Targets that end the machine or its services.
const ENDS: [&str; 5] = ["shutdown", "poweroff", "reboot", "halt", "soft-reboot"];
/// The binary is of the builder's Debian: the older one's C library is too old for it. The services, and only they, get the builder's.
const LIBC: &str = "/usr/lib/epitaph-libc";
const LIBRARIES: [(&str, &str); 4] = [
    ("ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
    ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
    ("libm.so.6", "/lib/x86_64-linux-gnu/libm.so.6"),
    ("libgcc_s.so.1", "/lib/x86_64-linux-gnu/libgcc_s.so.1"),
];

#[test]
fn shutdowns_are_reported_as_they_were() -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's own settings: no configuration file holds them"
    )]
    let (package, only, debian) = (
        std::env::var_os("EPITAPH_DEB").map(PathBuf::from),
        std::env::var("EPITAPH_SHUTDOWNS").unwrap_or_default(),
        std::env::var("EPITAPH_DEBIAN").unwrap_or_default(),
    );
    let package = package.context("no EPITAPH_DEB: run `cargo xtask test systemd`")?;
    let debian = Debian::numbered(&debian).context("no EPITAPH_DEBIAN: run `cargo xtask test systemd`")?;
    let tools = Tools::named()?.context("no EPITAPH_CLUSTER_TOOLS: run `cargo xtask test systemd`")?;
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    for name in &only {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        ensure!(names.contains(name), "no case `{name}`; the cases are {}", names.join(", "));
    }
    let dir = tempfile::tempdir()?;
    let mut node = Node::start(&tools, &NodeConfig::machine(INDEX)?, dir.path(), Lifetime::Caller)?;
    prepare(&node, debian, &package)?;
    println!("systemd: {}", node.run("systemctl --version | head -n 1; uname -r")?.trim());
    let mut wrong = Vec::new();
    if only.is_empty() {
        wrong.extend(doctor(&node, debian)?);
    }
    for case in CASES.iter().filter(|case| only.is_empty() || only.contains(&case.name)) {
        let Some(expected) = case.on(debian) else { continue };
        let found = match play(&mut node, case, expected) {
            Ok(found) => found,
            Err(error) => {
                println!("shutdown {}: {error:#}", case.name);
                wrong.push(format!("{}: {error:#}", case.name));
                // The machine is in an unknown state.
                node.power_off()?;
                node.power_on()?;
                continue;
            }
        };
        let report = found.report.as_ref().map(|report| {
            let text = |pointer: &str| report.pointer(pointer).and_then(Value::as_str).unwrap_or("none").to_owned();
            (
                text("/verdict"),
                text("/signs/announcement"),
                When::of(&text("/ending")),
                text("/sentence"),
            )
        });
        println!("shutdown {}: on the bus: {}; report: {report:?}", case.name, found.bus);
        let is_expected = match (&report, expected.report) {
            (None, None) => true,
            (Some((verdict, by, when, _)), Some((expected, expected_by, expected_when))) => {
                verdict == expected && by == expected_by && *when == Some(expected_when)
            }
            _ => false,
        };
        if !is_expected || found.bus != expected.bus {
            wrong.push(format!("{}: not {expected:?}; {:?}", case.name, found.report));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The machine without what a node of a cluster runs, and with the package.
fn prepare(node: &Node, debian: Debian, package: &Path) -> anyhow::Result<()> {
    // Not only disabled: each boot enables them again.
    for unit in ["kubelet", "kube-proxy", "containerd"] {
        node.run(&format!(
            "mkdir -p /etc/systemd/system/{unit}.service.d && \
             printf '[Unit]\\nConditionPathExists=/nowhere\\n' >/etc/systemd/system/{unit}.service.d/off.conf && systemctl stop {unit}"
        ))?;
    }
    if debian == Debian::Eleven {
        let mut binds = String::from("[Service]\n");
        node.run(&format!("mkdir -p {LIBC}"))?;
        for (name, at) in LIBRARIES {
            let library = Path::new("/lib/x86_64-linux-gnu").join(name);
            node.shell().put(&library, &format!("{LIBC}/{name}"), 0o755)?;
            binds.push_str(&format!("BindReadOnlyPaths={LIBC}/{name}:{at}\n"));
        }
        for unit in ["epitaph", "epitaph-logind"] {
            node.run(&format!(
                "mkdir -p /etc/systemd/system/{unit}.service.d && printf %s {} >/etc/systemd/system/{unit}.service.d/libc.conf",
                quoted(&binds)
            ))?;
        }
    }
    node.shell().put(package, "/root/epitaph.deb", 0o644)?;
    node.run("systemctl daemon-reload; dpkg --install --force-depends /root/epitaph.deb")?;
    Ok(())
}

/// What `epitaph doctor` says of logind on the real bus; what is wrong with it.
fn doctor(node: &Node, debian: Debian) -> anyhow::Result<Vec<String>> {
    // Without a kubelet there is nothing to protect, and nothing is checked.
    const KUBELET: &str = "mkdir -p /var/lib/kubelet && cat >/var/lib/kubelet/config.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: 60s
shutdownGracePeriodCriticalPods: 20s
END
";
    let text = node.run(&format!(
        "{KUBELET}{} /usr/bin/epitaph doctor --only shutdown --output json || true; rm -r /var/lib/kubelet/config.yaml",
        match debian {
            Debian::Eleven => format!("{LIBC}/{} --library-path {LIBC}", LIBRARIES[0].0),
            Debian::Thirteen => String::new(),
        }
    ))?;
    let report: Value = serde_json::from_str(text.trim()).with_context(|| format!("the doctor's answer: {text}"))?;
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    for finding in &findings {
        println!("doctor {} {}: {}", finding["status"], finding["check"], finding["message"]);
    }
    let now = match debian {
        Debian::Eleven => "shutdown now, poweroff, reboot and halt bypass it",
        Debian::Thirteen => "shutdown now, poweroff, reboot and halt, systemctl soft-reboot go through logind",
    };
    let version = format!("systemd {}", debian.systemd());
    let mut wrong = Vec::new();
    for (check, part) in [("logind", version.as_str()), ("commands", now)] {
        let is_it =
            |finding: &&Value| finding["check"] == check && finding["message"].as_str().is_some_and(|m| m.contains(part));
        if !findings.iter().any(|finding| is_it(&finding)) {
            wrong.push(format!("doctor: no finding {check} with `{part}`"));
        }
    }
    Ok(wrong)
}

/// What was seen of one case.
struct Found {
    bus: String,
    report: Option<Value>,
}

/// Plays the case, and waits for its report.
fn play(node: &mut Node, case: &Case, expected: Seen) -> anyhow::Result<Found> {
    until_observing(node)?;
    let owner = node.run(WITNESS)?;
    // `s ":1.4"`
    let logind = owner.trim().trim_start_matches("s ").trim_matches('"').to_owned();
    sleep(2 * STEP);
    let (known, downs) = (reports(node, "node-shutdown")?.len(), reports(node, "node-down")?.len());
    let boot = node.boot_id()?;
    let soft = soft_reboots(node)?;
    match case.does {
        // The shell's connection ends with the machine: the command runs on its own.
        Does::Shell(command) => {
            let script = quoted(&format!("sleep 2; {command}"));
            node.run(&format!("systemd-run --quiet --collect --unit=case sh -c {script}"))?;
        }
        Does::PowerButton => node.press_power_button()?,
        Does::ResetButton => node.reset()?,
        Does::PowerPlug => node.power_off()?,
    }
    match expected.then {
        Then::Stays => {}
        Then::Boots => node.until_up(Some(&boot))?,
        Then::SoftBoots => until_soft_booted(node, &soft)?,
        Then::Off => {
            for _ in 0..STEPS {
                if !node.runs() {
                    break;
                }
                sleep(STEP);
            }
            ensure!(!node.runs(), "the machine is not off");
            node.power_on()?;
            node.until_up(Some(&boot))?;
        }
    }
    let report = new_report(node, known, if expected.report.is_some() { STEPS } else { QUIET_STEPS })?;
    if expected.report.is_some() && report.is_none() {
        bail!("no report; {}", log(node));
    }
    let bus = on_the_bus(&node.run("cat /root/witness 2>/dev/null || true")?, &logind);
    if expected.then == Then::Stays {
        node.run("kill $(systemctl show --value --property MainPID witness); systemctl stop case witness 2>/dev/null || true")?;
        ensure!(node.boot_id()? == boot, "the machine has booted");
    } else {
        // By the agent of this boot, which begins later than the shell.
        let mut found = downs;
        for _ in 0..STEPS {
            found = reports(node, "node-down")?.len();
            if found > downs {
                break;
            }
            sleep(STEP);
        }
        ensure!(found == downs + 1, "{} reports that the machine was down", found - downs);
    }
    Ok(Found { bus, report })
}

/// The one report that is new; None: there is none in that time.
fn new_report(node: &Node, known: usize, steps: u32) -> anyhow::Result<Option<Value>> {
    for _ in 0..steps {
        let found = reports(node, "node-shutdown")?;
        if found.len() > known {
            // Time for a second one.
            sleep(4 * STEP);
            let found = reports(node, "node-shutdown")?;
            ensure!(found.len() == known + 1, "more than one report: {:?}", &found[known..]);
            return Ok(found.into_iter().next_back());
        }
        sleep(STEP);
    }
    Ok(None)
}

fn reports(node: &Node, kind: &str) -> anyhow::Result<Vec<Value>> {
    let text = node.run(REPORTS)?;
    let all: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    Ok(all?.into_iter().filter(|report| report["type"] == kind).collect())
}

/// The witness' lines as the signals in their order, each kind once; `logind` is the owner of its name.
fn on_the_bus(witness: &str, logind: &str) -> String {
    let mut seen: Vec<String> = Vec::new();
    let mut lines = witness.lines().peekable();
    while let Some(line) = lines.next() {
        let has = |part: &str| line.contains(part);
        let is_true = lines.peek().is_some_and(|next| next.trim() == "boolean true");
        let signal = match () {
            () if has("member=PrepareForShutdown") && !has("WithMetadata") => {
                let forged = !has(&format!("sender={logind} "));
                format!(
                    "PrepareForShutdown{}{}",
                    if is_true { "" } else { " false" },
                    if forged { " (forged)" } else { "" }
                )
            }
            () if has("member=JobNew") => {
                // Number, path and unit.
                let is_end = |line: &str| ENDS.iter().any(|unit| line.contains(&format!("\"{unit}.target\"")));
                if !lines.clone().take(3).any(is_end) {
                    continue;
                }
                "JobNew".to_owned()
            }
            () => continue,
        };
        if !seen.contains(&signal) {
            seen.push(signal);
        }
    }
    seen.join(", ")
}

/// How often the services began again on this kernel; a systemd before soft reboots has no such property.
fn soft_reboots(node: &Node) -> anyhow::Result<String> {
    node.run("systemctl show --value --property SoftRebootsCount")
}

fn until_soft_booted(node: &Node, before: &str) -> anyhow::Result<()> {
    for _ in 0..STEPS {
        node.shell().forget();
        if soft_reboots(node).is_ok_and(|count| !count.trim().is_empty() && count != before) {
            return Ok(());
        }
        sleep(STEP);
    }
    bail!("no soft reboot")
}

/// The agent observes, and knows logind.
fn until_observing(node: &Node) -> anyhow::Result<()> {
    const METRICS: &str = "busybox wget -q -O - http://127.0.0.1:9464/metrics | grep epitaph_logind_state || true";
    for _ in 0..STEPS {
        let state = node.run(METRICS)?;
        if state
            .lines()
            .any(|line| line.contains("state=\"connected\"") && line.ends_with(" 1"))
        {
            return Ok(());
        }
        sleep(STEP);
    }
    bail!("the agent does not observe logind; {}", log(node))
}

fn log(node: &Node) -> String {
    const LOG: &str = "ls -l --full-time /var/lib/epitaph/journal; date; systemctl status --no-pager --lines=0 epitaph epitaph-logind; \
                       journalctl --no-pager --boot --unit epitaph --unit epitaph-logind | head -n 40";
    node.run(LOG).unwrap_or_else(|error| format!("{error:#}"))
}
