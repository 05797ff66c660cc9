//! `epitaph why` and `epitaph list` as processes: what they print, their exit codes, and the memory that they take.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use epitaph::recording::Writer;
use epitaph_core::decode::encode::encode;
use epitaph_core::event::{Armed, CgroupMkdir, CgroupRmdir, Event, ExitStatus, ProcessExec, ProcessExit, Task};
use epitaph_core::fixtures::{pods, sample, terminations};
use epitaph_core::ids::{CgroupId, Comm, Pid};
use epitaph_core::input::Input;
use epitaph_core::render::json;
use epitaph_core::time::Boot;

/// Private memory of a command that reads a full journal: it shares the agent's limit in Kubernetes.
const MEMORY: usize = 16 << 20;

/// The same with a recording: with what the core may hold (`limits.memory`).
const RECORDING: usize = MEMORY + (16 << 20);

/// Most bytes of a journal.
const JOURNAL: usize = 64 << 20;

fn history() -> String {
    let (sample, observation) = (sample::observation(), terminations::observation());
    [
        json::line(&json::observing(&sample, &sample::probes())),
        json::line(&json::termination(&sample::ignored(), &sample)),
        json::line(&json::termination(&sample::unknown_unit(), &sample)),
        json::line(&json::termination(&pods::restarted(1), &observation)),
        json::line(&json::pod_termination(&pods::pod(1), &observation)),
    ]
    .concat()
}

fn epitaph(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_epitaph"))
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its input early closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Standard output; the command must succeed without a word on standard error.
fn shown(args: &[&str]) -> String {
    let output = epitaph(args, &history());
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and standard error.
fn refused(args: &[&str], input: &str) -> (i32, String) {
    let output = epitaph(args, input);
    assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn why_shows_the_newest_termination_of_a_name() {
    let text = shown(&["why", "--from", "-", "cart"]);
    for part in [
        "pod shop/cart-7d9f8b6c5-x2x4z\nimage registry.example:5000/shop/app:1.4.2\n",
        "SIGKILL from the runtime",
        "\nRemedy\n",
        "1 of 1 earlier termination of Deployment shop/cart",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "colour in a pipe: {text}");
    assert!(shown(&["why", "--from", "-", "nginx", "--color", "always"]).contains("\u{1b}[1munit nginx.service\u{1b}[0m"));
    assert!(shown(&["why", "--from", "-", "-v", "3f1c0d4e"]).contains("signal_generate: SIGTERM from `containerd-shim`"));
    let page = shown(&["why", "--from", "-", "--output", "markdown", "shop/cart-7d9f8b6c5-x2x4z/app"]);
    assert!(
        page.starts_with("# pod shop/cart-7d9f8b6c5-x2x4z, container app: ignored-stop-signal\n"),
        "{page}"
    );
    let object: serde_json::Value = serde_json::from_str(&shown(&["why", "--from", "-", "--output", "json", "cart"])).unwrap();
    assert_eq!(
        (&object["type"], &object["report"]["type"]),
        (&"why".into(), &"pod-termination".into())
    );
    // A beginning may be one of several names.
    let beginning = shown(&["why", "--from", "-", "cart-7d9f"]);
    for part in [
        "\n2 terminations begin with this name or id; this is the newest\n",
        "\nEarlier, whose name begins with this (",
    ] {
        assert!(beginning.contains(part), "{part}: {beginning}");
    }
    assert_eq!(object["matched"], "workload");
    // A filter decides which one is the newest.
    let container = shown(&[
        "why",
        "--from",
        "-",
        "cart",
        "--until",
        "2023-11-14T23:37:10.1Z",
        "-n",
        "shop",
    ]);
    assert!(
        container.starts_with("pod shop/cart-7d9f8b6c5-x2x4z, container app\n"),
        "{container}"
    );
}

#[test]
fn list_shows_a_line_each_and_counts() {
    let text = shown(&["list", "--from", "-"]);
    assert_eq!(text.lines().count(), 4, "{text}");
    let of_the_day = ["list", "--from", "-", "--since", "2026-01-02", "--until", "2026-01-03"];
    assert_eq!(shown(&of_the_day).lines().count(), 2);
    let unclean = shown(&["list", "--from", "-", "--unclean", "--namespace", "shop"]);
    assert_eq!(unclean.lines().count(), 2, "{unclean}");
    assert_eq!(
        shown(&["list", "--from", "-", "--since", "2025-01-01T00:00:00Z"])
            .lines()
            .count(),
        2
    );
    // The objects, but for those that are not terminations.
    let objects = shown(&["list", "--from", "-", "--output", "json"]);
    let terminations: Vec<String> = history().lines().skip(1).map(str::to_owned).collect();
    assert_eq!(objects.lines().map(str::to_owned).collect::<Vec<_>>(), terminations);
    let summary = shown(&["list", "--from", "-", "--summary"]);
    assert!(
        summary.starts_with("4 terminations, 3 unclean, ") && summary.contains("!       2  Deployment shop/cart"),
        "{summary}"
    );
    // What one command prints, another one reads.
    let output = epitaph(&["list", "--from", "-", "--verdict", "unknown"], &objects);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
}

#[test]
fn a_container_outside_of_kubernetes_is_found_by_its_name() {
    let observation = sample::observation();
    let mut described = sample::ignored();
    described.facts.container = Some(std::sync::Arc::new(sample::described()));
    let line = json::line(&json::termination(&described, &observation));
    // Started again: another id.
    let input = [line.clone(), line.replace("3f1c0d4e5a6b7c8d", "4f1c0d4e5a6b7c8d")].concat();
    let shown = |args: &[&str]| String::from_utf8(epitaph(args, &input).stdout).unwrap();
    let why = shown(&["why", "--from", "-", "checkout"]);
    for part in [
        "container checkout (4f1c0d4e5a6b)\nimage shop:1.4\n",
        "1 of 1 earlier termination of container checkout",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(shown(&["list", "--from", "-"]).contains(" checkout "));
    let summary = shown(&["list", "--from", "-", "--summary"]);
    assert!(summary.contains("!       2  container checkout"), "{summary}");
}

#[test]
fn a_name_that_is_not_known_is_an_error_with_the_reach() {
    let (code, error) = refused(&["why", "--from", "-", "carts"], &history());
    assert_eq!(code, 66);
    for part in [
        "error: no termination of `carts` in standard input, which has 4 terminations since 2023-11-14 23:37:10 UTC",
        "remedy: did you mean `cart`? `epitaph list` with the same `--from` shows what is known",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let (code, error) = refused(&["why", "--from", "-", "\u{1b}[2J"], "");
    assert!(
        code == 66 && error.contains("which has none") && !error.contains('\u{1b}'),
        "{error}"
    );
    // Shorter than the beginning of an id may be.
    let (code, error) = refused(&["why", "--from", "-", "3f1"], &history());
    assert!(code == 66 && error.contains("needs 4 digits or more"), "{error}");
    // An empty list is not an error.
    let output = epitaph(&["list", "--from", "-", "--since", "1h"], &history());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{error}");
    assert!(
        error.contains("no such termination in standard input, which has 4"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_a_remedy() {
    let (code, error) = refused(&["why", "--from", "/nonexistent", "x"], "");
    assert!(code == 66 && error.contains("remedy: "), "{code} {error}");
    for args in [["why", "--from", "-", "x"].as_slice(), &["list", "--from", "-"]] {
        let (code, error) = refused(args, "hello\nworld\n");
        assert!(code == 65 && error.contains("2 damaged lines"), "{code} {error}");
        let (code, error) = refused(args, "EPITAPH\n\u{1}\0\0\0");
        assert!(
            code == 65 && error.contains("the header of the recording is damaged"),
            "{code} {error}"
        );
    }
    for args in [
        ["list", "--since", "60"].as_slice(),
        &["list", "--since", "1h", "--until", "2h"],
        &["why", "x", "--since", "2026-01-02", "--until", "2026-01-01"],
        &["why"],
        &["list", "--verdict", "quiet"],
        &["why", "x", "--output", "xml"],
    ] {
        assert_eq!(refused(args, "").0, 64, "{args:?}");
    }
    let damaged = format!("{}{{\"type\":\"termination\",\n", history());
    let output = epitaph(&["list", "--from", "-"], &damaged);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && error.contains("1 damaged line"), "{error}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 4);
}

/// As many different containers as fit: every table is as full as it gets.
fn full_history() -> impl Iterator<Item = String> {
    let lines: Vec<String> = history().lines().skip(1).map(|line| format!("{line}\n")).collect();
    let mut written = 0;
    (0_u64..)
        .map(move |n| {
            lines[n as usize % lines.len()]
                .replace("3f1c0d4e5a6b7c8d", &format!("{n:016x}"))
                .replace("nginx.service", &format!("unit-{n}.service"))
                .replace("\"name\":\"cart\"", &format!("\"name\":\"cart-{n}\""))
        })
        .take_while(move |line| {
            written += line.len();
            written <= JOURNAL
        })
}

/// A frame of a recording or journal: length, checksum of length and payload, payload.
fn frame(payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let mut crc = crc32fast::Hasher::new();
    crc.update(&length);
    crc.update(&payload);
    [&length, &crc.finalize().to_le_bytes(), payload.as_slice()].concat()
}

/// Segments as the format is documented, each of a few megabytes.
fn journal(directory: &Path, lines: impl Iterator<Item = String>) {
    let header = serde_json::json!({"epitaph": "0.1.0", "observation": terminations::observation(), "first": true}).to_string();
    let begin = [b"EPITAPH\n".as_slice(), &1_u32.to_le_bytes(), &frame(&[header.as_bytes()])].concat();
    let (mut segment, mut number) = (begin.clone(), 1);
    let mut write = |segment: &mut Vec<u8>| {
        std::fs::write(directory.join(format!("{number:016}.journal")), &*segment).unwrap();
        segment.clone_from(&begin);
        number += 1;
    };
    for (id, line) in lines.enumerate() {
        let length = u32::try_from(line.len()).unwrap().to_le_bytes();
        // Time and tag; wall time, trace, span, number of spans, length of the JSON, the JSON.
        segment.extend(frame(&[
            &7_u64.to_le_bytes(),
            &[2],
            &[0; 8],
            &(id as u128).to_le_bytes(),
            &[0; 8 + 4],
            &length,
            line.as_bytes(),
        ]));
        if segment.len() > 4 << 20 {
            write(&mut segment);
        }
    }
    write(&mut segment);
}

/// A segment with the evidence of one process that exits.
fn journal_with_evidence(directory: &Path) {
    let recording = directory.join("recording");
    full_recording(&recording, 1);
    let bytes = std::fs::read(&recording).unwrap();
    std::fs::remove_file(&recording).unwrap();
    let header = serde_json::json!({
        "version": 2, "epitaph": "0.1.0", "observation": terminations::observation(), "first": true, "number": 0,
    });
    let begin = [
        b"EPITAPH\n".as_slice(),
        &2_u32.to_le_bytes(),
        &frame(&[header.to_string().as_bytes()]),
    ]
    .concat();
    let header_end = 20 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    std::fs::write(
        directory.join("0000000000000001.journal"),
        [&begin, &bytes[header_end..]].concat(),
    )
    .unwrap();
}

/// The address of an agent that is ready.
fn always_ready() -> String {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A request for /readyz is one segment.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
        }
    });
    address
}

fn bounded(args: &[&str]) -> String {
    bounded_by(MEMORY, args)
}

/// By the kernel's own limit of private memory: an allocation beyond it fails, and the command with it.
fn bounded_by(memory: usize, args: &[&str]) -> String {
    let output = Command::new("prlimit")
        .arg(format!("--data={memory}"))
        .arg(env!("CARGO_BIN_EXE_epitaph"))
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    // These journals end years ago.
    let is_old = |line: &str| line.starts_with("warning: nothing has been written to the journal since ");
    assert!(
        output.status.success() && error.lines().all(is_old),
        "{args:?}: {}: {error}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_full_journal_is_read_within_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    journal(directory.path(), full_history());
    let count = full_history().count();
    let source = ["--journal", directory.path().to_str().unwrap()];
    let with = |args: &[&str]| bounded(&[args, &source].concat());
    assert_eq!(with(&["list"]).lines().count(), count);
    assert!(with(&["list", "--summary"]).starts_with(&format!("{count} terminations, ")));
    let object: serde_json::Value = serde_json::from_str(&with(&["list", "--summary", "--output", "json"])).unwrap();
    assert_eq!(object["workloads"].as_array().map(Vec::len), Some(4096));
    assert!(with(&["why", "shop/cart-7d9f8b6c5-x2x4z"]).contains("more: `epitaph list`"));
}

#[test]
fn a_full_file_is_read_within_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.json");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
    full_history().for_each(|line| out.write_all(line.as_bytes()).unwrap());
    out.flush().unwrap();
    assert!(bounded(&["list", "--summary", "--from", file.to_str().unwrap()]).contains("terminations"));
}

/// A container that starts and exits with code 1, and another one, and so on.
fn full_recording(file: &Path, containers: u32) {
    let out = std::io::BufWriter::new(std::fs::File::create(file).unwrap());
    let mut writer = Writer::new(out, &terminations::observation()).unwrap();
    let mut at = 1_000_000_000;
    let mut write = |event: &Event| {
        at += 1_000_000;
        writer.record(Boot(at), &encode(at, event)).unwrap();
    };
    for n in 1..=containers {
        let cgroup = CgroupId::v2(1_000 + u64::from(n));
        let task = Task {
            tgid: Pid(10_000 + n),
            tid: Pid(10_000 + n),
            ppid: Pid(500),
            ns_level: 1,
            ns_pid: 1,
            pidns: 4_026_531_840,
            cgroup,
            v1_cgroup: None,
            container: None,
            start: Boot(u64::from(n)),
            comm: Comm::new("job"),
        };
        write(&Event::CgroupMkdir(CgroupMkdir {
            cgroup,
            parent: CgroupId::v2(1),
            container: None,
            path: Some(format!("/system.slice/cri-containerd-{n:064x}.scope")),
        }));
        write(&Event::ProcessExec(ProcessExec {
            task,
            parent_cgroup: CgroupId::v2(2),
            parent_v1_cgroup: None,
            parent_container: None,
            parent_comm: Comm::new("containerd-shim"),
        }));
        write(&Event::ProcessExit(ProcessExit {
            task,
            status: ExitStatus::Exited(1),
            armed: Some(Armed::No),
            held: None,
            unobserved: false,
            leaves_others: false,
            is_own: false,
        }));
        write(&Event::CgroupRmdir(CgroupRmdir { cgroup }));
    }
    // Later than the last one is judged.
    at += 10_000_000_000;
    writer.input(Boot(at), &Input::End).unwrap();
    writer.flush().unwrap();
}

/// Longer than the memory: the core that judges the evidence is bounded, too.
#[test]
fn a_long_recording_is_read_within_the_memory() {
    const CONTAINERS: u32 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("long.epitaph");
    full_recording(&file, CONTAINERS);
    assert!(std::fs::metadata(&file).unwrap().len() > MEMORY as u64);
    let from = ["--from", file.to_str().unwrap()];
    let summary = bounded_by(RECORDING, &[&["list", "--summary"], &from[..]].concat());
    assert!(summary.starts_with(&format!("{CONTAINERS} terminations, ")), "{summary}");
    let why = bounded_by(RECORDING, &[&["why", &format!("{CONTAINERS:064x}")], &from[..]].concat());
    assert!(why.contains("PID 1 `job` exited with code 1"), "{why}");
}

/// The evidence of a demo story.
fn story(name: &str) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/stories");
    corpus.join(format!("{name}.epitaph"))
}

#[test]
fn a_recording_is_judged_and_then_shown() {
    let file = story("ignored-without-handler");
    let path = file.to_str().unwrap();
    let text = |args: &[&str]| {
        let output = epitaph(args, "");
        assert!(output.status.success(), "{args:?}: {output:?}");
        (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (list, error) = text(&["list", "--from", path, "--output", "json"]);
    assert_eq!(error, "");
    let report: serde_json::Value = serde_json::from_str(list.trim_end()).unwrap();
    assert_eq!(report["verdict"], "ignored-stop-signal");
    let id = report["subject"]["id"].as_str().unwrap();
    let (why, _) = text(&["why", "--from", path, &id[..12]]);
    for part in ["ignored-stop-signal  UNCLEAN", "SIGKILL from the runtime", "\nRemedy\n"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(text(&["list", "--from", path, "--verdict", "clean"]).0, "");
    // Standard input as well; and the reach of a name that is not there is the recording's.
    let piped = Command::new(env!("CARGO_BIN_EXE_epitaph"))
        .args(["why", "--from", "-", "no-such-name"])
        .stdin(std::fs::File::open(&file).unwrap())
        .env_clear()
        .output()
        .unwrap();
    let error = String::from_utf8(piped.stderr).unwrap();
    assert!(
        piped.status.code() == Some(66) && error.contains("in standard input, which has 1 termination since"),
        "{error}"
    );

    // A recorder that was killed in the middle of a write.
    let directory = tempfile::tempdir().unwrap();
    let cut = directory.path().join("cut.epitaph");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    let cut = cut.to_str().unwrap();
    for args in [["list", "--from", cut].as_slice(), &["why", "--from", cut, &id[..12]]] {
        let (_, error) = text(args);
        assert!(
            error.lines().count() == 1 && error.starts_with("warning: ") && error.contains("bytes of an incomplete end"),
            "{error}"
        );
    }
    let replayed = epitaph(&["replay", cut], "");
    let error = String::from_utf8(replayed.stderr).unwrap();
    assert!(
        replayed.status.code() == Some(65) && !replayed.stdout.is_empty() && error.contains("bytes of an incomplete end"),
        "{error}"
    );
}

/// At the edge of a frame nothing is damaged, and what followed is not known: counts of clients are the least.
#[test]
fn a_recording_that_was_cut_says_so_and_counts_the_least() {
    let bytes = std::fs::read(story("load-close-and-drain")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cut.epitaph");
    let path = file.to_str().unwrap();
    let shown = |end: usize| {
        std::fs::write(&file, &bytes[..end]).unwrap();
        let output = epitaph(&["list", "--from", path, "--output", "json"], "");
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{error}");
        let list = String::from_utf8(output.stdout).unwrap();
        let mut reports = list
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        (reports.next_back(), error)
    };
    let (whole, error) = shown(bytes.len());
    let all = whole.unwrap()["connections"]["refused"].as_u64().unwrap();
    assert_eq!(error, "");
    let ends = frames(&bytes);
    let mut fewer = 0;
    for end in ends.iter().step_by(ends.len() / 40) {
        let (report, error) = shown(*end);
        assert!(
            error.lines().filter(|line| line.starts_with("warning: ")).count() == 1 && error.contains("has no end record"),
            "{error}"
        );
        let Some(report) = report.filter(|report| report["verdict"] == "refused-connections") else {
            continue;
        };
        let why = epitaph(&["why", report["trace_id"].as_str().unwrap(), "--from", path], "");
        let error = String::from_utf8(why.stderr).unwrap();
        assert!(
            why.status.success() && error.lines().count() == 1 && error.contains("has no end record"),
            "{error}"
        );
        if report["connections"]["refused"].as_u64().unwrap() < all {
            fewer += 1;
            for text in ["sentence", "remedy"] {
                assert!(report[text].as_str().unwrap().contains("at least "), "{report}");
            }
        }
    }
    assert!(fewer > 0);
}

/// Ends of the frames after the header, by the format that src/recording/mod.rs describes.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut at = 12;
    let mut ends = Vec::new();
    while let Some(length) = bytes.get(at..at + 4) {
        at += 8 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        ends.push(at);
    }
    ends.remove(0);
    ends
}

#[test]
fn a_recording_is_read_from_standard_input() {
    let file = story("ignored-without-handler");
    let from_file = epitaph(&["replay", "--output", "json", file.to_str().unwrap()], "");
    let piped = Command::new(env!("CARGO_BIN_EXE_epitaph"))
        .args(["replay", "--output", "json", "-"])
        .stdin(std::fs::File::open(&file).unwrap())
        .env_clear()
        .output()
        .unwrap();
    assert!(piped.status.success(), "{piped:?}");
    assert_eq!(piped.stdout, from_file.stdout);
    assert_eq!(refused(&["replay", "-"], "").0, 65);
}

#[test]
fn a_file_that_no_command_can_use_has_the_same_code_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let (empty, dir) = (empty.to_str().unwrap(), directory.path().to_str().unwrap());
    for (path, code, part) in [
        (empty, 65, "is empty"),
        (dir, 66, "is a directory"),
        ("/nonexistent", 66, "cannot open /nonexistent"),
    ] {
        for args in [
            ["replay", path].as_slice(),
            &["list", "--from", path],
            &["why", "x", "--from", path],
        ] {
            let (given, error) = refused(args, "");
            assert!(
                given == code && error.contains(part) && error.contains("\nremedy: "),
                "{args:?}: {given} {error}"
            );
        }
    }
    // What a file does not have, no other machine has either.
    let file = story("ignored-without-handler");
    let (_, error) = refused(&["why", "carts", "--from", file.to_str().unwrap()], "");
    assert!(error.contains("`--from`") && !error.contains("node"), "{error}");
}

/// As nobody: root may read every file.
#[test]
fn a_file_that_this_user_may_not_read_is_not_a_wrong_file() {
    if !nix::unistd::geteuid().is_root() {
        println!("not root: skipped");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::copy(story("ignored-without-handler"), &file).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(directory.path(), 0o755);
    mode(&file, 0o600);
    let path = file.to_str().unwrap();
    let program = directory.path().join("epitaph");
    // By another process: a child that another test forks then would hold our file open for writing, and it would be busy.
    let copied = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_epitaph").as_ref(), program.as_os_str()])
        .status();
    assert!(copied.unwrap().success());
    for args in [
        ["replay", path].as_slice(),
        &["list", "--from", path],
        &["why", "x", "--from", path],
    ] {
        use std::os::unix::process::CommandExt as _;
        let output = Command::new(&program)
            .args(args)
            .env_clear()
            .uid(65_534)
            .gid(65_534)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(77) && error.contains("remedy: run this as a user who may read the file"),
            "{args:?}: {error}"
        );
    }
}

/// The last block fails, too: nothing is lost without a word.
#[test]
fn a_full_disk_is_an_error_of_every_command_that_prints() {
    let file = story("load-close-and-drain");
    let path = file.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    journal(directory.path(), history().lines().skip(1).map(|line| format!("{line}\n")));
    let kept = ["--journal", directory.path().to_str().unwrap()];
    let evidence = tempfile::tempdir().unwrap();
    journal_with_evidence(evidence.path());
    let ready = always_ready();
    for args in [
        ["replay", path].as_slice(),
        &["replay", path, "--output", "json"],
        &["list", "--from", path],
        &["list", "--from", path, "--summary", "--output", "json"],
        &[["why", "cart"].as_slice(), &kept].concat(),
        &["explain", "crashed"],
        &["agent", "--print-config"],
        &["--help"],
        &["--version"],
        &["list", "--help"],
        &[["list"].as_slice(), &kept].concat(),
        &["doctor", "--only", "shutdown"],
        &["doctor", "--only", "shutdown", "--output", "json"],
        &["logind", "--print"],
        &["export", "-", "--journal", evidence.path().to_str().unwrap()],
        &["ready", &ready],
    ] {
        let mut codes = std::collections::BTreeSet::new();
        // Its threads race: what one run in six shows, 9 runs miss as often.
        let runs = if args[0] == "replay" { 90 } else { 9 };
        for _ in 0..runs {
            let output = Command::new(env!("CARGO_BIN_EXE_epitaph"))
                .args(args)
                .env_clear()
                .stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
                .output()
                .unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            codes.insert(output.status.code());
            assert!(error.contains("cannot write to standard output"), "{args:?}: {error}");
        }
        assert_eq!(codes.into_iter().collect::<Vec<_>>(), [Some(71)], "{args:?}");
    }
}

#[test]
fn damage_in_a_journal_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let lines: Vec<String> = history().lines().skip(1).map(|line| format!("{line}\n")).collect();
    journal(
        directory.path(),
        lines
            .iter()
            .cloned()
            .chain(["{\"type\":\"termination\",\"end\":7}\n".to_owned()]),
    );
    let path = directory.path().to_str().unwrap();
    let output = epitaph(&["list", "--journal", path], "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && error.contains("1 report that this version does not understand"),
        "{error}"
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), lines.len());
    // A flipped bit in the first report.
    let file = directory.path().join("0000000000000001.journal");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(13).position(|window| window == b"\"termination\"").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = epitaph(&["list", "--journal", path, "--output", "json"], "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && error.contains("1 damaged place, "), "{error}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        shown.lines().collect::<Vec<_>>(),
        lines[1..].iter().map(|line| line.trim_end()).collect::<Vec<_>>()
    );
}

#[test]
fn a_journal_that_is_not_there_has_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("none");
    let (code, error) = refused(&["list", "--journal", missing.to_str().unwrap()], "");
    assert!(code == 66 && error.contains("journal.directory"), "{code} {error}");
    // An empty one knows nothing.
    let (code, error) = refused(&["why", "x", "--journal", directory.path().to_str().unwrap()], "");
    assert!(code == 66 && error.contains("no agent has written there"), "{code} {error}");
    // Some other directory is not one.
    std::fs::create_dir(directory.path().join("journal")).unwrap();
    std::fs::write(directory.path().join("notes.txt"), "x").unwrap();
    let path = directory.path().to_str().unwrap();
    let out = directory.path().join("out.epitaph");
    for args in [
        ["list", "--journal", path].as_slice(),
        &["export", "--journal", path, out.to_str().unwrap()],
    ] {
        let (code, error) = refused(args, "");
        assert!(code == 66 && error.contains("is not a journal"), "{code} {error}");
        assert!(error.contains(&format!("remedy: give {path}/journal")), "{error}");
    }
    // The configuration of the agent names the journal.
    let config = directory.path().join("epitaph.toml");
    std::fs::write(&config, format!("[journal]\ndirectory = {missing:?}\n")).unwrap();
    let (code, error) = refused(&["list", "--config", config.to_str().unwrap()], "");
    assert!(code == 66 && error.contains(missing.to_str().unwrap()), "{code} {error}");
}

/// What a terminal with so many columns gets from the program.
fn on_a_terminal(kind: &str, columns: usize, args: &str) -> String {
    let output = played_on_a_terminal(kind, columns, args);
    assert!(output.status.success(), "{args}: {output:?}");
    text(output)
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

/// Through a pseudo-terminal of util-linux.
fn played_on_a_terminal(kind: &str, columns: usize, args: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_epitaph");
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("stty cols {columns} rows 24 && exec {program} {args}"))
        .arg("/dev/null")
        .env_clear()
        .envs([("TERM", kind), ("PATH", "/usr/bin:/bin")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Open until the end: otherwise an end of input would be typed.
    let typed = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(typed);
    output
}

#[test]
fn a_terminal_without_control_codes_gets_none_and_a_list_has_a_header_and_fits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.jsonl");
    std::fs::write(&file, history()).unwrap();
    let list = format!("list --from {}", file.display());
    let why = format!("why --from {} cart", file.display());
    for args in [&list, &why] {
        assert!(on_a_terminal("xterm", 80, args).contains('\u{1b}'), "{args}");
        let dumb = on_a_terminal("dumb", 80, args);
        assert!(!dumb.contains('\u{1b}') && dumb.lines().count() > 3, "{args}: {dumb}");
    }
    let shown = on_a_terminal("dumb", 80, &list);
    let header = shown.lines().next().unwrap();
    assert!(header.trim_start().starts_with("time") && header.contains("name"), "{shown}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// Of the doctor any exit code: what it finds is the machine's.
#[test]
fn help_doctor_and_explain_send_no_control_codes_to_a_dumb_terminal() {
    for args in [
        "--help",
        "help watch",
        "doctor --help",
        "doctor",
        "explain",
        "explain oom-killed EpitaphAgentDown 137",
    ] {
        let shown = text(played_on_a_terminal("dumb", 80, args));
        assert!(!shown.contains('\u{1b}') && shown.lines().count() > 3, "{args}: {shown}");
    }
}

#[test]
fn the_doctor_is_as_wide_as_the_terminal() {
    for columns in [80, 100] {
        let shown = text(played_on_a_terminal("dumb", columns, "doctor"));
        // A path that is longer than the rest of its line is whole.
        for line in shown.lines().filter(|line| line.trim_start().contains(' ')) {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
    }
}

#[test]
fn help_and_explanations_are_as_wide_as_the_terminal() {
    let explained = [
        "explain EpitaphUncleanTermination",
        "explain crashed",
        "explain held-by-api",
        "explain tcp_send_reset",
    ];
    for args in ["--help", "watch --help", "list --help"].into_iter().chain(explained) {
        let widest = |columns| {
            let text = on_a_terminal("dumb", columns, args);
            // A word that is longer than the rest of its line is whole.
            let lines = text.lines().filter(|line| line.trim_start().contains(' '));
            lines.map(|line| line.chars().count()).max().unwrap_or_default()
        };
        let [narrow, wide] = [60, 100].map(widest);
        assert!(narrow <= 60, "{args}: {narrow}");
        assert!((61..=100).contains(&wide), "{args}: {wide}");
    }
}
