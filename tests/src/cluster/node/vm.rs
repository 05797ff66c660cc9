//! QEMU's command line, and the output of a machine's console.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Known, Node, files, qmp};
use crate::cluster::HOST_FOR_GUESTS;

/// The guest's own network, and the one that the nodes share.
pub const NETWORKS: [&str; 2] = ["own", "lan"];

/// `dir` holds the machine's disk, kernel and initrd; the sockets and logs are made there.
pub fn command(dir: &Path, known: &Known, shell_port: u16) -> Command {
    let Known {
        loopback, lan, index, ..
    } = known;
    // One network for this guest alone, with the host's loopback at its edge; and one that the nodes share.
    let own = format!(
        "user,id=own,ipv6=off,net={network}/24,host={HOST_FOR_GUESTS},dhcpstart={network_guest},\
         hostfwd=tcp:{loopback}:{kubelet}-{guest}:{kubelet},hostfwd=tcp:{loopback}:{shell_port}-{guest}:22",
        network = files::OWN_NETWORK,
        network_guest = files::OWN_ADDRESS,
        guest = files::OWN_ADDRESS,
        kubelet = Node::KUBELET_PORT,
    );
    let mut append = "console=ttyS0 loglevel=4 mitigations=off panic=0 net.ifnames=0 audit=0 \
                      systemd.show_status=0 random.trust_cpu=on transparent_hugepage=never nowatchdog"
        .to_owned();
    if !known.apparmor {
        append.push_str(" apparmor=0");
    }
    if let Some(khz) = tsc_khz() {
        append.push_str(&format!(" tsc=reliable tsc_early_khz={khz}"));
    }
    let mut command = Command::new("qemu-system-x86_64");
    command
        .current_dir(dir)
        // KVM, if available, is a different machine, and on some hosts a hung one.
        .args(["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"])
        .args(["-smp", &known.processors.to_string()])
        .args(["-m", &known.memory_mib.to_string()])
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-name", &known.name])
        .args(["-qmp", &format!("unix:{},server=on,wait=off", qmp::SOCKET)])
        .args(["-serial", "file:console.log"])
        .args(["-kernel", "vmlinuz", "-initrd", "initrd", "-append", &append])
        .args(["-drive", "file=disk.raw,format=raw,if=virtio,cache=unsafe,discard=unmap"])
        .args(["-netdev", &own])
        .args([
            "-device",
            &format!("virtio-net-pci,netdev=own,romfile=,mac=52:54:00:77:00:{index:02x}"),
        ])
        .args(["-netdev", &format!("socket,id=lan,mcast={lan},localaddr=127.0.0.1")])
        .args([
            "-device",
            &format!("virtio-net-pci,netdev=lan,romfile=,mac=52:54:00:77:01:{index:02x}"),
        ])
        .args(["-device", "virtio-rng-pci"])
        .args(["-rtc", "base=utc"]);
    command
}

/// What the host's time stamp counter counts in a millisecond: emulation hands it through, and a guest that measures it on a
/// busy host gets it wrong. None if the host's clock frequency is unknown.
fn tsc_khz() -> Option<u64> {
    if Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists() {
        return None;
    }
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    if !info.contains("constant_tsc") {
        return None;
    }
    let line = info.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
    Some((mhz * 1000.0) as u64)
}

pub fn panicked(console: &Path) -> bool {
    let log = fs::read(console).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    // Not every BUG: a lock-up that the kernel reports is caused by a busy host, and passes.
    ["Kernel panic", "kernel BUG at", "BUG: unable to", "BUG: kernel ", "Oops: "]
        .iter()
        .any(|sign| log.contains(sign))
}

/// Whether the current boot has reached its shell.
pub fn said_up(console: &Path) -> bool {
    let log = fs::read(console).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    match (log.rfind("epitaph: initrd"), log.rfind(files::UP)) {
        (Some(began), Some(up)) => up > began,
        _ => false,
    }
}

/// The last `count` lines, for a person.
pub fn tail(console: &Path, count: usize) -> String {
    let log = fs::read(console).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).replace('\r', "");
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_boot_is_complete_once_the_console_reports_it() {
        let up = |text: &str| said_up(console(text).path());
        assert!(up("epitaph: initrd\nnoise\nepitaph: up\n"));
        assert!(!up("epitaph: initrd\n"));
        assert!(!up("epitaph: initrd\nepitaph: up\nepitaph: initrd\n"), "it was reset");
        assert!(!up(""));
    }

    #[test]
    fn a_lockup_on_a_busy_host_is_not_a_panic() {
        let panicked = |text: &str| panicked(console(text).path());
        assert!(panicked("[ 1.0] Kernel panic - not syncing: Attempted to kill init!\n"));
        assert!(panicked("[ 1.0] BUG: unable to handle page fault for address: 0\n"));
        assert!(!panicked("[ 30.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!\n"));
    }
}
