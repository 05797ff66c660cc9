//! The emulated Debian, the agent of the package on it, and what both show.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use epitaph_tests::cluster::node::{Node, quoted};
use epitaph_tests::shutdowns::{Debian, When};
use epitaph_tests::sys::boot_now;
use epitaph_tests::timeout::{holds, until_within};
use serde_json::Value;

/// The kernel verifies the probes at load: an emulated processor takes its time.
pub const LIMIT: Duration = Duration::from_secs(300);
/// A report that is written twice is there twice after this time.
const SETTLED: Duration = Duration::from_secs(2);
/// Every report that the journal has. A frame's length has a zero byte, JSON has none.
const REPORTS: &str =
    "cat /var/lib/epitaph/journal/*.journal | tr '\\000' '\\n' | grep -a -o '{\"type\":\"[a-z-]*\",\"time\":.*}' || true";
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

pub struct Machine {
    pub node: Node,
    pub debian: Debian,
}

impl Machine {
    pub fn run(&self, script: &str) -> anyhow::Result<String> {
        self.node.run(script)
    }

    /// The machine without what a node of a cluster runs, and with the package.
    pub fn prepare(&self, package: &Path) -> anyhow::Result<()> {
        // Not only disabled: each boot enables them again.
        for unit in ["kubelet", "kube-proxy", "containerd"] {
            self.drop_in(unit, "off", "[Unit]\nConditionPathExists=/nowhere\n")?;
            self.run(&format!("systemctl stop {unit}"))?;
        }
        if self.debian == Debian::Eleven {
            let mut binds = String::from("[Service]\n");
            self.run(&format!("mkdir -p {LIBC}"))?;
            for (name, at) in LIBRARIES {
                let library = Path::new("/lib/x86_64-linux-gnu").join(name);
                self.node.shell().put(&library, &format!("{LIBC}/{name}"), 0o755)?;
                binds.push_str(&format!("BindReadOnlyPaths={LIBC}/{name}:{at}\n"));
            }
            for unit in ["epitaph", "epitaph-logind"] {
                self.drop_in(unit, "libc", &binds)?;
            }
        }
        self.node.shell().put(package, "/root/epitaph.deb", 0o644)?;
        self.run("systemctl daemon-reload; dpkg --install --force-depends /root/epitaph.deb")?;
        Ok(())
    }

    /// A drop-in of a unit; in force after a daemon-reload.
    pub fn drop_in(&self, unit: &str, name: &str, text: &str) -> anyhow::Result<()> {
        let unit = if unit.contains('.') {
            unit.to_owned()
        } else {
            format!("{unit}.service")
        };
        let dir = format!("/etc/systemd/system/{unit}.d");
        self.run(&format!("mkdir -p {dir} && printf %s {} >{dir}/{name}.conf", quoted(text)))?;
        Ok(())
    }

    /// The program, for root's shell.
    pub fn epitaph(&self) -> String {
        match self.debian {
            Debian::Eleven => format!("{LIBC}/{} --library-path {LIBC} /usr/bin/epitaph", LIBRARIES[0].0),
            Debian::Thirteen => "/usr/bin/epitaph".to_owned(),
        }
    }

    /// The agent observes, and knows logind.
    pub fn until_observing(&self) -> anyhow::Result<()> {
        // logind can be known before the probes run.
        const METRICS: &str = "get() { busybox wget -q -O - http://127.0.0.1:9464/$1; }; \
                               get readyz >/dev/null && get metrics | grep epitaph_logind_state || true";
        let is_so = |line: &str| line.contains("state=\"connected\"") && line.ends_with(" 1");
        let observes = until_within(LIMIT, "the agent to observe logind", || {
            let state = self.run(METRICS)?;
            Ok(holds(state.lines().any(is_so), || state.clone()))
        });
        observes.with_context(|| self.log())
    }

    /// The machine ends by itself.
    pub fn until_off(&mut self) -> anyhow::Result<()> {
        until_within(LIMIT, "the machine to be off", || {
            Ok(holds(!self.node.runs(), || "it runs".to_owned()))
        })
    }

    /// Starts the witness; logind's name on the bus.
    pub fn witness(&self) -> anyhow::Result<String> {
        let owner = self.run(WITNESS)?;
        // `s ":1.4"`
        let logind = owner.trim().trim_start_matches("s ").trim_matches('"').to_owned();
        // The bus takes the name of a monitor away: from then on it sends everything.
        until_within(LIMIT, "the witness to listen", || {
            let seen = self.run("cat /root/witness 2>/dev/null || true")?;
            Ok(holds(seen.contains("member=NameLost"), || seen.clone()))
        })?;
        Ok(logind)
    }

    /// What the witness saw; `logind` as by [`Machine::witness`].
    pub fn witnessed(&self, logind: &str) -> anyhow::Result<String> {
        Ok(on_the_bus(&self.run("cat /root/witness 2>/dev/null || true")?, logind))
    }

    /// Runs root's command, in two seconds: the shell's connection ends with the machine.
    pub fn later(&self, command: &str) -> anyhow::Result<()> {
        let script = quoted(&format!("sleep 2; {command}"));
        self.run(&format!("systemd-run --quiet --collect --unit=case sh -c {script}"))?;
        Ok(())
    }

    /// The reports about the node, of one type.
    pub fn reports(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let all = self.all_reports()?;
        Ok(all.into_iter().filter(|report| report["type"] == kind).collect())
    }

    pub fn all_reports(&self) -> anyhow::Result<Vec<Value>> {
        let first = |line: &str| serde_json::Deserializer::from_str(line).into_iter().next();
        let all: Result<Vec<Value>, _> = self.run(REPORTS)?.lines().filter_map(first).collect();
        all.context("the reports of the journal")
    }

    /// What was to be reported before is by then, or never.
    pub fn after_a_marker(&self) -> anyhow::Result<()> {
        self.until_failed(&format!("marker-{:x}", boot_now()))
    }

    /// Has a unit of that name fail, and waits for its report.
    pub fn until_failed(&self, unit: &str) -> anyhow::Result<()> {
        self.run(&format!("systemd-run --quiet --collect --unit={unit} sh -c 'exit 3'"))?;
        until_within(LIMIT, &format!("the report of {unit}"), || {
            let of_it = |report: &Value| report["subject"].to_string().contains(&format!("{unit}.service"));
            let is_there = self.all_reports()?.iter().any(of_it);
            Ok(holds(is_there, || self.log()))
        })
    }

    /// The one report of a shutdown that is new; None: there is none in that time.
    pub fn new_report(&self, known: usize, limit: Duration) -> anyhow::Result<Option<Value>> {
        let come = until_within(limit, "a report", || {
            let count = self.reports("node-shutdown")?.len();
            Ok(holds(count > known, || format!("{count} reports")))
        });
        let found = self.reports("node-shutdown")?;
        if come.is_err() && found.len() <= known {
            return Ok(None);
        }
        // Not a marker: systemd refuses to start a unit in a machine that is about to end.
        // The subject is time: a second report would be written within it.
        sleep(SETTLED);
        let found = self.reports("node-shutdown")?;
        ensure!(found.len() == known + 1, "more than one report: {:?}", &found[known..]);
        Ok(found.into_iter().next_back())
    }

    /// Waits for the report that the machine was down, of which `known` were there before, and gives how many there are then. By the agent
    /// of this boot, which begins later than the shell.
    pub fn until_down(&self, known: usize) -> anyhow::Result<usize> {
        until_within(LIMIT, "a report that the machine was down", || {
            let found = self.reports("node-down")?.len();
            Ok(if found > known {
                Ok(found)
            } else {
                Err(format!("{found} reports"))
            })
        })
    }

    /// Of these reports one more comes.
    pub fn expect_down(&self, known: usize) -> anyhow::Result<()> {
        let found = self.until_down(known)?;
        ensure!(found == known + 1, "{} reports that the machine was down", found - known);
        Ok(())
    }

    /// How often the agent synced its journal.
    pub fn syncs(&self) -> anyhow::Result<f64> {
        let line = self.run("busybox wget -q -O - http://127.0.0.1:9464/metrics | grep ^epitaph_journal_syncs_total")?;
        let number = line.trim().rsplit(' ').next().unwrap_or_default();
        number.parse().with_context(|| format!("the number of syncs: {line}"))
    }

    /// For the message of a failure.
    pub fn log(&self) -> String {
        const LOG: &str = "ls -l --full-time /var/lib/epitaph/journal; date; systemctl status --no-pager --lines=0 epitaph epitaph-logind; \
                           journalctl --no-pager --boot --unit epitaph --unit epitaph-logind | head -n 40; \
                           journalctl --no-pager --boot | tail -n 20; \
                           busybox wget -q -O - http://127.0.0.1:9464/metrics | \
                           grep -E '^epitaph_[a-z_]*(dropped|lost)[a-z_]*[^ ]* [1-9]'; true";
        self.run(LOG).unwrap_or_else(|error| format!("{error:#}"))
    }
}

/// Of a report: verdict, what announced the shutdown, when it was written, sentence.
pub fn summary(report: &Value) -> (String, String, Option<When>, String) {
    let text = |pointer: &str| report.pointer(pointer).and_then(Value::as_str).unwrap_or("none").to_owned();
    (
        text("/verdict"),
        text("/signs/announcement"),
        When::of(&text("/ending")),
        text("/sentence"),
    )
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
