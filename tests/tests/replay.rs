//! A truncated recording, given to the agent's binary: judged as far as it goes, with a warning.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use epitaph::recording::{Reader, Writer};
use epitaph_core::decode::decode;
use epitaph_core::event::Event;
use epitaph_core::ids::Pid;
use epitaph_core::input::{CgroupMode, Input, Observation};
use epitaph_core::time::{Boot, WallOffset};
use epitaph_ebpf::{Kind, VERSION};
use epitaph_tests::agent::program;
use epitaph_tests::privileges::too_much;
use epitaph_tests::timeout::{ended, holds, until};

fn observation() -> Observation {
    Observation {
        boot_id: "5c2b0c9e-0000-4000-8000-000000000001".into(),
        host: "node-7".into(),
        kernel: "6.18.0".into(),
        wall_offset: WallOffset(1_790_000_000_000_000_000),
        since: Boot(1_000_000_000),
        cgroups: CgroupMode::V1(4),
        nodes_in_containers: false,
        ticks_per_second: None,
        observes_followed: true,
    }
}

fn recording() -> Vec<u8> {
    let observation = Observation {
        cgroups: CgroupMode::V2,
        ..observation()
    };
    let mut writer = Writer::new(Vec::new(), &observation).unwrap();
    for input in [Input::Start(observation), Input::Tick, Input::End] {
        writer.input(Boot(2_000_000_000), &input).unwrap();
    }
    writer.into_inner()
}

/// Exit code and standard error.
fn replayed(bytes: &[u8]) -> (Option<i32>, String) {
    let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("evidence.epitaph");
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new(program(binaries)).arg("replay").arg(&file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_truncated_recording_is_judged_as_far_as_it_goes_and_is_bad_data() {
    let whole = recording();
    assert_eq!(replayed(&whole), (Some(0), String::new()));
    let (code, stderr) = replayed(&whole[..whole.len() - 3]);
    assert!(
        code == Some(65) && stderr.contains("is not whole: ") && stderr.contains(" bytes of an incomplete end; "),
        "{code:?} {stderr}"
    );
}

/// As of `epitaph export`, or of a recorder that was killed: nothing is damaged.
#[test]
fn a_recording_without_an_end_is_not_damaged() {
    let observation = Observation {
        cgroups: CgroupMode::V2,
        ..observation()
    };
    let mut writer = Writer::new(Vec::new(), &observation).unwrap();
    for input in [Input::Start(observation), Input::Tick] {
        writer.input(Boot(2_000_000_000), &input).unwrap();
    }
    let (code, stderr) = replayed(&writer.into_inner());
    assert!(
        code == Some(0) && stderr.contains("has no end") && !stderr.contains("warning"),
        "{code:?} {stderr}"
    );
}

/// As the probes write a process's exit, on the first CPU of a machine whose tasks are distinguished by hierarchy 4.
fn exit(version: u16) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<epitaph_ebpf::ProcessExit>()];
    bytes[..2].copy_from_slice(&(Kind::ProcessExit as u16).to_le_bytes());
    bytes[2..4].copy_from_slice(&version.to_le_bytes());
    bytes[6] = 4;
    bytes[16] = 42;
    // Up to version 3 a task had no container, up to version 2 no cgroup of v1 in addition to v2.
    let absent = usize::from(version <= 3) + usize::from(version <= 2);
    bytes.truncate(bytes.len() - absent * size_of::<u64>());
    bytes
}

#[test]
fn records_of_every_version_are_read_out_of_one_recording() {
    let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
    for version in 1..=VERSION + 1 {
        writer.record(Boot(2_000_000_000), &exit(version)).unwrap();
    }
    let file = writer.into_inner();
    let mut reader = Reader::new(&file[..], decode).unwrap();
    let ends = reader.by_ref().filter_map(|(_, input)| match input {
        Input::Kernel {
            event: Event::ProcessExit(exit),
            ..
        } => Some((exit.task.tgid, exit.task.cgroup.hierarchy)),
        _ => None,
    });
    // The first version knew cgroup v2 alone; what is newer than this program is counted.
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [(Pid(42), 0), (Pid(42), 4), (Pid(42), 4), (Pid(42), 4)]
    );
    assert_eq!(reader.report().undecodable, 1);
}

/// The replay waits for the recording and has read nothing of it yet: a file of any user is possible.
#[test]
fn a_recording_is_read_without_a_capability() {
    let binaries = Path::new(env!("CARGO_BIN_EXE_victim")).parent().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("evidence.epitaph");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Both ends, so that neither opening waits.
    let mut writer = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let mut child = Command::new(program(binaries))
        .arg("replay")
        .arg(&pipe)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("no capability", || {
        let wrong = too_much(child.id(), 0)?;
        Ok(holds(wrong.is_empty(), || format!("{wrong:#?}")))
    })
    .unwrap();
    writer.write_all(&recording()).unwrap();
    drop(writer);
    let status = ended(&mut child).unwrap();
    assert!(status.success(), "{status}");
}
