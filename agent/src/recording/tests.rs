use epitaph_core::correlate::Limits;
use epitaph_core::event::{CgroupRmdir, Event, Kind};
use epitaph_core::ids::PodUid;
use epitaph_core::ids::{CgroupId, Pid};
use epitaph_core::input::{CgroupFact, CgroupMode, Input, LossScope, ProbeState, ProcessFact};
use epitaph_core::node::NodeEvent;
use epitaph_core::pod::{PodEventsState, PodEventsUpdate};
use epitaph_core::stored::StoredInput;
use epitaph_core::time::{Boot, WallOffset};
use expect_test::expect;
use proptest::prelude::*;

use super::frames::STAMP;
use super::*;
use crate::error::lines;

/// A simple decoder: a record of 32 bytes is a cgroup's removal, anything else is not decodable.
fn decode(bytes: &[u8]) -> Result<(Boot, Event), ()> {
    let number = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
    if bytes.len() != 32 || bytes[..2] != (Kind::CgroupRmdir as u16).to_le_bytes() {
        return Err(());
    }
    let (Some(at), Some(id)) = (number(8), number(16)) else {
        return Err(());
    };
    Ok((
        Boot(at),
        Event::CgroupRmdir(CgroupRmdir {
            cgroup: CgroupId::v2(id),
        }),
    ))
}

fn rmdir(at: u64, id: u64) -> (Vec<u8>, Input) {
    let mut bytes = vec![0; 32];
    bytes[..2].copy_from_slice(&(Kind::CgroupRmdir as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&at.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.to_le_bytes());
    let event = Event::CgroupRmdir(CgroupRmdir {
        cgroup: CgroupId::v2(id),
    });
    (bytes, Input::Kernel { at: Boot(at), event })
}

fn observation() -> Observation {
    Observation {
        boot_id: "8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b".to_owned(),
        host: "node-1".to_owned(),
        kernel: "6.18.0".to_owned(),
        wall_offset: WallOffset(1_795_000_000_000_000_000),
        since: Boot(1_000),
        cgroups: CgroupMode::Hybrid,
        nodes_in_containers: false,
        ticks_per_second: None,
        observes_followed: true,
    }
}

/// One input of each kind.
fn inputs() -> Vec<(Boot, Input)> {
    let process = ProcessFact {
        tgid: Pid(42),
        ppid: Pid(1),
        start: Boot(500),
        ns_level: 1,
        ns_pid: 1,
        comm: "na\x1bme".to_owned(),
        cgroups: vec![(CgroupId { hierarchy: 4, id: 77 }, "/docker/x".to_owned())],
    };
    let of = [
        Input::Start(observation()),
        Input::Probe {
            name: "signal_generate".to_owned(),
            state: ProbeState::Active,
        },
        Input::Probe {
            name: "tcp".to_owned(),
            state: ProbeState::Unsupported("no BTF".to_owned()),
        },
        Input::Cgroup(CgroupFact::of(CgroupId::v2(7), Ok("/a.service".to_owned()))),
        Input::Cgroup(CgroupFact::of(CgroupId::v2(8), Err(CgroupFact::GONE.to_owned()))),
        Input::Process(process),
        rmdir(1_900, 7).1,
        Input::Lost {
            kind: Kind::Tcp,
            scope: LossScope::Within(CgroupId::v2(7)),
            since: Boot(1_500),
            count: 3,
        },
        Input::Clock(WallOffset(-5)),
        Input::Tick,
        Input::End,
    ];
    of.into_iter().zip(2_000..).map(|(input, now)| (Boot(now), input)).collect()
}

/// The file, and where each of its inputs begins.
fn record(inputs: &[(Boot, Input)]) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
    let mut starts = Vec::new();
    for (now, input) in inputs {
        let before = writer.into_inner();
        starts.push(before.len());
        writer = Writer::resume(before, starts.len() as u32 - 1);
        match input {
            Input::Kernel {
                at,
                event: Event::CgroupRmdir(gone),
            } => {
                writer.record(*now, &rmdir(at.0, gone.cgroup.id).0).unwrap();
            }
            input => writer.input(*now, input).unwrap(),
        }
    }
    (writer.into_inner(), starts)
}

fn read(file: &[u8]) -> (Vec<(Boot, Input)>, Report) {
    let mut reader = Reader::new(file, decode).unwrap();
    let inputs = reader.by_ref().collect();
    (inputs, reader.report().clone())
}

fn missing(count: u64, from: u64, to: u64) -> Missing {
    let (from, to) = (Boot(from), Boot(to));
    Missing { count, from, to }
}

fn error(file: &[u8]) -> String {
    Reader::new(file, decode).err().map(|error| lines(&error)).unwrap_or_default()
}

#[test]
fn reading_returns_the_recorded_inputs() {
    let (file, _) = record(&inputs());
    let reader = Reader::new(&file[..], decode).unwrap();
    assert_eq!(reader.header().observation, observation());
    assert_eq!(reader.header().epitaph, env!("CARGO_PKG_VERSION"));
    let (read, report) = read(&file);
    assert_eq!(read, inputs());
    assert_eq!(
        report,
        Report {
            inputs: 11,
            ..Report::default()
        }
    );
}

#[test]
fn kernel_records_keep_their_bytes() {
    let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
    let (bytes, input) = rmdir(5, 6);
    assert!(matches!(writer.input(Boot(1), &input), Err(WriteError::KernelWithoutBytes)));
    writer.record(Boot(1), &bytes).unwrap();
    let file = writer.into_inner();
    assert!(file.windows(32).any(|window| window == bytes));
}

#[test]
fn truncated_tail_loses_only_the_tail() {
    let (file, starts) = record(&inputs());
    let (read, report) = read(&file[..file.len() - 3]);
    assert_eq!(read, inputs()[..10]);
    let tail = (file.len() - 3 - starts[10]) as u64;
    assert_eq!(
        report,
        Report {
            inputs: 10,
            tail_bytes: tail,
            ..Report::default()
        }
    );
}

#[test]
fn damage_in_the_middle_is_lost_evidence() {
    let (mut file, starts) = record(&inputs());
    file[starts[3] + 20] ^= 0x40;
    let (read, report) = read(&file);
    let lost = Input::part_missing(Boot(2_002));
    let lost: Vec<_> = lost.into_iter().map(|lost| (Boot(2_004), lost)).collect();
    let expected: Vec<_> = [&inputs()[..3], &lost[..], &inputs()[4..]].concat();
    assert_eq!(read, expected);
    let bytes = (starts[4] - starts[3]) as u64;
    assert_eq!(
        report,
        Report {
            inputs: 19,
            damaged: 1,
            damaged_bytes: bytes,
            missing: vec![missing(1, 2_002, 2_004)],
            ..Report::default()
        }
    );
}

/// Each frame is whole, but their numbers tell.
#[test]
fn frames_that_were_cut_out_of_the_middle_are_lost_evidence() {
    let (file, starts) = record(&inputs());
    let cut = [&file[..starts[3]], &file[starts[5]..]].concat();
    let (found, report) = read(&cut);
    let lost = Input::part_missing(Boot(2_002));
    let lost: Vec<_> = lost.into_iter().map(|lost| (Boot(2_005), lost)).collect();
    assert_eq!(found, [&inputs()[..3], &lost[..], &inputs()[5..]].concat());
    assert_eq!(
        report,
        Report {
            inputs: found.len() as u64,
            missing: vec![missing(2, 2_002, 2_005)],
            ..Report::default()
        }
    );
}

#[test]
fn each_place_at_which_frames_are_missing_has_its_time_and_number() {
    let (file, starts) = record(&inputs());
    let cut = [&file[..starts[1]], &file[starts[2]..starts[4]], &file[starts[7]..]].concat();
    let (found, report) = read(&cut);
    let lost = |from, to| Input::part_missing(Boot(from)).into_iter().map(move |lost| (Boot(to), lost));
    let expected: Vec<_> = (inputs()[..1].iter().cloned())
        .chain(lost(2_000, 2_002))
        .chain(inputs()[2..4].iter().cloned())
        .chain(lost(2_003, 2_007))
        .chain(inputs()[7..].iter().cloned())
        .collect();
    assert_eq!(found, expected);
    assert_eq!(report.missing, [missing(1, 2_000, 2_002), missing(3, 2_003, 2_007)]);

    // Every second one of many: the later places are counted.
    let ticks: Vec<_> = (0..40).map(|second| (Boot(2_000 + second), Input::Tick)).collect();
    let (file, starts) = record(&ticks);
    let odd = starts.chunks(2).map(|pair| &file[pair[0]..pair[1]]);
    let thinned = [&file[..starts[0]]].into_iter().chain(odd).collect::<Vec<_>>().concat();
    let report = read(&thinned).1;
    assert_eq!((report.missing.len(), report.more_missing), (8, (11, 11)));
}

/// A part that is there twice was read; one that stands after later ones is missing where it belongs.
#[test]
fn a_frame_that_is_there_twice_is_returned_once() {
    let (file, starts) = record(&inputs());
    let twice = [&file[..starts[5]], &file[starts[3]..]].concat();
    let (found, report) = read(&twice);
    assert_eq!(found, inputs());
    assert_eq!((report.repeated, report.missing.len(), report.damaged), (2, 0, 0));

    let swapped = [&file[..starts[3]], &file[starts[5]..], &file[starts[3]..starts[5]]].concat();
    let (found, report) = read(&swapped);
    let lost = Input::part_missing(Boot(2_002)).into_iter().map(|lost| (Boot(2_005), lost));
    let expected: Vec<_> = (inputs()[..3].iter().cloned())
        .chain(lost)
        .chain(inputs()[5..].iter().cloned())
        .collect();
    assert_eq!(found, expected);
    assert_eq!((report.repeated, report.missing), (2, vec![missing(2, 2_002, 2_005)]));
}

/// As `cat first second`.
#[test]
fn another_recording_in_the_file_is_not_read_into_the_first() {
    let (file, _) = record(&inputs());
    let mut first_version = Vec::new();
    let header = Header {
        epitaph: "0".to_owned(),
        observation: observation(),
    };
    frames::append_header(&mut first_version, 1, &header).unwrap();
    let tick = input_json(&Input::Tick).unwrap();
    frames::append(&mut first_version, &frames::stamp(Boot(3_000), TAG_INPUT), &[&tick]).unwrap();
    for (first, second, tail) in [
        (&file[..], &file[..], 0),
        (&file[..file.len() - 3], &file, 0),
        (&file, &first_version, 0),
        (&first_version, &file, 0),
        (&file, &[b"torn".as_slice(), &file].concat(), 4),
    ] {
        let both = [first, second].concat();
        let mut reader = Reader::new(&both[..], decode).unwrap();
        let found: Vec<_> = reader.by_ref().collect();
        let (alone, report) = read(first);
        assert_eq!(found, alone);
        assert_eq!(reader.next(), None, "nothing after the end");
        let another = Another {
            at: first.len() as u64 + tail,
            header: Some(Header {
                epitaph: if second == first_version {
                    "0"
                } else {
                    env!("CARGO_PKG_VERSION")
                }
                .to_owned(),
                observation: observation(),
            }),
        };
        assert_eq!(
            *reader.report(),
            Report {
                tail_bytes: report.tail_bytes + tail,
                another: Some(another),
                ..report
            }
        );
    }
    // A damaged header: what follows is another's all the same.
    let mut damaged = file.clone();
    damaged[30] ^= 1;
    let both = [&file[..], &damaged].concat();
    let (found, report) = read(&both);
    assert_eq!((found, report.another.unwrap().header), (inputs(), None));
    // A later format.
    let mut newer = file.clone();
    newer[8] = 7;
    let both = [&file[..], &newer].concat();
    let another = read(&both).1.another.unwrap();
    assert_eq!((another.at, another.header), (file.len() as u64, None));
}

/// Recordings of earlier versions have no numbers.
#[test]
fn a_recording_of_the_first_version_is_read() {
    let mut file = Vec::new();
    let header = Header {
        epitaph: "0".to_owned(),
        observation: observation(),
    };
    frames::append_header(&mut file, 1, &header).unwrap();
    for (now, input) in [(Boot(5), Input::Tick), (Boot(6), Input::End)] {
        let body = input_json(&input).unwrap();
        frames::append(&mut file, &frames::stamp(now, TAG_INPUT), &[&body]).unwrap();
    }
    let (found, report) = read(&file);
    assert_eq!(found, [(Boot(5), Input::Tick), (Boot(6), Input::End)]);
    assert_eq!(
        report,
        Report {
            inputs: 2,
            ..Report::default()
        }
    );
}

#[test]
fn damaged_length_is_damage_not_the_end() {
    let (mut file, starts) = record(&inputs());
    file[starts[3] + 2] = 0x0f;
    let (read, report) = read(&file);
    assert_eq!((read.len(), report.damaged, report.tail_bytes), (19, 1, 0));
}

#[test]
fn newer_format_names_both_versions() {
    let (mut file, _) = record(&inputs());
    file[8] = 7;
    expect![[r#"
        the recording has format version 7, and this epitaph reads up to 2
        remedy: replay it with the epitaph that wrote it, or a newer one"#]]
    .assert_eq(&error(&file));
}

#[test]
fn other_files_are_refused() {
    let (mut damaged, _) = record(&[]);
    let end = damaged.len() - 1;
    damaged[end] ^= 1;
    let rows = [&b""[..], b"EPITAPH\n", b"#!/bin/sh\nexit 0\n", &damaged, &damaged[..20]].map(|file| error(file) + "\n");
    expect![[r#"
        the file is not a recording
        remedy: give a file from `epitaph record` or `epitaph export`
        the file is not a recording
        remedy: give a file from `epitaph record` or `epitaph export`
        the file is not a recording
        remedy: give a file from `epitaph record` or `epitaph export`
        the header of the recording is damaged: the machine and the start are not known
        remedy: record, export or copy it again
        the header of the recording is damaged: the machine and the start are not known
        remedy: record, export or copy it again
    "#]]
    .assert_eq(&rows.concat());
}

#[test]
fn unreadable_file_is_an_error_with_the_cause() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk on fire"))
        }
    }
    let error = Reader::new(Broken, decode).err().unwrap();
    assert_eq!(error.to_string(), "cannot read the recording: disk on fire");

    let (file, _) = record(&inputs());
    let mut reader = Reader::new(std::io::Read::chain(&file[..], Broken), decode).unwrap();
    assert_eq!(reader.by_ref().count(), 11);
    assert_eq!(reader.report().error.as_deref(), Some("disk on fire"));
}

#[test]
fn additions_of_a_later_version_are_counted_or_ignored() {
    let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
    writer.raw(Boot(1), TAG_INPUT, br#"{"input":"eclipse","totality":true}"#);
    writer.raw(Boot(2), TAG_INPUT, br#"{"input":"clock","offset":9,"steered":"ntp"}"#);
    writer.raw(
        Boot(3),
        TAG_INPUT,
        br#"{"input":"lost","kind":"eclipse","since":1,"count":2}"#,
    );
    writer.raw(Boot(4), 9, b"another kind of payload");
    writer.record(Boot(5), &[6, 0, 99, 0]).unwrap();
    writer.record(Boot(6), &[77, 0, 1, 0]).unwrap();
    let (read, report) = read(&writer.into_inner());
    let unknown = |now, since| Input::part_missing(since).into_iter().map(move |lost| (now, lost));
    // Nothing was read before the first: since the begin of the observation.
    let mut expected: Vec<_> = unknown(Boot(1), observation().since).collect();
    expected.push((Boot(2), Input::Clock(WallOffset(9))));
    expected.extend(unknown(Boot(3), Boot(2)).chain(unknown(Boot(4), Boot(3))));
    // Without a time in its header.
    expected.push((Boot(5), Input::lost_by_machine(Kind::CgroupMkdir, Boot(0), 1)));
    assert_eq!(read, expected);
    assert_eq!(
        report,
        Report {
            inputs: expected.len() as u64,
            unknown_inputs: 3,
            undecodable: 2,
            ..Report::default()
        }
    );
}

/// The record may be as old as its header says, and arrive as late as any.
#[test]
fn an_undecodable_record_is_a_loss_of_its_kind_since_its_time() {
    let reorder = Limits::default().reorder;
    let [before, last, now] = [100_000_000, 1_000_000_000, 1_100_000_000].map(Boot);
    let record = |at: Boot| [&[3, 0, 99, 0, 0, 0, 0, 0][..], &at.0.to_le_bytes(), &[0; 4]].concat();
    let since = |at: Boot| {
        let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
        writer.input(last, &Input::Tick).unwrap();
        writer.record(now, &record(at)).unwrap();
        match read(&writer.into_inner()).0.pop() {
            Some((_, Input::Lost { kind, since, .. })) => {
                assert_eq!(kind, Kind::ProcessExit);
                since
            }
            other => panic!("{other:?}"),
        }
    };
    let just_before = last.minus(reorder / 2);
    assert_eq!(since(just_before), just_before);
    assert_eq!(since(before), last.minus(reorder));
    assert_eq!(since(Boot(u64::MAX)), now);
}

#[test]
fn too_long_an_input_is_refused() {
    let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
    let before = writer.len();
    assert!(matches!(
        writer.record(Boot(1), &vec![0; MAX_PAYLOAD]),
        Err(WriteError::TooLong(_))
    ));
    assert_eq!(writer.len(), before);
    writer.record(Boot(1), &vec![0; MAX_PAYLOAD - STAMP]).unwrap();
    assert_eq!(read(&writer.into_inner()).1.undecodable, 1);
}

fn is_loss(input: &Input) -> bool {
    matches!(input, Input::Lost { count: 1, .. } | Input::Node(NodeEvent::Lost { .. }))
}

/// Except for losses, the read inputs are a subsequence of the written ones.
fn assert_nothing_invented(read: &[(Boot, Input)]) {
    let written = inputs();
    let mut rest = written.iter();
    for input in read {
        assert!(
            is_loss(&input.1) || rest.any(|written| written == input),
            "invented {input:?}"
        );
    }
}

proptest! {
    #[test]
    fn any_truncation_keeps_what_is_whole(cut in any::<prop::sample::Index>()) {
        let (file, starts) = record(&inputs());
        let cut = cut.index(file.len());
        if let Ok(mut reader) = Reader::new(&file[..cut], decode) {
            let read: Vec<_> = reader.by_ref().collect();
            let whole = starts.iter().skip(1).chain([&file.len()]).filter(|end| **end <= cut).count();
            prop_assert_eq!(&read, &inputs()[..whole]);
            let end = starts.get(whole).copied().unwrap_or(file.len());
            prop_assert_eq!(reader.report().tail_bytes, (cut - end) as u64);
        } else {
            prop_assert!(cut < starts[0]);
        }
    }

    #[test]
    fn any_flipped_byte_costs_one_input(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let (mut file, starts) = record(&inputs());
        let at = at.index(file.len());
        file[at] ^= flip;
        if let Ok(mut reader) = Reader::new(&file[..], decode) {
            let read: Vec<_> = reader.by_ref().collect();
            assert_nothing_invented(&read);
            let kept = read.iter().filter(|(_, input)| !is_loss(input)).count();
            prop_assert_eq!(kept, inputs().len() - 1);
            let report = reader.report();
            prop_assert_eq!(report.damaged > 0, at < starts[10]);
            prop_assert_eq!(report.tail_bytes > 0, at >= starts[10]);
        } else {
            prop_assert!(at < starts[0]);
        }
    }

    #[test]
    fn any_damage_invents_nothing(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40)) {
        let (mut file, _) = record(&inputs());
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(reader) = Reader::new(&file[..], decode) {
            assert_nothing_invented(&reader.collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Reader::new(&bytes[..], decode).is_err());
        let (mut file, _) = record(&[]);
        file.extend(bytes);
        prop_assert_eq!(read(&file).0, []);
    }
}

impl Writer<Vec<u8>> {
    fn resume(file: Vec<u8>, number: u32) -> Writer<Vec<u8>> {
        Writer {
            out: file,
            frame: Vec::new(),
            number,
        }
    }
    fn raw(&mut self, now: Boot, tag: u8, body: &[u8]) {
        self.write(&frames::stamp(now, tag), body).unwrap();
    }
    fn len(&self) -> usize {
        self.out.len()
    }
}

#[test]
fn an_observation_without_the_v1_mode_is_read() {
    let read = |cgroups: &str| {
        let text = format!(r#"{{"boot_id":"b","host":"h","kernel":"6.1","wall_offset":0,"since":5,{cgroups}}}"#);
        serde_json::from_str::<Observation>(&text).unwrap().cgroups
    };
    assert_eq!(read(r#""hybrid":false"#), CgroupMode::V2);
    assert_eq!(read(r#""hybrid":true"#), CgroupMode::Hybrid);
    assert_eq!(read(r#""cgroups":"hybrid""#), CgroupMode::Hybrid);
    assert_eq!(read(r#""cgroups":{"v1":4}"#), CgroupMode::V1(4));
}

#[test]
fn the_state_of_a_pods_events_is_read_back() {
    let why = "no answer".to_owned();
    let inputs = [PodEventsState::Asked, PodEventsState::Known, PodEventsState::Unknown { why }].map(|state| {
        let events = PodEventsUpdate {
            uid: PodUid("uid".into()),
            seen: Boot(1_950),
            state,
        };
        (Boot(2_000), Input::PodEvents(events))
    });
    let (file, _) = record(&inputs);
    assert_eq!(read(&file).0, inputs);
}

/// The types were renamed after recordings had been written: the tag on disk stays, and the type's own name is read, too.
#[test]
fn a_pod_event_is_read_by_both_of_its_tags() {
    let body = r#""uid":"u","seen":5,"at":null,"container":"app","reason":"Killing","message":"m""#;
    let read = |tag: &str| serde_json::from_str::<StoredInput>(&format!(r#"{{"input":"{tag}",{body}}}"#)).unwrap();
    let event = read("pod_hint");
    assert_eq!(event, read("pod_event"));
    assert!(serde_json::to_string(&event).unwrap().starts_with(r#"{"input":"pod_hint""#));
    let update =
        |tag: &str| serde_json::from_str::<StoredInput>(&format!(r#"{{"input":"{tag}","uid":"u","seen":5,"state":"known"}}"#));
    assert_eq!(update("pod_hints").unwrap(), update("pod_events").unwrap());
}

#[test]
fn a_recording_is_its_owners_only_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let file = create(&path("new")).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);

    std::fs::write(path("old"), "evidence").unwrap();
    std::os::unix::fs::symlink(path("old"), path("link")).unwrap();
    std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
    for name in ["old", "link", "dangling"] {
        let error = create(&path(name)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{name}");
    }
    assert_eq!(std::fs::read_to_string(path("old")).unwrap(), "evidence");
    assert!(!path("nowhere").exists(), "a link is not followed");
}

/// Three of four bytes of this tail look like the begin of a frame, most of them of a megabyte.
#[test]
fn a_file_that_is_made_to_be_slow_is_given_up() {
    let (mut file, _) = record(&inputs());
    let end = file.len();
    file.resize(end + (4 << 20), 0);
    for (at, byte) in file[end..].iter_mut().enumerate() {
        *byte = if at % 4 == 2 { 0x0f } else { 0 };
    }
    let (read, report) = read(&file);
    assert_eq!(read, inputs());
    let error = report.error.unwrap();
    assert_eq!(error, "too much of the file is damaged to find the next input");
}

/// Older readers take the begin of a part for a loss: their doubt is not smaller.
#[test]
fn what_newer_versions_add_is_read_back() {
    let not_recorded = Input::Lost {
        kind: Kind::Tcp,
        scope: LossScope::NotRecorded,
        since: Boot(1_500),
        count: 1,
    };
    let created = Input::Cgroup(CgroupFact {
        created: Some(Boot(1_400)),
        ..CgroupFact::of(CgroupId::v2(9), Ok("/b.service".to_owned()))
    });
    let mut stored = Vec::new();
    for input in [&not_recorded, &created] {
        let json = input_json(input).unwrap();
        let read: StoredInput = serde_json::from_slice(&json).unwrap();
        assert_eq!(read.input().as_ref(), Some(input));
        stored.push(String::from_utf8(json).unwrap());
    }
    expect![[r#"
        {"input":"lost","kind":"tcp","since":1500,"count":1,"not_recorded":true}
        {"input":"cgroup","cgroup":{"hierarchy":0,"id":9},"path":{"Ok":"/b.service"},"created":1400}"#]]
    .assert_eq(&stored.join("\n"));
}
