//! What can be loaded, what is lost, what can be watched.

use std::collections::BTreeMap;

use epitaph::error::lines;
use epitaph::source::kernel::{Verified, verify};
use epitaph_core::input::V1;

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};

use super::*;

#[test]
fn every_probe_of_this_kernel_is_active() {
    let probes = need!(Probes::load(), "not root");
    for (name, state) in probes.kernel.probes() {
        match state {
            ProbeState::Active => {}
            ProbeState::Substituted { by, .. } => println!("{name} is reported by {by} on this kernel"),
            ProbeState::Unsupported(reason) => println!("{name} is not for this kernel: {reason}"),
            ProbeState::Failed(error) => panic!("{name}: {error}"),
        }
    }
    assert_eq!(probes.kernel.probes().len(), 11);
}

#[test]
fn a_substituted_probe_names_its_substitute() {
    let probes = need!(Probes::oldest(), "not root");
    let state = |name: &str| {
        &probes
            .kernel
            .probes()
            .iter()
            .find(|(probe, _)| probe == name)
            .expect("a probe")
            .1
    };
    assert_eq!(*state("inet_sock_set_state"), ProbeState::Active);
    match state("tcp_send_reset") {
        ProbeState::Substituted { by, .. } => assert!(by.starts_with("inet_sock_set_state ("), "{by}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_find_no_room_are_counted() {
    const SENT: usize = 500;
    // A storm of another test would be lost, too.
    let mut probes = need!(
        Probes::alone_with(&Options {
            ring_bytes: 4096,
            ..Options::default()
        }),
        "not root"
    );
    let (player, _) = Player::ready(&["ignore"]);
    for _ in 0..SENT {
        player.kill(signal::Signal::SIGTERM);
    }
    probes.drain();
    let kept = probes.count(|e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid())));
    let lost = probes.kernel.lost();
    let of_signals = lost.iter().filter(|loss| loss.kind == Kind::SignalGenerate);
    let signals: usize = of_signals.map(|loss| loss.count as usize).sum();
    assert!(kept < SENT && kept + signals >= SENT, "{kept} kept, {lost:?}");
    assert!(
        probes.seen.len() <= probes.kernel.ring_records(),
        "{} records of at most {}",
        probes.seen.len(),
        probes.kernel.ring_records()
    );
    // A report is of what is new since the last one.
    assert!(probes.kernel.lost().iter().all(|loss| (loss.count as usize) < SENT));
}

#[test]
fn records_wake_the_reader() {
    let mut probes = need!(Probes::load(), "not root");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    let (player, _) = Player::ready(&["ignore"]);
    runtime.block_on(async {
        for round in 0..3 {
            player.kill(signal::Signal::SIGTERM);
            while probes.count(|e| matches!(e, Event::SignalGenerate(s) if s.target.tgid == Pid(player.pid()))) <= round {
                probes.kernel.readable().await.expect("wait");
                probes.drain();
            }
        }
    });
}

#[test]
fn only_v2_can_be_watched_and_a_removed_watch_stays_removed() {
    let mut probes = need!(Probes::load(), "not root");
    assert!(
        probes
            .kernel
            .watch(CgroupId { hierarchy: 4, id: 7 }, watch::SELF, None)
            .is_err()
    );
    let ghost = CgroupId::v2(u64::MAX);
    let elsewhere = CgroupId { hierarchy: 4, id: 7 };
    assert!(probes.kernel.watch(ghost, watch::SELF, Some(elsewhere)).is_err());
    probes.kernel.watch(ghost, watch::SELF, None).expect("watch");
    probes.kernel.watch(ghost, 0, None).expect("forget");
    probes.kernel.watch(ghost, 0, None).expect("forget twice");
    probes.kernel.arm(ghost).expect("arm");
    probes.kernel.arm(ghost).expect("arm twice");
    probes.kernel.disarm(ghost).expect("disarm");
    probes.kernel.disarm(ghost).expect("disarm twice");
}

#[test]
fn two_capabilities_are_enough_and_a_missing_one_is_named() {
    need!(nix::unistd::geteuid().is_root().then_some(()), "not root");
    // The guest's part `privileges` covers what old kernels count against that limit. A container's root may not raise it
    // everywhere, and newer kernels count nothing.
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    let with = |capabilities: &str| {
        let output = Command::new("setpriv")
            .args(["--bounding-set", capabilities, "--"])
            .arg(std::env::current_exe().expect("own path"))
            .args(["--exact", "loading::load_only", "--ignored", "--nocapture"])
            .output()
            .expect("setpriv(1)");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    // As many as with all capabilities: an old kernel has fewer tracepoints.
    let all = with("+all");
    let loaded = all
        .lines()
        .find(|line| line.starts_with("loaded: "))
        .unwrap_or_else(|| panic!("{all}"));
    let both = with("-all,+bpf,+perfmon");
    assert!(both.contains(loaded), "{both}");
    let neither = with("-all");
    assert!(neither.contains("needs CAP_BPF and CAP_PERFMON"), "{neither}");
    let one = with("-all,+bpf");
    assert!(one.contains("needs CAP_PERFMON"), "{one}");
}

/// Run by the test above with fewer capabilities.
#[test]
#[ignore = "a part of two_capabilities_are_enough_and_a_missing_one_is_named"]
fn load_only() {
    match Kernel::load(&Options::default()) {
        Ok(kernel) => {
            println!(
                "loaded: {} active",
                kernel
                    .probes()
                    .iter()
                    .filter(|(_, state)| *state == ProbeState::Active)
                    .count()
            );
            println!("{:?}", kernel.probes());
        }
        Err(error) => println!("{error}"),
    }
}

/// Most instructions of each program that the verifier may go through, on kernels before [`PRUNES_BETTER`] and from it on: the
/// largest count of the kernels measured, from 5.10 on, and a quarter of it for what compilers and kernels to come will do. One
/// that needs more has lost a bound on a loop or on an offset, or is due for a split; the kernel itself refuses what takes it
/// more than a million.
///
/// A record goes to one of two rings, by whether it is rare, and the verifier follows what fills it once for each; before, it
/// follows each way to the owner's account and through its budget.
const VERIFIER_BOUNDS: [(&str, u32, u32); 21] = [
    ("cgroup_mkdir", 2400, 2020),
    ("cgroup_rmdir", 350, 310),
    ("inet_sk_error_report", 1630, 960),
    ("inet_sk_error_report_nested", 1630, 960),
    ("inet_sock_set_state", 12_350, 7750),
    ("inet_sock_set_state_nested", 11_850, 6900),
    ("mark_victim_pid", 60, 60),
    ("mark_victim_task", 2350, 1200),
    ("process_exec", 3080, 1710),
    ("process_exit_group_dead", 141_400, 225_000),
    ("process_exit_live", 141_400, 225_000),
    ("signal_deliver", 50_500, 47_600),
    ("signal_generate", 123_700, 12080),
    ("tcp_receive_reset", 3100, 1950),
    ("tcp_receive_reset_nested", 3100, 1950),
    ("tcp_send_reset", 5960, 4350),
    ("tcp_send_reset_nested", 5960, 4350),
    ("tcp_send_reset_reason", 4350, 4350),
    ("tcp_send_reset_reason_nested", 4350, 4350),
    // Loaded before 6.10 only.
    ("tcp_v4_send_reset", 2470, 2470),
    ("tcp_v6_send_reset", 2470, 2470),
];

/// The first measured kernel whose verifier prunes most states that the verifier of 6.1 processes again.
const PRUNES_BETTER: (u32, u32) = (6, 12);

/// Prints `verifier PROGRAM COUNT` for each, which `cargo xtask test kernels` shows of every kernel.
#[test]
fn the_verifier_processes_no_more_than_measured() {
    need!(nix::unistd::geteuid().is_root().then_some(()), "not root");
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "loading::verify_only", "--ignored", "--nocapture"])
        .output()
        .expect("start this program again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    // With this kernel's settings and with those of the oldest, with and without v1, which make other paths of the same program.
    let mut largest: BTreeMap<&str, u32> = BTreeMap::new();
    for line in text.lines() {
        if let ["verified", program, count] = line.split(' ').collect::<Vec<_>>()[..] {
            let count = count.parse().unwrap_or_else(|_| panic!("{line}"));
            let known = largest.entry(program).or_insert(count);
            *known = count.max(*known);
        }
    }
    let prunes_better = kernel() >= PRUNES_BETTER;
    // Off the line that the test runner has begun.
    println!();
    let mut beyond = Vec::new();
    for (program, count) in &largest {
        println!("verifier {program} {count}");
        let Some((_, before, since)) = VERIFIER_BOUNDS.iter().find(|(name, ..)| name == program) else {
            beyond.push(format!("{program}: {count}, and no bound for it"));
            continue;
        };
        let bound = if prunes_better { since } else { before };
        if count > bound {
            beyond.push(format!("{program}: {count}, at most {bound}"));
        }
    }
    assert!(
        beyond.is_empty(),
        "the verifier goes through more than VERIFIER_BOUNDS lets it: {beyond:?}"
    );
    let least = 10;
    assert!(largest.len() >= least, "only {} programs: {text}", largest.len());
}

/// `(6, 12)`
pub(crate) fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    let numbers = numbers.next().zip(numbers.next());
    numbers.unwrap_or_else(|| panic!("no version in the kernel's release {release}"))
}

/// Run by the test above: it lets its process open no more files.
#[test]
#[ignore = "a part of the_verifier_processes_no_more_than_measured"]
fn verify_only() {
    println!();
    // As alongside v2: every kernel has this controller, and nothing is asked of it here.
    let pids = V1 {
        is_alone: false,
        hierarchy: 1,
        controller: "pids".to_owned(),
    };
    for (oldest, v1) in [(false, None), (true, None), (false, Some(pids.clone())), (true, Some(pids))] {
        let options = Options {
            oldest,
            v1,
            ..Options::default()
        };
        for Verified { program, instructions } in verify(&options).unwrap_or_else(|error| panic!("{error}")) {
            match instructions {
                Ok(count) => println!("verified {program} {count}"),
                Err(why) => panic!("{program}: {why}"),
            }
        }
    }
}

/// docs/limits.md states it.
const BYTES: u64 = 21 << 20;

/// Kernels before 5.11 count a table's entries before they have memory. docs/commands.md states it.
const BYTES_BEFORE_5_11: u64 = 24 << 20;

/// By the kernel's own count, of a process without other maps. Preallocated maps have their memory from the start.
#[test]
fn the_probes_take_no_more_memory_than_stated() {
    need!(nix::unistd::geteuid().is_root().then_some(()), "not root");
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "loading::count_memory_only", "--ignored", "--nocapture"])
        .output()
        .expect("start this program again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let bytes = text
        .lines()
        .find_map(|line| line.strip_prefix("bytes: ")?.parse::<u64>().ok());
    println!("bytes: {bytes:?}");
    let most = if kernel() < (5, 11) { BYTES_BEFORE_5_11 } else { BYTES };
    // Both ring buffers have nine mebibytes.
    assert!(bytes.is_some_and(|bytes| bytes > 9 << 20 && bytes <= most), "{text}");
}

/// Run by the test above.
#[test]
#[ignore = "a part of the_probes_take_no_more_memory_than_stated"]
fn count_memory_only() {
    let kernel = Kernel::load(&Options::default()).expect("probes");
    println!("\nbytes: {}", kernel.memory());
}

#[test]
fn a_wrong_btf_file_is_named() {
    need!(nix::unistd::geteuid().is_root().then_some(()), "not root");
    let file = tempfile::NamedTempFile::new().expect("file");
    fs::write(file.path(), "not BTF").expect("write");
    for path in [file.path().to_owned(), PathBuf::from("/nonexistent/btf")] {
        let options = Options {
            btf: Some(path.clone()),
            ..Options::default()
        };
        let error = lines(&Kernel::load(&options).err().expect("no BTF"));
        assert!(
            error.contains(path.to_str().expect("utf-8")) && error.contains("--btf FILE"),
            "{error}"
        );
    }
}
