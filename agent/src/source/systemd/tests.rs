use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use expect_test::{Expect, expect};

use super::conf::{ConfiguredDelay, Obstacle};
use super::*;

const UNATTENDED: &str = "usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";

/// A machine's files: path, and what stands in `[Login]`; `-> TARGET` is a link, `dir` a directory.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match content.strip_prefix("-> ") {
            Some(target) => symlink(target, path).unwrap(),
            None if *content == "dir" => fs::create_dir(path).unwrap(),
            None => fs::write(path, content.replace("DELAY=", "InhibitDelayMaxSec=")).unwrap(),
        }
    }
    root
}

fn conf(files: &[(&str, &str)], version: Option<u32>) -> LogindConf {
    let root = tree(files);
    let root = Directory::root(root.path()).unwrap().unwrap();
    logind_conf(&root, version)
}

fn login(value: &str) -> String {
    format!("[Login]\nInhibitDelayMaxSec={value}\n")
}

/// Each file in the order of reading, and what wins.
fn check(files: &[(&str, &str)], expect: Expect) {
    let conf = conf(files, None);
    let mut shown = String::new();
    for file in &conf.files {
        let state = match &file.state {
            ConfState::Masked => "masked".to_owned(),
            ConfState::Hidden { by } => format!("hidden by {}", by.display()),
            ConfState::Unreadable { reason, .. } => format!("unreadable: {}", reason.split("/etc").last().unwrap()),
            ConfState::Read(parsed) => {
                let values = parsed.assignments.iter().map(|a| match a.value {
                    Some(TimeSpan::Finite(value)) => format!("line {}: {} s", a.line, value.as_secs_f64()),
                    Some(TimeSpan::Infinity) => format!("line {}: infinity", a.line),
                    None => format!("line {}: ignored", a.line),
                });
                let broken = parsed.broken.iter().map(|b| format!("line {}: {}", b.line, b.reason));
                values.chain(broken).collect::<Vec<_>>().join(", ")
            }
        };
        let _ = writeln!(shown, "{} ({state})", file.path.display());
    }
    let _ = match conf.delay() {
        ConfiguredDelay::Default => writeln!(shown, "default"),
        ConfiguredDelay::Set { value, file, line } => writeln!(shown, "{}:{line} sets {value:?}", file.display()),
        ConfiguredDelay::Unknown { .. } => writeln!(shown, "unknown"),
    };
    expect.assert_eq(&shown);
}

#[test]
fn without_a_file_the_default_counts() {
    check(
        &[],
        expect![[r#"
        default
    "#]],
    );
    check(
        &[
            ("etc/systemd/logind.conf", "[Login]\n#DELAY=5\n"),
            ("usr/lib/systemd/logind.conf", &login("9")),
        ],
        expect![[r#"
            /etc/systemd/logind.conf ()
            default
        "#]],
    );
}

#[test]
fn unattended_upgrades_sorts_after_the_kubelet() {
    check(
        &[
            ("etc/systemd/logind.conf", &login("7")),
            (
                "etc/systemd/logind.conf.d/99-kubelet.conf",
                "# Kubelet logind override\n[Login]\nDELAY=60\n",
            ),
            (UNATTENDED, &login("30")),
        ],
        expect![[r#"
            /etc/systemd/logind.conf (line 2: 7 s)
            /etc/systemd/logind.conf.d/99-kubelet.conf (line 3: 60 s)
            /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf (line 2: 30 s)
            /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf:2 sets Finite(30s)
        "#]],
    );
}

#[test]
fn a_link_to_null_in_etc_switches_it_off() {
    for target in ["-> /dev/null", "-> ../../../dev/null"] {
        let mask = ("etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf", target);
        let kubelet = login("60");
        let package = login("30");
        let files = [
            ("etc/systemd/logind.conf.d/99-kubelet.conf", kubelet.as_str()),
            (UNATTENDED, &package),
            mask,
        ];
        check(
            &files,
            expect![[r#"
                /etc/systemd/logind.conf.d/99-kubelet.conf (line 2: 60 s)
                /etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf (masked)
                /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf (hidden by /etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf)
                /etc/systemd/logind.conf.d/99-kubelet.conf:2 sets Finite(60s)
            "#]],
        );
        assert!(conf(&files, None).obstacles(Duration::from_secs(60)).is_empty());
    }
}

#[test]
fn directories_rank_and_names_sort_over_all_of_them() {
    check(
        &[
            ("usr/lib/systemd/logind.conf.d/10-a.conf", &login("1")),
            ("usr/local/lib/systemd/logind.conf.d/10-a.conf", &login("2")),
            ("run/systemd/logind.conf.d/10-a.conf", &login("3")),
            ("lib/systemd/logind.conf.d/50-split.conf", &login("4")),
            ("run/systemd/logind.conf.d/.60-hidden.conf", &login("5")),
            ("run/systemd/logind.conf.d/70-other.txt", &login("6")),
            ("etc/systemd/logind.conf.d/05-first.conf", &login("8")),
        ],
        expect![[r#"
            /etc/systemd/logind.conf.d/05-first.conf (line 2: 8 s)
            /run/systemd/logind.conf.d/10-a.conf (line 2: 3 s)
            /usr/local/lib/systemd/logind.conf.d/10-a.conf (hidden by /run/systemd/logind.conf.d/10-a.conf)
            /usr/lib/systemd/logind.conf.d/10-a.conf (hidden by /run/systemd/logind.conf.d/10-a.conf)
            /lib/systemd/logind.conf.d/50-split.conf (line 2: 4 s)
            /lib/systemd/logind.conf.d/50-split.conf:2 sets Finite(4s)
        "#]],
    );
}

#[test]
fn a_merged_usr_is_one_directory() {
    check(
        &[("lib", "-> usr/lib"), (UNATTENDED, &login("30"))],
        expect![[r#"
            /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf (line 2: 30 s)
            /usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf:2 sets Finite(30s)
        "#]],
    );
}

#[test]
fn the_last_valid_assignment_counts() {
    check(
        &[
            (
                "etc/systemd/logind.conf",
                "DELAY=1\n[Other]\nDELAY=2\n[Login]\nDELAY=3\n  InhibitDelayMaxSec = 4s \nDELAY=\nDELAY=soon\ndelay=9\nno value\n",
            ),
            (
                "etc/systemd/logind.conf.d/a.conf",
                "[Login]\nInhibitDelayMaxSec=1\\\n# in between\nmin\n",
            ),
            ("etc/systemd/logind.conf.d/b.conf", "-> /gone"),
        ],
        expect![[r#"
            /etc/systemd/logind.conf (line 5: 3 s, line 6: 4 s, line 7: ignored, line 8: ignored)
            /etc/systemd/logind.conf.d/a.conf (line 4: 60 s)
            /etc/systemd/logind.conf.d/b.conf ()
            /etc/systemd/logind.conf.d/a.conf:4 sets Finite(60s)
        "#]],
    );
}

#[test]
fn a_broken_file_ends_the_reading() {
    let files = [
        (
            "etc/systemd/logind.conf.d/10-broken.conf",
            "[Login]\nDELAY=20\n[Login\nDELAY=25\n",
        ),
        ("etc/systemd/logind.conf.d/99-kubelet.conf", "[Login]\nDELAY=60\n"),
    ];
    check(
        &files,
        expect![[r#"
            /etc/systemd/logind.conf.d/10-broken.conf (line 2: 20 s, line 3: a section's name has no `]`)
            /etc/systemd/logind.conf.d/99-kubelet.conf (line 2: 60 s)
            /etc/systemd/logind.conf.d/10-broken.conf:2 sets Finite(20s)
        "#]],
    );
    let conf = conf(&files, None);
    let (path, broken, after) = conf.broken().unwrap();
    assert_eq!(
        (path, broken.line, after),
        (Path::new("/etc/systemd/logind.conf.d/10-broken.conf"), 3, 1)
    );
    check(
        &[
            ("etc/systemd/logind.conf.d/a.conf", "dir"),
            ("etc/systemd/logind.conf.d/b.conf", "[Login]\nDELAY=60\n"),
        ],
        expect![[r#"
            /etc/systemd/logind.conf.d/a.conf (line 0: not an ordinary file)
            /etc/systemd/logind.conf.d/b.conf (line 2: 60 s)
            default
        "#]],
    );
}

#[test]
fn what_cannot_be_read_is_unknown() {
    let long = "#".repeat(MOST as usize + 1);
    let found = conf(
        &[
            ("etc/systemd/logind.conf.d/a.conf", &long),
            ("etc/systemd/logind.conf.d/b.conf", &login("60")),
        ],
        None,
    );
    assert!(matches!(found.delay(), ConfiguredDelay::Unknown { reason, remedy }
        if reason.contains("more than 262144 bytes") && remedy.contains("shorter")));
    let found = conf(&[("etc/systemd/logind.conf.d/a.conf", "-> a.conf")], None);
    assert!(matches!(found.delay(), ConfiguredDelay::Unknown { remedy, .. } if !remedy.contains("root")));
    let many: Vec<String> = (0..=FILES).map(|at| format!("run/systemd/logind.conf.d/{at}.conf")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "")).collect();
    assert!(
        matches!(conf(&many, None).delay(), ConfiguredDelay::Unknown { reason, .. } if reason.contains("more than 256 files"))
    );
}

#[test]
fn an_older_systemd_has_its_main_file_in_etc_only() {
    let files = [("usr/lib/systemd/logind.conf", "[Login]\nDELAY=9\n")];
    assert_eq!(conf(&files, Some(252)).delay(), ConfiguredDelay::Default);
    for version in [Some(256), None] {
        assert_eq!(
            conf(&files, version).delay().value(),
            Some(TimeSpan::Finite(Duration::from_secs(9)))
        );
    }
}

#[test]
fn only_files_after_the_kubelets_are_in_its_way() {
    let files = [
        ("etc/systemd/logind.conf", "[Login]\nDELAY=5\n"),
        ("usr/lib/systemd/logind.conf.d/10-a.conf", "[Login]\nDELAY=5\n"),
        ("usr/lib/systemd/logind.conf.d/99-z.conf", "[Login]\nDELAY=100\nDELAY=30\n"),
        ("usr/lib/systemd/logind.conf.d/a.conf", "[Login]\nDELAY=90\n"),
        ("usr/lib/systemd/logind.conf.d/b.conf", "[Login]\nDELAY=infinity\n"),
    ];
    let conf = conf(&files, None);
    let need = |secs| conf.obstacles(Duration::from_secs(secs));
    let path = Path::new("/usr/lib/systemd/logind.conf.d/b.conf");
    assert_eq!(need(20), [Obstacle::Over { path, hides: false }]);
    assert_eq!(need(60).len(), 2);
    assert_eq!(need(95).len(), 3);
}

#[test]
fn what_else_is_in_the_kubelets_way() {
    let own = "etc/systemd/logind.conf.d/99-kubelet.conf";
    let shown = |files: &[(&str, &str)]| {
        let conf = conf(files, None);
        let obstacles = conf.obstacles(Duration::from_secs(60));
        let names = obstacles.iter().map(|obstacle| match obstacle {
            Obstacle::Broken { path, line } => format!("broken {}:{line}", path.display()),
            Obstacle::Lost { path, is_directory } => format!("lost {} {is_directory}", path.display()),
            Obstacle::Over { path, hides } => format!("over {} {hides}", path.display()),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let z = ("etc/systemd/logind.conf.d/zz.conf", "[Login]\nDELAY=3\n");
    // Before the kubelet's: those after it count when it is corrected.
    assert_eq!(
        shown(&[("etc/systemd/logind.conf", "[Login\n"), (own, "[Login]\nDELAY=60\n"), z]),
        "broken /etc/systemd/logind.conf:1, over /etc/systemd/logind.conf.d/zz.conf false"
    );
    // After it: those after that one do not count.
    assert_eq!(shown(&[("etc/systemd/logind.conf.d/a.conf", "[Login\n"), z]), "");
    assert_eq!(shown(&[(own, "[Login\n")]), "");
    assert_eq!(shown(&[(own, "-> /dev/null")]), format!("lost /{own} false"));
    assert_eq!(shown(&[(own, "dir")]), format!("lost /{own} true"));
    assert_eq!(shown(&[("run/systemd/logind.conf.d/99-kubelet.conf", "-> /dev/null")]), "");
    assert_eq!(
        shown(&[z, ("usr/lib/systemd/logind.conf.d/zz.conf", "[Login]\nDELAY=30\n")]),
        "over /etc/systemd/logind.conf.d/zz.conf true"
    );
}

#[test]
fn lines_are_systemds() {
    let read = |bytes: &[u8]| Parsed::read(bytes);
    let delay = |bytes: &[u8]| read(bytes).assignments.first().and_then(|assignment| assignment.value);
    let set = Some(TimeSpan::Finite(Duration::from_secs(60)));
    for end in ["\n", "\r", "\r\n", "\n\r", "\0"] {
        let parsed = read(format!("[Login]{end}# x{end}InhibitDelayMaxSec=60{end}").as_bytes());
        assert_eq!(parsed.assignments[0].line, 3, "{end:?}");
    }
    assert_eq!(delay(b"[Login]\n\n\rInhibitDelayMaxSec=60"), set);
    // Reading ends at a line that is not UTF-8; a comment can have anything.
    let bytes = b"[Login]\n# M\xfcll\nHandlePowerKey=M\xfcll\nInhibitDelayMaxSec=60\n";
    let parsed = read(bytes);
    assert_eq!(parsed.broken.map(|broken| broken.line), Some(3));
    assert_eq!(parsed.assignments, []);
}

#[test]
fn lines_that_are_meant_for_the_delay_are_named() {
    let text = "InhibitDelayMaxSec=1\n[login]\nInhibitDelayMaxSec=2\n[Login]\nInhibitDelayMaxsec=3\nHandlePowerKey=x\nInhibitDelayMaxSec=x\n[X-A]\nInhibitDelayMaxSec=4\n";
    let files = [
        ("etc/systemd/logind.conf.d/a.conf", text),
        ("etc/systemd/logind.conf.d/b.conf", "[Login]\nDELAY=\n[Login\nDELAY=\n"),
        ("etc/systemd/logind.conf.d/c.conf", "[Login]\nDELAY=\n"),
    ];
    let conf = conf(&files, None);
    let ignored: Vec<String> = conf
        .ignored()
        .iter()
        .map(|(path, line, reason)| format!("{}:{line} {reason}", path.file_name().unwrap().to_str().unwrap()))
        .collect();
    assert_eq!(
        ignored,
        [
            "a.conf:1 not in the section [Login]",
            "a.conf:3 not in the section [Login]",
            "a.conf:5 not a key of logind, which minds capital letters",
            "a.conf:7 not a time span",
            "b.conf:2 not a time span",
        ]
    );
}

#[test]
fn no_link_leads_out_of_the_root() {
    let outside = tree(&[("secret.conf", "[Login]\nDELAY=77\n")]);
    let absolute = format!("-> {}", outside.path().join("secret.conf").display());
    let above = format!(
        "-> ../../../../../../../../..{}",
        outside.path().join("secret.conf").display()
    );
    let found = conf(
        &[
            ("etc/systemd/logind.conf.d/a.conf", &absolute),
            ("etc/systemd/logind.conf.d/b.conf", &above),
        ],
        None,
    );
    assert_eq!((found.files.len(), found.delay()), (2, ConfiguredDelay::Default));
    // Inside of the root, an absolute link is the image's own.
    check(
        &[
            ("etc/systemd/logind.conf", "-> /usr/share/logind.conf"),
            ("usr/share/logind.conf", &login("12")),
        ],
        expect![[r#"
            /etc/systemd/logind.conf (line 2: 12 s)
            /etc/systemd/logind.conf:2 sets Finite(12s)
        "#]],
    );
}

#[test]
fn locks_from_files() {
    let lock = |who: &str| format!("WHAT=shutdown\nMODE=delay\nUID=0\nPID=7\nWHO={who}\nWHY=x\n");
    let root = tree(&[
        ("run/systemd/inhibit/2", &lock("kubelet")),
        ("run/systemd/inhibit/2.ref", ""),
        ("run/systemd/inhibit/11", &lock("app")),
    ]);
    let root = Directory::root(root.path()).unwrap().unwrap();
    let who: Vec<String> = inhibitors(&root).unwrap().into_iter().map(|lock| lock.who).collect();
    assert_eq!(who, ["app", "kubelet"]);

    let root = tree(&[("run/systemd/inhibit/2", "WHAT=shutdown\n")]);
    let root = Directory::root(root.path()).unwrap().unwrap();
    assert_eq!(inhibitors(&root).unwrap_err(), "/run/systemd/inhibit/2 has an unknown form");
    let root = tree(&[]);
    let root = Directory::root(root.path()).unwrap().unwrap();
    assert_eq!(inhibitors(&root).unwrap_err(), "/run/systemd/inhibit does not exist");
}

#[test]
fn versions_from_names_and_packages() {
    let of = |files: &[(&str, &str)]| {
        let root = tree(files);
        version(&Directory::root(root.path()).unwrap().unwrap())
    };
    assert_eq!(
        of(&[("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so", "")]),
        Some(252)
    );
    assert_eq!(of(&[("usr/lib64/systemd/libsystemd-shared-255.4-1.fc40.so", "")]), Some(255));
    let status = "Package: udev\nStatus: install ok installed\nVersion: 9\n\nPackage: systemd\nStatus: install ok installed\nVersion: 247.3-7+deb11u4\n";
    assert_eq!(of(&[("var/lib/dpkg/status", status)]), Some(247));
    assert_eq!(
        of(&[("var/lib/dpkg/status", &status.replace("ok installed", "ok config-files"))]),
        None
    );
    assert_eq!(of(&[]), None);
}
