//! One virtual machine: a kernel, an initramfs, a deadline. What the guest reports comes back line by line.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    outside::{self, CONTROL, SERVICE},
    platform::Platform,
};

/// How a boot ended.
pub struct Run {
    /// Exit code of the guest's command; none if the machine stopped or hung before.
    pub code: Option<i32>,
    /// Why there is no exit code.
    pub trouble: Option<String>,
    pub took: Duration,
}

/// What the guest's init writes before the exit code.
pub const END: &str = "epitaph-guest-end ";

/// Boots `image` and hands each line that the guest reports to `line`, until the end, a panic or the deadline.
///
/// Two serial ports: the kernel's console goes to the file `console`, the guest's report comes on the second, so that no
/// kernel message tears a result apart.
///
/// # Errors
/// QEMU cannot be started or read.
pub fn boot(
    image: &Path,
    initramfs: &Path,
    console: &Path,
    platform: &Platform,
    deadline: Duration,
    mut line: impl FnMut(&str),
) -> Result<Run> {
    let started = now();
    let address = outside::address();
    let mut machine = Machine(
        // Killed with the process that started it, also if that process is killed: a hung guest would spin for ever.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", platform.qemu])
            // Software emulation also where KVM exists: the same machine for everybody.
            .args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "1024"])
            .args(platform.machine)
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-monitor",
                "none",
                "-no-reboot",
            ])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(platform.report_port)
            // The guest reaches nothing; clients on this machine reach its two ports.
            .arg("-netdev")
            .arg(format!(
                "user,id=own,restrict=on,hostfwd=tcp:{address}:{SERVICE}-:{SERVICE},hostfwd=tcp:{address}:{CONTROL}-:{CONTROL}"
            ))
            .args(["-device", "virtio-net-pci,netdev=own,romfile="])
            .arg("-kernel")
            .arg(image)
            .arg("-initrd")
            .arg(initramfs)
            // A panic resets at once, and -no-reboot turns that into QEMU's end.
            .arg("-append")
            .arg(format!(
                "console={} loglevel=5 mitigations=off panic=-1 oops=panic rdinit=/init",
                platform.console
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(console.with_extension("qemu")).context("making QEMU's log")?)
            .spawn()
            .with_context(|| format!("starting {}", platform.qemu))?,
    );
    let reports = machine.0.stdout.take().context("QEMU's output was not piped")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for report in BufReader::new(reports).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&report).trim_end_matches('\r').to_owned();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    let mut code = None;
    let trouble = loop {
        let left = deadline.saturating_sub(started.elapsed());
        match lines.recv_timeout(left) {
            Ok(text) => match text.strip_prefix(END) {
                Some(number) => code = number.trim().parse().ok(),
                None => line(&text),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => break Some(format!("no result after {} s", deadline.as_secs())),
            Err(mpsc::RecvTimeoutError::Disconnected) if code.is_some() => break None,
            Err(mpsc::RecvTimeoutError::Disconnected) => break Some("the machine stopped before the test ended".to_owned()),
        }
    };
    drop(machine);
    let panic = fs::read(console).ok().and_then(|log| {
        let log = String::from_utf8_lossy(&log).into_owned();
        log.lines()
            .find(|line| ["Kernel panic", "BUG: ", "Oops: "].iter().any(|sign| line.contains(sign)))
            .map(str::to_owned)
    });
    // A machine that printed its results and then fell over has failed all the same.
    let trouble = panic.or(trouble);
    Ok(Run {
        code: code.filter(|_| trouble.is_none()),
        trouble,
        took: started.elapsed(),
    })
}

/// The last `count` lines of a console log, for a person.
pub fn tail(console: &Path, count: usize) -> String {
    let log = fs::read(console).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).replace('\r', "");
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[expect(clippy::disallowed_methods, reason = "a machine's deadline is the host's time")]
fn now() -> Instant {
    Instant::now()
}

/// The machine stops when its owner is dropped, on every way out.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only where the machine has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
