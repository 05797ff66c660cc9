use std::fs;
use std::time::Duration;

use epitaph_core::node::{CRITICAL_PRIORITY, PriorityPeriod};

use super::*;

const KIND: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Directory) {
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.replace("KIND", KIND)).unwrap();
    }
    let root = Directory::root(directory.path()).unwrap().unwrap();
    (directory, root)
}

fn flags(config: Option<&str>, config_directory: Option<&str>) -> Flags {
    Flags {
        config: config.map(Into::into),
        config_directory: config_directory.map(Into::into),
        ..Flags::default()
    }
}

fn read(files: &[(&str, &str)], flags: &Flags) -> Result<Configured, String> {
    let (_directory, root) = tree(files);
    configured(&root, flags).map_err(|error| {
        let text = crate::error::chain(&error);
        text.rsplit_once("/.tmp")
            .map_or(text.clone(), |(_, text)| text[6..].to_owned())
    })
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn both_periods_of_a_file() {
    let text = "KIND# the rest is ignored\nclusterDNS: [10.96.0.10]\nshutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 0m30s\n";
    let found = read(
        &[("var/lib/kubelet/config.yaml", text)],
        &flags(Some("/var/lib/kubelet/config.yaml"), None),
    )
    .unwrap();
    assert_eq!((found.shutdown.total, found.shutdown.critical), (secs(60), secs(30)));
    assert_eq!(found.shutdown.refused, None);
    let protection = found.protection();
    assert_eq!(protection.source, "/var/lib/kubelet/config.yaml");
    let phases: Vec<(i32, Duration)> = protection.phases().iter().map(|p| (p.priority, p.period)).collect();
    assert_eq!(phases, [(0, secs(30)), (CRITICAL_PRIORITY, secs(30))]);
    assert!(found.modified.is_some_and(|(_, at)| at.0 > 1_700_000_000_000_000_000));
}

#[test]
fn without_a_setting_nothing_is_protected() {
    let found = read(&[("c", "KIND")], &flags(Some("/c"), None)).unwrap();
    assert!(found.protection().phases().is_empty());
    let none = read(&[], &Flags::default()).unwrap();
    assert!(none.files.is_empty() && none.protection().phases().is_empty());
    assert_eq!(none.protection().source, "no file");
}

#[test]
fn drop_ins_are_merged_in_the_order_of_their_paths() {
    let files = [
        (
            "c.json",
            r#"{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","shutdownGracePeriod":"10s","featureGates":{"A":true,"GracefulNodeShutdown":false}}"#,
        ),
        ("d/20-b.conf", "KINDshutdownGracePeriod: 40s\n"),
        (
            "d/10-a.conf",
            "KINDshutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 5s\n",
        ),
        (
            "d/15/z.conf",
            "KINDshutdownGracePeriod: 30s\nfeatureGates: {GracefulNodeShutdown: null}\n",
        ),
        ("d/30-c.yaml", "KINDshutdownGracePeriod: 99s\n"),
        ("d/40-d.conf", "KINDshutdownGracePeriodCriticalPods: null\n"),
    ];
    let found = read(&files, &flags(Some("/c.json"), Some("/d"))).unwrap();
    assert_eq!(
        (found.shutdown.total, found.shutdown.critical, found.shutdown.is_off),
        (secs(40), secs(0), false)
    );
    let names = ["/c.json", "/d/10-a.conf", "/d/15/z.conf", "/d/20-b.conf", "/d/40-d.conf"].map(PathBuf::from);
    assert_eq!(found.files, names);
}

#[test]
fn periods_by_priority_replace_a_list_and_are_sorted() {
    let files = [
        (
            "c",
            "KINDshutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 7}]\n",
        ),
        (
            "d/a.conf",
            "KINDshutdownGracePeriodByPodPriority:\n- priority: 100000\n  shutdownGracePeriodSeconds: 10\n- shutdownGracePeriodSeconds: 60\n",
        ),
    ];
    let found = read(&files, &flags(Some("/c"), Some("/d"))).unwrap();
    let expected = [(0, 60), (100_000, 10)].map(|(priority, period)| PriorityPeriod {
        priority,
        period: secs(period),
    });
    assert_eq!(found.protection().by_priority, expected);
    assert_eq!(found.protection().needed(), secs(70));
}

#[test]
fn what_the_kubelet_refuses_is_named() {
    for (text, expected) in [
        (
            "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s",
            Some("longer than shutdownGracePeriod"),
        ),
        ("shutdownGracePeriod: 500ms", Some("shorter than a second")),
        (
            "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 1}]",
            Some("both"),
        ),
        (
            "shutdownGracePeriod: 10s\nfeatureGates: {GracefulNodeShutdown: false}",
            Some("need the feature gate"),
        ),
        ("featureGates: {GracefulNodeShutdown: false}", None),
        ("shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 10s", None),
    ] {
        let found = read(&[("c", &format!("KIND{text}\n"))], &flags(Some("/c"), None)).unwrap();
        let refused = found.shutdown.refused;
        assert_eq!(refused.is_some(), expected.is_some(), "{text}: {refused:?}");
        assert!(
            refused.unwrap_or_default().contains(expected.unwrap_or_default()),
            "{text}: {refused:?}"
        );
    }
    let gate = Flags {
        feature_gates: Some("GracefulNodeShutdown=false".to_owned()),
        ..flags(Some("/c"), None)
    };
    let found = read(&[("c", "KINDshutdownGracePeriod: 10s\n")], &gate).unwrap();
    assert!(found.shutdown.is_off && found.protection().phases().is_empty());
}

#[test]
fn a_file_that_is_not_a_configuration_is_an_error_without_its_text() {
    let one = flags(Some("/c"), None);
    for (text, expected) in [
        ("password: [secret\n", "/c is not YAML: line "),
        ("secret", "/c is not a KubeletConfiguration of kubelet.config.k8s.io/v1beta1"),
        ("kind: Secret\napiVersion: v1\n", "/c is not a KubeletConfiguration"),
        (
            "KINDshutdownGracePeriod: secret\n",
            "the merged configuration is wrong: `shutdownGracePeriod` is not a duration",
        ),
        (
            "KINDshutdownGracePeriod: 30\n",
            "the merged configuration is wrong: `shutdownGracePeriod` is not text",
        ),
        (
            "KINDshutdownGracePeriod: 9000h\n",
            "the merged configuration is wrong: `shutdownGracePeriod` is longer than a year",
        ),
        (
            "KINDshutdownGracePeriodByPodPriority: [{priority: 99999999999}]\n",
            "the merged configuration is wrong: `shutdownGracePeriodByPodPriority` is a list with",
        ),
    ] {
        let error = read(&[("c", text)], &one).unwrap_err();
        assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
    }
    let (directory, root) = tree(&[]);
    std::os::unix::fs::symlink("c", directory.path().join("c")).unwrap();
    let remedy = configured(&root, &one).unwrap_err().remedy().unwrap();
    assert!(!remedy.contains("root"), "{remedy}");
    let long = "#".repeat(MOST as usize + 1);
    assert_eq!(read(&[("c", &long)], &one).unwrap_err(), "/c has more than 524288 bytes");
    assert_eq!(read(&[("c/x", "")], &one).unwrap_err(), "/c is not an ordinary file");
    assert_eq!(read(&[], &one).unwrap_err(), "/c does not exist");
    let relative = flags(Some("c"), None);
    assert!(read(&[("c", "")], &relative).unwrap_err().contains("not an absolute path"));
    // A drop-in needs its kind; the file does not.
    assert!(read(&[("c", "shutdownGracePeriod: 1s\n")], &one).is_ok());
    let error = read(&[("d/a.conf", "shutdownGracePeriod: 1s\n")], &flags(None, Some("/d"))).unwrap_err();
    assert_eq!(
        error,
        "/d/a.conf is not a KubeletConfiguration of kubelet.config.k8s.io/v1beta1"
    );
}

#[test]
fn aliases_do_not_multiply() {
    let mut bomb = "KINDx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*x{}", level - 1);
        bomb.push_str(&format!("x{level}: &x{level} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    let error = read(&[("c", &bomb)], &flags(Some("/c"), None)).unwrap_err();
    assert!(error.starts_with("/c is not YAML"), "{error}");
}

#[test]
fn a_directory_of_too_many_files_is_an_error() {
    let files: Vec<String> = (0..=DROP_INS).map(|at| format!("d/{at}.conf")).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "KIND")).collect();
    assert_eq!(
        read(&files, &flags(None, Some("/d"))).unwrap_err(),
        "/d has more than 256 files or 8 levels"
    );
    let deep = format!("d/{}/a.conf", ["x"; DEPTH].join("/"));
    assert_eq!(
        read(&[(&deep, "KIND")], &flags(None, Some("/d"))).unwrap_err(),
        "/d has more than 256 files or 8 levels"
    );
}

fn process(name: &str, flags: Flags) -> KubeletProcess {
    KubeletProcess {
        pid: Pid(812),
        name: name.to_owned(),
        start: Boot(5),
        unit: Some("k3s.service".to_owned()),
        flags,
    }
}

#[test]
fn the_distribution_is_found_by_its_files_or_its_flags() {
    for place in &PLACES {
        let path = place
            .config
            .map_or_else(|| format!("{}/a.conf", place.config_directory.unwrap()), str::to_owned);
        let (_directory, root) = tree(&[(path.trim_start_matches('/'), "KIND")]);
        let located = locate(&root, None).unwrap().unwrap();
        assert_eq!(
            (located.place.unwrap().name, located.origin),
            (place.name, Origin::Defaults),
            "{path}"
        );
    }
    let (_directory, root) = tree(&[]);
    assert_eq!(locate(&root, None), Ok(None));

    let located = locate(
        &root,
        Some(&process("kubelet", flags(Some("/home/kubernetes/kubelet-config.yaml"), None))),
    )
    .unwrap()
    .unwrap();
    assert_eq!(located.place.unwrap().name, "GKE");
    let own = process("kubelet", flags(Some("/etc/own.yaml"), None));
    let located = locate(&root, Some(&own)).unwrap().unwrap();
    let origin = Origin::Process {
        pid: Pid(812),
        start: Boot(5),
        unit: Some("k3s.service".to_owned()),
    };
    assert_eq!((located.place, located.origin, located.flags), (None, origin, own.flags));
    let located = locate(&root, Some(&process("k3s-server", Flags::default())))
        .unwrap()
        .unwrap();
    assert_eq!(located.place.unwrap().name, "k3s");
}

#[test]
fn microk8s_has_a_file_of_flags() {
    let arguments = "/var/snap/microk8s/7/args/kubelet";
    let (_directory, root) = tree(&[(&arguments[1..], "--config=${SNAP_DATA}/kubelet.yaml\n")]);
    let flags = Flags {
        arguments_file: Some(arguments.into()),
        ..Flags::default()
    };
    let located = locate(&root, Some(&process("kubelite", flags))).unwrap().unwrap();
    assert_eq!(
        located.flags.config.as_deref(),
        Some(Path::new("/var/snap/microk8s/7/kubelet.yaml"))
    );
}

const KUBEADM: &str = "[Service]\n\
    Environment=\"KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf\" \\\n  \"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n\
    EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n\
    # By a person\n\
    EnvironmentFile=-/etc/default/kubelet\n\
    ExecStart=\n\
    ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n";

#[test]
fn without_a_process_the_units_flags_count() {
    const KUBELET: &str = "usr/lib/systemd/system/kubelet.service";
    const DROP_IN: &str = "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf";
    let of = |files: &[(&str, &str)]| {
        let (_directory, root) = tree(files);
        let flags = unit::flags(&root)?;
        Ok::<_, String>(flags.map(|flags| {
            let path = |path: Option<PathBuf>| path.map_or("-".to_owned(), |path| path.display().to_string());
            let gates = flags.feature_gates.unwrap_or_default();
            format!("{} {} {gates}", path(flags.config), path(flags.config_directory))
        }))
    };
    let flags = |files: &[(&str, &str)]| of(files).unwrap().unwrap();
    let bare = (KUBELET, "[Unit]\n[Service]\nExecStart=/usr/bin/kubelet\n");
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(flags(&[bare]), "- - ");
    assert_eq!(flags(&[bare, (DROP_IN, KUBEADM)]), "/var/lib/kubelet/config.yaml - ");
    let extra = "KUBELET_EXTRA_ARGS=\"--config-dir=/etc/kubelet.d --feature-gates=GracefulNodeShutdown=false\"\n";
    let files = [bare, (DROP_IN, KUBEADM), ("etc/default/kubelet", extra)];
    assert_eq!(
        flags(&files),
        "/var/lib/kubelet/config.yaml /etc/kubelet.d GracefulNodeShutdown=false"
    );
    // The drop-in of the highest directory hides those of its name; then the last name counts.
    let own = "[Service]\nEnvironment=DIR=/a\nExecStart=\nExecStart=-/usr/bin/kubelet '--config=${DIR}/b c' $$X\n";
    let higher = ("etc/systemd/system/kubelet.service.d/10-kubeadm.conf", own);
    assert_eq!(flags(&[bare, (DROP_IN, KUBEADM), higher]), "/a/b c - ");
    let last = ("run/systemd/system/kubelet.service.d/20.conf", own);
    assert_eq!(flags(&[bare, (DROP_IN, KUBEADM), last]), "/a/b c - ");

    for (text, reason) in [
        ("ExecStart=", "kubelet.service has no ExecStart="),
        ("ExecStart=/usr/bin/kubelet $ARGS", "nothing sets $ARGS of kubelet.service"),
        (
            "EnvironmentFile=/etc/eks/kubelet/environment\nExecStart=/usr/bin/kubelet $ARGS",
            "kubelet.service has flags in /etc/eks/kubelet/environment, which does not exist",
        ),
        (
            "EnvironmentFile=-/run/metadata\nExecStart=/usr/bin/kubelet",
            "kubelet.service has flags in /run/metadata, which does not exist",
        ),
        (
            "ExecStart=/bin/sh -c 'exec kubelet --config=/a'",
            "ExecStart= of kubelet.service does not start the kubelet itself",
        ),
        (
            "ExecStart=/usr/bin/kubelet --config=%E/kubelet",
            "a flag in kubelet.service has a specifier of systemd (%)",
        ),
    ] {
        let unit = format!("[Service]\n{text}\n");
        assert_eq!(of(&[(KUBELET, &unit)]), Err(reason.to_owned()));
    }
    let bomb = |words: String| {
        format!(
            "[Service]\nEnvironment=A={}\nExecStart=/usr/bin/kubelet {words}\n",
            "a".repeat(9_000)
        )
    };
    for words in ["$A ".repeat(9_000), "${A}".repeat(9_000)] {
        let error = of(&[(KUBELET, &bomb(words))]).unwrap_err();
        assert_eq!(error, "the command line of kubelet.service is longer than 131072 bytes");
    }
}

#[test]
fn without_a_process_a_kubelet_without_files_is_not_no_kubelet() {
    let located = |files: &[(&str, &str)]| locate(&tree(files).1, None);
    let unit = ("etc/systemd/system/kubelet.service", KUBEADM);
    let config = ("var/lib/kubelet/config.yaml", "KIND");
    assert_eq!(located(&[unit, config]).unwrap().unwrap().place.unwrap().name, "kubeadm");
    let reason = |files: &[(&str, &str)]| located(files).unwrap_err();
    assert_eq!(
        reason(&[unit]),
        "the kubelet's configuration /var/lib/kubelet/config.yaml does not exist yet"
    );
    let bare = (unit.0, "[Service]\nExecStart=/usr/bin/kubelet\n");
    // The kubelet would not read this file.
    assert_eq!(
        reason(&[bare, config]),
        "kubelet.service starts the kubelet without --config and --config-dir"
    );
    assert!(reason(&[("usr/local/bin/k3s", "")]).starts_with("/usr/local/bin/k3s is there"));
}

/// A `/proc` with one process of uid 0 at least (tests run as whoever; only root's processes count).
#[test]
fn the_kubelet_of_a_unit_comes_before_others_of_its_name() {
    use std::os::unix::fs::MetadataExt as _;
    let stat = |ticks: u64| format!("7 (kubelet) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 {ticks} 0 0");
    let files = |pid: &str, comm: &str, cgroup: &str, ticks: u64| {
        [
            (format!("{pid}/comm"), format!("{comm}\n")),
            (format!("{pid}/cgroup"), format!("0::{cgroup}\n")),
            (format!("{pid}/cmdline"), format!("/usr/bin/kubelet\0--config=/c{pid}\0")),
            (format!("{pid}/stat"), stat(ticks)),
        ]
    };
    let all: Vec<(String, String)> = [
        files("7", "kubelet", "/user.slice/x.scope", 100),
        files("8", "kubelet", "/system.slice/kubelet.service", 900),
        files(
            "9",
            "kubelet",
            "/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope",
            1,
        ),
        files("10", "other", "/system.slice/kubelet.service", 1),
    ]
    .concat();
    let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (directory, _root) = tree(&all);
    let found = process::find(directory.path(), &["kubelet.service".to_owned()]);
    if directory.path().metadata().unwrap().uid() != 0 {
        assert_eq!(found, None);
        return;
    }
    let found = found.unwrap();
    assert_eq!((found.pid, found.start), (Pid(8), Boot(9_000_000_000)));
    assert_eq!(found.unit.as_deref(), Some("kubelet.service"));
    assert_eq!(found.flags.config.as_deref(), Some(Path::new("/c8")));
    let found = process::find(directory.path(), &["other.service".to_owned()]).unwrap();
    assert_eq!(found.pid, Pid(7));
}

/// A node that shuts down stops its kubelet, which is not another kubelet.
#[test]
fn a_kubelet_that_takes_the_place_of_another_is_seen() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let proc = directory.path();
    // Only root's kubelet outside of a container is one.
    let is_seen = proc.metadata().unwrap().uid() == 0;
    let begins = |pid: u32, ticks: u64| {
        let of = proc.join(pid.to_string());
        fs::create_dir_all(&of).unwrap();
        let zeros = "0 ".repeat(17);
        for (name, text) in [
            ("comm", "kubelet\n".to_owned()),
            ("cgroup", "0::/system.slice/kubelet.service\n".to_owned()),
            ("cmdline", "kubelet\0".to_owned()),
            ("stat", format!("{pid} (kubelet) S 1 {zeros}{ticks} 0\n")),
        ] {
            fs::write(of.join(name), text).unwrap();
        }
    };
    let ends = |pid: u32| fs::remove_dir_all(proc.join(pid.to_string())).unwrap();
    let mut running = Running::new(proc, &["kubelet.service".to_owned()]);
    assert!(!running.is_another(), "none is known");
    begins(7, 100);
    assert!(!running.is_another(), "not searched for");
    running.search();
    assert!(!running.is_another());
    ends(7);
    assert!(!running.is_another());
    begins(7, 200);
    assert_eq!(running.is_another(), is_seen, "the same pid");
    assert!(!running.is_another());
    ends(7);
    begins(8, 300);
    assert_eq!(running.is_another(), is_seen);
    assert!(!running.is_another());
}
