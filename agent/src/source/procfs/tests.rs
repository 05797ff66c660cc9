use std::fmt::Write;

use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::*;
use crate::error::lines;

const A: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

/// A machine's `/proc` and `/sys`, made of files.
struct Machine(TempDir);

impl Machine {
    /// cgroup v2 only.
    fn v2() -> Machine {
        let machine = Machine(TempDir::new().unwrap());
        machine.file(
            "proc/self/mountinfo",
            "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        machine.file("proc/self/cgroup", "0::/\n");
        machine.file("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        machine
    }

    fn hybrid() -> Machine {
        let machine = Machine(TempDir::new().unwrap());
        machine.file(
            "proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             44 31 0:37 /system.slice /srv/with\\040space rw - cgroup cgroup rw,xattr,name=systemd\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        );
        machine.file(
            "proc/self/cgroup",
            "9:name=systemd:/\n4:memory:/\n3:freezer:/\n1:cpu,cpuacct:/\n0::/\n",
        );
        for name in ["cpu,cpuacct", "memory", "systemd", "unified"] {
            machine.cgroup(&format!("{name}/"), &[]);
        }
        machine
    }

    /// As [`Machine::hybrid`], without v2.
    fn v1() -> Machine {
        let machine = Machine::hybrid();
        let v2 = |line: &&str| line.contains("cgroup2") || line.starts_with("0:");
        for name in ["mountinfo", "cgroup"] {
            let path = machine.0.path().join("proc/self").join(name);
            let text = fs::read_to_string(path).unwrap();
            let lines: Vec<&str> = text.lines().filter(|line| !v2(line)).collect();
            machine.file(&format!("proc/self/{name}"), &(lines.join("\n") + "\n"));
        }
        fs::remove_dir_all(machine.0.path().join("sys/fs/cgroup/unified")).unwrap();
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn cgroup(&self, path: &str, pids: &[u32]) {
        let pids: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        self.file(&format!("sys/fs/cgroup/{path}/cgroup.procs"), &pids);
    }

    fn process(&self, pid: u32, comm: &str, ticks: u64, nspid: &str, cgroups: &str) {
        let stat = format!("{pid} ({comm}) S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {ticks} 9 9\n");
        self.file(&format!("proc/{pid}/stat"), &stat);
        self.file(
            &format!("proc/{pid}/status"),
            &format!("Name:\tx\nNStgid:\t1\nNSpid:\t{nspid}\nThreads:\t1\n"),
        );
        self.file(&format!("proc/{pid}/cgroup"), cgroups);
    }

    fn open(&self) -> Procfs {
        self.open_at(&self.0.path().join("own")).unwrap()
    }

    /// `own`: where our own part of the hierarchies is mounted.
    fn open_at(&self, own: &Path) -> Result<Procfs, ProcfsError> {
        let (proc, sys) = (self.0.path().join("proc"), self.0.path().join("sys"));
        Procfs::seen_from(&proc, &sys, own, &proc.join("self"))
    }

    fn ino(&self, path: &str) -> u64 {
        inode(&self.0.path().join("sys/fs/cgroup").join(path)).unwrap()
    }
}

/// Inputs as text. Ids are checked against the directories' inodes and shown as `ok`.
fn scan(procfs: &Procfs) -> Vec<Input> {
    let mut inputs = Vec::new();
    let all: Result<(), ProcfsError> = procfs.scan(|input| {
        inputs.push(input);
        Ok(())
    });
    all.unwrap();
    inputs
}

fn show(machine: &Machine, inputs: &[Input]) -> String {
    let mut out = String::new();
    let directory = |hierarchy: u32, path: &str| match (hierarchy, machine.0.path().join("sys/fs/cgroup/unified").exists()) {
        (0, false) => path[1..].to_owned(),
        (0, true) => format!("unified{path}"),
        (1, _) => format!("cpu,cpuacct{path}"),
        (4, _) => format!("memory{path}"),
        (9, _) => format!("systemd{path}"),
        (other, _) => panic!("hierarchy {other}"),
    };
    let id = |cgroup: &CgroupId, path: &str| match cgroup.id {
        0 => "no id".to_owned(),
        id if id == machine.ino(&directory(cgroup.hierarchy, path)) => "ok".to_owned(),
        id => format!("wrong id {id}"),
    };
    for input in inputs {
        match input {
            Input::Cgroup(CgroupFact {
                cgroup, path: Ok(path), ..
            }) => {
                writeln!(out, "cgroup {} {path} {}", cgroup.hierarchy, id(cgroup, path)).unwrap();
            }
            Input::Cgroup(CgroupFact { path: Err(reason), .. }) => writeln!(out, "cgroup: {reason}").unwrap(),
            Input::Process(p) if p.is_gone() => writeln!(out, "process {} gone", p.tgid).unwrap(),
            Input::Process(p) => {
                let (ns, start) = ((p.ns_level, p.ns_pid), p.start.0);
                writeln!(out, "process {} of {} since {start} ns {ns:?} {:?}", p.tgid, p.ppid, p.comm).unwrap();
                for (cgroup, path) in &p.cgroups {
                    writeln!(out, "  {} {path} {}", cgroup.hierarchy, id(cgroup, path)).unwrap();
                }
            }
            other => panic!("{other:?}"),
        }
    }
    out.replace(A, "{A}")
}

fn check(machine: &Machine, inputs: &[Input], expected: Expect) {
    expected.assert_eq(&show(machine, inputs));
}

#[test]
fn scan_of_v2() {
    let machine = Machine::v2();
    machine.cgroup("system.slice", &[]);
    machine.cgroup("system.slice/nginx.service", &[50]);
    machine.cgroup(&format!("system.slice/docker-{A}.scope"), &[42, 43, 99]);
    machine.cgroup("init.scope", &[1]);
    machine.process(42, "web) (x", 200, "42\t1", &format!("0::/system.slice/docker-{A}.scope\n"));
    machine.process(43, "child", 300, "43 7", &format!("0::/system.slice/docker-{A}.scope\n"));
    machine.process(50, "nginx", 100, "50", "0::/system.slice/nginx.service\n");
    let mut inputs = scan(&machine.open());
    let position = |inputs: &[Input], of: &str| {
        inputs
            .iter()
            .position(|input| matches!(input, Input::Cgroup(CgroupFact { path: Ok(path), .. }) if path == of))
    };
    assert!(position(&inputs, "/system.slice") < position(&inputs, "/system.slice/nginx.service"));
    // Directories come in any order.
    let cgroups = inputs.iter().filter(|input| matches!(input, Input::Cgroup(_))).count();
    inputs[..cgroups].sort_by_key(|input| {
        format!(
            "{:?}",
            if let Input::Cgroup(fact) = input {
                fact.path.clone().ok()
            } else {
                None
            }
        )
    });
    check(
        &machine,
        &inputs,
        expect![[r#"
        cgroup 0 / ok
        cgroup 0 /init.scope ok
        cgroup 0 /system.slice ok
        cgroup 0 /system.slice/docker-{A}.scope ok
        cgroup 0 /system.slice/nginx.service ok
        process 50 of 1 since 1000000000 ns (0, 50) "nginx"
          0 /system.slice/nginx.service ok
        process 42 of 1 since 2000000000 ns (1, 1) "web) (x"
          0 /system.slice/docker-{A}.scope ok
        process 43 of 1 since 3000000000 ns (1, 7) "child"
          0 /system.slice/docker-{A}.scope ok
    "#]],
    );
}

/// Between the probes' attachment and the moment at which the core takes facts, a container ends: its records have a name.
#[test]
fn the_first_scan_knows_what_is_gone_by_the_second() {
    let machine = Machine::v2();
    let gone = format!("system.slice/docker-{A}.scope");
    machine.cgroup(&gone, &[42]);
    machine.cgroup("system.slice/nginx.service", &[50]);
    machine.process(42, "web", 200, "42\t1", &format!("0::/{gone}\n"));
    machine.process(50, "nginx", 100, "50", "0::/system.slice/nginx.service\n");
    let mut procfs = machine.open();
    let mut watched = Vec::new();
    procfs.first_scan(|cgroup| watched.push(cgroup.id)).unwrap();
    watched.sort_unstable();
    let mut subjects = [machine.ino(&gone), machine.ino("system.slice/nginx.service")];
    subjects.sort_unstable();
    assert_eq!(watched, subjects);
    let first = show(&machine, &scan(&procfs));
    fs::remove_dir_all(machine.0.path().join("proc/42")).unwrap();
    fs::remove_dir_all(machine.0.path().join("sys/fs/cgroup").join(&gone)).unwrap();
    let names = |procfs: &mut Procfs| {
        let mut names = Vec::new();
        let all: Result<(), ProcfsError> = procfs.scan_after_first(|input| {
            names.push(match input {
                Input::Cgroup(fact) => fact.path.unwrap(),
                Input::Process(fact) => fact.tgid.to_string(),
                other => panic!("{other:?}"),
            });
            Ok(())
        });
        all.unwrap();
        names
    };
    let both = names(&mut procfs);
    assert!(first.contains("process 42"));
    assert_eq!(both[both.len() - 2..], [format!("/{gone}"), "42".to_owned()]);
    assert_eq!(both.iter().filter(|name| *name == "50").count(), 1);
    assert_eq!(names(&mut procfs).iter().filter(|name| *name == "42").count(), 0, "only once");
}

/// The processes that a second scan shows after a first one, each with the paths of its cgroups.
fn second_scan(procfs: &mut Procfs) -> Vec<(u32, Vec<String>)> {
    let mut found = Vec::new();
    let all: Result<(), ProcfsError> = procfs.scan_after_first(|input| {
        if let Input::Process(process) = input {
            let paths = process.cgroups.into_iter().map(|(_, path)| path);
            found.push((process.tgid.0, paths.collect()));
        }
        Ok(())
    });
    all.unwrap();
    found
}

/// While the cgroups are walked, a process moves from one that is not read yet to one that was read: it is in no `cgroup.procs` that is read.
/// Another one moves the other way, and is in two of them.
#[test]
fn a_process_that_moves_during_a_scan_is_shown_once_where_it_is() {
    let machine = Machine::v2();
    machine.cgroup("a.service", &[43]);
    machine.cgroup("b.service", &[43]);
    machine.process(42, "in none", 200, "42", "0::/b.service\n");
    machine.process(43, "in both", 200, "43", "0::/b.service\n");
    let mut procfs = machine.open();
    procfs.first_scan(|_| {}).unwrap();
    let at = |pid, path: &str| (pid, vec![path.to_owned()]);
    assert_eq!(second_scan(&mut procfs), [at(42, "/b.service"), at(43, "/b.service")]);
}

/// Between both scans, a process leaves its container: it is not shown where the first scan has found it.
#[test]
fn a_process_that_has_left_every_subject_between_the_scans_is_shown_outside() {
    let machine = Machine::v2();
    machine.cgroup("a.service", &[42, 43, 44]);
    for pid in [42, 43, 44] {
        machine.process(pid, "moves", 200, &pid.to_string(), "0::/a.service\n");
    }
    let mut procfs = machine.open();
    procfs.first_scan(|_| {}).unwrap();
    machine.process(42, "moves", 200, "42", "0::/\n");
    // Another process took the number.
    machine.process(43, "other", 300, "43", "0::/\n");
    let at = |pid, path: &str| (pid, vec![path.to_owned()]);
    // The last one ended between the scans.
    let expected = [at(42, "/"), at(44, "/a.service"), at(43, "/a.service")];
    assert_eq!(second_scan(&mut procfs), expected);
    assert_eq!(
        second_scan(&mut procfs),
        [at(44, "/a.service")],
        "known only to the scan after the first"
    );
}

/// `/proc` also has what has exited and waits for its parent: no record of it follows.
#[test]
fn a_scan_shows_no_process_that_has_exited() {
    let machine = Machine::v2();
    machine.cgroup("a.service", &[]);
    let stat =
        |state: &str, threads: u32| format!("42 (x) {state} 1 2 3 0 -1 4228100 1 2 3 4 5 6 7 8 20 0 {threads} 0 200 9 9\n");
    machine.process(42, "x", 200, "42", "0::/a.service\n");
    for (stat, is_shown) in [
        (stat("S", 1), true),
        (stat("Z", 1), false),
        (stat("Z", 2), true),
        (stat("X", 0), false),
    ] {
        machine.file("proc/42/stat", &stat);
        let procfs = machine.open();
        let inputs = scan(&procfs);
        let shown = inputs.iter().filter(|input| matches!(input, Input::Process(_))).count();
        assert_eq!(shown, usize::from(is_shown), "{stat}");
        assert!(
            !procfs.process(Pid(42)).is_gone(),
            "a question is answered as long as /proc has the process"
        );
    }
}

/// What never changes of a process is read once, unless another process has its number.
#[test]
fn the_second_scan_reads_a_new_process_of_a_known_number_as_a_whole() {
    let machine = Machine::v2();
    machine.cgroup("a.service", &[42, 50]);
    let cgroup = "0::/a.service\n";
    machine.process(42, "one", 200, "42\t1", cgroup);
    machine.process(50, "two", 200, "50\t2", cgroup);
    let mut procfs = machine.open();
    procfs.first_scan(|_| {}).unwrap();
    machine.process(42, "exec", 200, "unread", cgroup);
    machine.process(50, "other", 300, "50", cgroup);
    let mut found = Vec::new();
    let all: Result<(), ProcfsError> = procfs.scan_after_first(|input| {
        if let Input::Process(process) = input {
            found.push((process.tgid.0, process.comm, process.ns_level, process.ns_pid));
        }
        Ok(())
    });
    all.unwrap();
    // The last one ended between the scans.
    let process = |pid, comm: &str, level, ns_pid| (pid, comm.to_owned(), level, ns_pid);
    assert_eq!(
        found,
        [
            process(42, "exec", 1, 1),
            process(50, "other", 0, 50),
            process(50, "two", 1, 2)
        ]
    );
}

#[test]
fn scan_of_a_hybrid_machine_finds_what_only_v1_knows() {
    let machine = Machine::hybrid();
    machine.cgroup("unified/system.slice", &[]);
    machine.cgroup(&format!("memory/docker/{A}"), &[42]);
    machine.cgroup(&format!("systemd/docker/{A}"), &[42]);
    let cgroups =
        format!("9:name=systemd:/docker/{A}\n4:memory:/docker/{A}\n3:freezer:/docker/{A}\n1:cpu,cpuacct:/\n0::/system.slice\n");
    machine.process(42, "web", 200, "42\t1", &cgroups);
    check(
        &machine,
        &scan(&machine.open()),
        expect![[r#"
        cgroup 0 / ok
        cgroup 0 /system.slice ok
        cgroup 4 / ok
        cgroup 4 /docker ok
        cgroup 4 /docker/{A} ok
        process 42 of 1 since 2000000000 ns (1, 1) "web"
          0 /system.slice ok
          4 /docker/{A} ok
          9 /docker/{A} ok
          1 / ok
          3 /docker/{A} no id
    "#]],
    );
    let procfs = machine.open();
    let v1 = procfs.v1().unwrap();
    assert_eq!(
        (procfs.cgroups(), v1.is_alone, v1.hierarchy, v1.controller.as_str()),
        (CgroupMode::Hybrid, false, 4, "memory")
    );
}

#[test]
fn scan_of_a_machine_with_v1_alone() {
    let machine = Machine::v1();
    machine.cgroup(&format!("memory/docker/{A}"), &[42]);
    machine.cgroup(&format!("systemd/docker/{A}"), &[42]);
    machine.cgroup("memory/system.slice", &[50]);
    machine.cgroup("systemd/system.slice/nginx.service", &[50]);
    let container = format!("9:name=systemd:/docker/{A}\n4:memory:/docker/{A}\n3:freezer:/docker/{A}\n1:cpu,cpuacct:/\n");
    machine.process(42, "web", 200, "42\t1", &container);
    // systemd separates units in its own hierarchy, and in a controller's hierarchy only if accounting is on.
    let unit = "9:name=systemd:/system.slice/nginx.service\n4:memory:/system.slice\n1:cpu,cpuacct:/\n";
    machine.process(50, "nginx", 100, "50", unit);
    let procfs = machine.open();
    assert_eq!(procfs.cgroups(), CgroupMode::V1(4));
    assert_eq!(procfs.v1().unwrap().controller, "memory");
    let mut inputs = scan(&procfs);
    inputs.sort_by_key(|input| match input {
        Input::Cgroup(fact) => fact.path.clone().unwrap_or_default(),
        _ => "~".to_owned(),
    });
    check(
        &machine,
        &inputs,
        expect![[r#"
        cgroup 4 / ok
        cgroup 4 /docker ok
        cgroup 4 /docker/{A} ok
        cgroup 4 /system.slice ok
        process 50 of 1 since 1000000000 ns (0, 50) "nginx"
          4 /system.slice ok
          9 /system.slice/nginx.service ok
          1 / ok
        process 42 of 1 since 2000000000 ns (1, 1) "web"
          4 /docker/{A} ok
          9 /docker/{A} ok
          1 / ok
          3 /docker/{A} no id
    "#]],
    );
}

/// Without the memory controller (`cgroup_disable=memory`, or a kernel without its v1 files) another controller identifies tasks.
#[test]
fn the_first_mounted_v1_controller_is_recorded() {
    let machine = Machine::v1();
    machine.file("proc/self/cgroup", "9:name=systemd:/\n3:freezer:/\n1:cpu,cpuacct:/\n");
    let procfs = machine.open();
    assert_eq!(
        (procfs.cgroups(), procfs.v1().unwrap().controller.as_str()),
        (CgroupMode::V1(1), "cpu")
    );
}

/// The kernel shows the root as the v1 cgroups of an exiting process, which would attribute the process to the host.
#[test]
fn an_exiting_process_counts_as_gone_with_v1() {
    let exiting = |machine: Machine, cgroups: &str| {
        let stat = "42 (web) Z 1 2 3 0 -1 4228100 1 2 3 4 5 6 7 8 20 0 1 0 200 9 9\n";
        machine.process(42, "web", 200, "42\t1", cgroups);
        machine.file("proc/42/stat", stat);
        machine.open().process(Pid(42)).is_gone()
    };
    assert!(exiting(Machine::v1(), "9:name=systemd:/\n4:memory:/\n1:cpu,cpuacct:/\n"));
    assert!(exiting(Machine::hybrid(), "9:name=systemd:/\n4:memory:/\n0::/a.service\n"));
    assert!(!exiting(Machine::v2(), "0::/a.service\n"));
}

#[test]
fn answers_for_processes() {
    let machine = Machine::v2();
    machine.cgroup("a.service", &[]);
    machine.process(7, "zombie", 5, "7", "0::/b.service (deleted)\n");
    machine.process(8, "outside", 5, "8", "0::/../a.service\n");
    machine.process(9, "torn", 5, "9", "0::/a.service\n");
    machine.file("proc/9/stat", "9 (torn");
    machine.process(10, "\x1b[31m", 5, "", "0::/a.service\n");
    let procfs = machine.open();
    let answers: Vec<Input> = [7, 8, 9, 10, 11]
        .map(|pid| procfs.answer(&Question::Process(Pid(pid))))
        .into();
    check(
        &machine,
        &answers,
        expect![[r#"
        process 7 of 1 since 50000000 ns (0, 7) "zombie"
          0 /b.service no id
        process 8 of 1 since 50000000 ns (0, 8) "outside"
          0 /../a.service no id
        process 9 gone
        process 10 of 1 since 50000000 ns (0, 10) "\u{1b}[31m"
          0 /a.service ok
        process 11 gone
    "#]],
    );
}

#[test]
fn answers_for_cgroups() {
    let machine = Machine::hybrid();
    let procfs = machine.open();
    scan(&procfs);
    machine.cgroup("unified/late.service", &[]);
    machine.cgroup("memory/late.scope", &[]);
    let answer = |hierarchy: u32, id: u64| {
        // As if the last walk were long ago.
        procfs.walked().rested = Boot(0);
        procfs.answer(&Question::Cgroup(CgroupId { hierarchy, id }))
    };
    let late = machine.ino("unified/late.service");
    let answers = [
        answer(0, late),
        answer(4, machine.ino("memory/late.scope")),
        answer(0, 1 << 60),
        answer(12, 5),
    ];
    check(
        &machine,
        &answers,
        expect![[r#"
        cgroup 0 /late.service ok
        cgroup 4 /late.scope ok
        cgroup: gone
        cgroup: cgroup hierarchy 12 is not mounted below --sys
    "#]],
    );

    // Right after a walk: cgroups that the walk saw are known, others have to wait.
    fs::remove_dir_all(machine.0.path().join("sys/fs/cgroup/unified/late.service")).unwrap();
    procfs.walked().rested = Boot(u64::MAX);
    let fact = |path: Result<&str, &str>, id| {
        let cgroup = CgroupId::v2(id);
        Input::Cgroup(CgroupFact::of(cgroup, path.map(str::to_owned).map_err(str::to_owned)))
    };
    assert_eq!(
        procfs.answer(&Question::Cgroup(CgroupId::v2(late))),
        fact(Ok("/late.service"), late)
    );
    let refused = CgroupFact::BUSY;
    assert_eq!(
        procfs.answer(&Question::Cgroup(CgroupId::v2(1 << 60))),
        fact(Err(refused), 1 << 60)
    );
}

#[test]
fn observation_of_the_machine() {
    let machine = Machine::v2();
    machine.file("proc/sys/kernel/random/boot_id", "8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b\n");
    machine.file("proc/sys/kernel/hostname", "node\x1b-1\n");
    let procfs = machine.open();
    let error = lines(&procfs.observation(Boot(7), WallOffset(9)).unwrap_err());
    assert!(error.contains("sys/kernel/osrelease") && error.contains("--proc"), "{error}");
    machine.file("proc/sys/kernel/osrelease", "6.18.0\n");
    let observation = procfs.observation(Boot(7), WallOffset(9)).unwrap();
    assert_eq!(
        (observation.host.as_str(), observation.kernel.as_str()),
        (r"node\u{1b}-1", "6.18.0")
    );
    assert_eq!((observation.since, observation.cgroups), (Boot(7), CgroupMode::V2));
}

#[test]
fn an_error_without_cgroups_names_the_remedy() {
    let machine = Machine(TempDir::new().unwrap());
    let (proc, sys) = (machine.0.path().join("proc"), machine.0.path().join("sys"));
    let error = |proc: &Path| lines(&Procfs::new(proc, &sys).err().unwrap());
    assert!(error(&proc).contains("--proc"));
    machine.file(
        "proc/1/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n",
    );
    machine.cgroup("systemd/", &[]);
    machine.file("proc/1/cgroup", "1:name=systemd:/\n");
    let error = error(&proc).replace(machine.0.path().to_str().unwrap(), "");
    expect![[r#"
        no cgroup hierarchy is mounted below /sys, neither v2 nor a controller's of v1
        remedy: mount the host's there or name its place with --sys, or mount one: mount -t cgroup2 none /sys/fs/cgroup"#]]
    .assert_eq(&error);
}

/// The host's `/sys` in a container: our mountinfo has no cgroup2, but the files exist.
#[test]
fn mounts_of_another_namespace() {
    let machine = Machine::v2();
    machine.file("proc/self/mountinfo", "1 1 0:1 / / rw - overlay overlay rw\n");
    machine.cgroup("a.service", &[]);
    assert_eq!(
        machine.open().hierarchies.recorded.mount,
        machine.0.path().join("sys/fs/cgroup")
    );
}

/// The agent's own pod: private pid and cgroup namespaces, the host's `/proc` and `/sys/fs/cgroup` mounted elsewhere.
#[test]
fn a_container_sees_the_hosts_processes() {
    let machine = Machine::v2();
    let (pod, own) = (
        "kubepods.slice/kubepods-pod1.slice",
        "kubepods.slice/kubepods-pod2.slice/cri-containerd-own.scope",
    );
    machine.file(
        "proc/self/mountinfo",
        "29 22 0:26 /../../.. /host/sys/fs/cgroup ro - cgroup2 cgroup rw\n30 22 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
    );
    machine.cgroup(own, &[1]);
    machine.cgroup(&format!("{pod}/cri-containerd-{A}.scope"), &[0, 0]);
    machine.process(
        42,
        "web",
        200,
        "42\t1",
        &format!("0::/../../kubepods-pod1.slice/cri-containerd-{A}.scope\n"),
    );
    machine.process(43, "kubelet", 100, "43", "0::/../../../system.slice/kubelet\n");
    let root = machine.0.path();
    let own = root.join("sys/fs/cgroup").join(own);
    let procfs = machine.open_at(&own).unwrap();
    assert_eq!(procfs.hierarchies.recorded.mount, root.join("sys/fs/cgroup"));
    let inputs = scan(&procfs);
    let processes: Vec<Input> = inputs
        .into_iter()
        .filter(|input| matches!(input, Input::Process(_)))
        .collect();
    check(
        &machine,
        &processes,
        expect![[r#"
        process 42 of 1 since 2000000000 ns (1, 1) "web"
          0 /kubepods.slice/kubepods-pod1.slice/cri-containerd-{A}.scope ok
    "#]],
    );
}

/// The same without a mount of the container's own cgroups: its own process shows the namespace.
#[test]
fn a_container_without_a_mount_of_its_cgroups_finds_its_namespace() {
    let machine = Machine::v1();
    let pod = "kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b";
    for name in ["memory", "systemd"] {
        machine.cgroup(&format!("{name}/{pod}/own/inside"), &[std::process::id()]);
        machine.cgroup(&format!("{name}/{pod}/{A}"), &[42]);
    }
    machine.file(
        "proc/self/cgroup",
        "9:name=systemd:/inside\n4:memory:/inside\n1:cpu,cpuacct:/\n",
    );
    std::os::unix::fs::symlink("cgroup:[4026532777]", {
        machine.file("proc/self/ns/user", "");
        machine.0.path().join("proc/self/ns/cgroup")
    })
    .unwrap();
    machine.process(
        42,
        "web",
        200,
        "42\t1",
        &format!("9:name=systemd:/../{A}\n4:memory:/../{A}\n1:cpu,cpuacct:/\n"),
    );
    check(
        &machine,
        &[machine.open().answer(&Question::Process(Pid(42)))],
        expect![[r#"
        process 42 of 1 since 2000000000 ns (1, 1) "web"
          4 /kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/{A} ok
          9 /kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/{A} ok
          1 / ok
    "#]],
    );
}

/// In a pod the process is number 1, and the host's /proc, mounted there, has another number.
#[test]
fn this_process_by_the_machines_own_count() {
    let machine = Machine::v2();
    assert_eq!(machine.open().own_pid(), Pid(std::process::id()));
    let proc = machine.0.path().join("proc");
    fs::rename(proc.join("self"), proc.join("4711")).unwrap();
    std::os::unix::fs::symlink("4711", proc.join("self")).unwrap();
    assert_eq!(machine.open().own_pid(), Pid(4711));
}

/// On the machine that runs the test: our own process, as the kernel shows it.
#[test]
fn this_process() {
    let Ok(procfs) = Procfs::new(Path::new("/proc"), Path::new("/sys")) else {
        // A test above covers machines without cgroups.
        return;
    };
    let fact = procfs.process(procfs.own_pid());
    let now = clock::now();
    assert!(fact.start.0 > 0 && fact.start <= now, "{} {}", fact.start.0, now.0);
    assert_eq!(fact.ppid, Pid(std::os::unix::process::parent_id()));
    let first = fact.cgroups.first().map(|(cgroup, _)| cgroup.hierarchy);
    assert_eq!(first, Some(procfs.cgroups().hierarchy()));
}

/// A container with many cgroups of long names: a walk keeps few bytes, and finds each of them all the same.
#[test]
fn a_walk_keeps_a_bounded_number_of_bytes() {
    let machine = Machine::hybrid();
    let long = format!("unified/a.service/{}", ["x".repeat(250).as_str(); 3].join("/"));
    for leaf in 0..6_000 {
        machine.cgroup(&format!("{long}/{leaf}"), &[]);
    }
    let procfs = machine.open();
    let seen = scan(&procfs).len();
    assert!(seen > 6_000, "{seen}");
    for leaf in [0, 3_000, 5_999] {
        procfs.walked().rested = Boot(0);
        let id = machine.ino(&format!("{long}/{leaf}"));
        let answer = procfs.answer(&Question::Cgroup(CgroupId { hierarchy: 0, id }));
        assert!(matches!(answer, Input::Cgroup(CgroupFact { path: Ok(_), .. })), "{leaf}");
        let walked = procfs.walked();
        let kept: usize = walked.paths.values().map(String::len).sum();
        assert!(
            kept <= walked.bytes && walked.bytes <= WALKED_BYTES,
            "{kept} of {}",
            walked.bytes
        );
    }
}
