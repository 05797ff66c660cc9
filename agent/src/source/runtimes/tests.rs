//! Files as the runtimes write them, in their own layouts. Fields that nobody reads are mostly left out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;

const ID: &str = "3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f";

/// containerd 2 with the kubelet.
pub(super) const CONTAINERD: &str = r#"{"ociVersion":"1.2.0","process":{"user":{"uid":0,"gid":0},"args":["nginx","-g","daemon off;"],
    "env":["PATH=/usr/bin","DB_PASSWORD=secret"],"cwd":"/"},"root":{"path":"rootfs"},"hostname":"web","mounts":[],
    "annotations":{"io.kubernetes.cri.container-name":"checkout","io.kubernetes.cri.container-type":"container",
    "io.kubernetes.cri.image-name":"registry.example:5000/shop:1.4","io.kubernetes.cri.sandbox-id":"77",
    "io.kubernetes.cri.sandbox-name":"web-1","io.kubernetes.cri.sandbox-namespace":"shop"},"linux":{"namespaces":[]}}"#;
pub(super) const SANDBOX: &str = r#"{"ociVersion":"1.2.0","process":{"args":["/pause"]},
    "annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-id":"3f","io.kubernetes.cri.sandbox-name":"web-1"}}"#;
/// CRI-O 1.33.
pub(super) const CRIO: &str = r#"{"ociVersion":"1.2.0","process":{"args":["/shop"]},"annotations":{
    "io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.Image":"sha256:0b91","io.kubernetes.cri-o.ImageName":
    "registry.example/shop:1.4","io.kubernetes.container.name":"checkout","io.kubernetes.cri-o.Metadata":"{\"name\":\"checkout\"}",
    "org.opencontainers.image.stopSignal":"SIGQUIT"}}"#;
/// Podman 5: the name is in the storage's list only.
pub(super) const PODMAN: &str = r#"{"ociVersion":"1.2.0","process":{"args":["nginx"]},"annotations":{"io.container.manager":"libpod",
    "org.opencontainers.image.stopSignal":"3"}}"#;
pub(super) const LIST: &str = r#"[{"id":"11","names":["other"],"image":"a1","layer":"b1","metadata":"{\"image-name\":\"x\",\"name\":\"other\"}"},
    {"id":"3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f","names":["checkout"],"image":"a2","layer":"b2",
    "metadata":"{\"image-name\":\"docker.io/library/shop:1.4\",\"image-id\":\"a2\",\"name\":\"checkout\",\"created-at\":1795261450}",
    "created":"2026-01-02T03:04:05.678901234Z","flags":{"MountLabel":"","ProcessLabel":""}}]"#;
/// Docker 29.
pub(super) const DOCKER: &str = r#"{"StreamConfig":{},"State":{"Running":true,"Pid":4021,"ExitCode":0},"ID":
    "3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f","Created":"2026-01-02T03:04:05Z","Managed":false,"Path":"nginx",
    "Args":["-g","daemon off;"],"Config":{"Hostname":"3f1c0d4e5a6b","Env":["DB_PASSWORD=secret"],"Cmd":["nginx"],"Image":"shop:1.4",
    "Labels":{"maintainer":"x"},"StopSignal":"SIGQUIT"},"Image":"sha256:0b91","Name":"/checkout","RestartCount":0}"#;
pub(super) const CRI_DOCKERD: &str = r#"{"Path":"/pause","Args":[],"Name":"/k8s_POD_web-1_shop_77_0","Config":{"Image":"pause:3.10","Labels":
    {"io.kubernetes.docker.type":"podsandbox","io.kubernetes.container.name":"POD"}}}"#;

fn id() -> ContainerId {
    ContainerId(ID.into())
}

/// The description from these files below a directory of that name, and the problems.
fn describe(directory: &str, files: &[(&str, &str)], command: bool) -> (Option<ContainerFact>, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join(directory);
    for (file, text) in files {
        write(&directory.join(file.replace("ID", ID)), text);
    }
    described(&directory, root.path(), command)
}

fn described(directory: &Path, root: &Path, command: bool) -> (Option<ContainerFact>, Vec<String>) {
    let mut problems = Vec::new();
    let files = Files::new(&[directory.to_owned()], command);
    let fact = files.describe(&id(), |error| {
        problems.push(error.to_string().replace(&*root.to_string_lossy(), ""))
    });
    (fact, problems)
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn titles(found: (Option<ContainerFact>, Vec<String>)) -> (String, bool, Option<String>) {
    assert_eq!(found.1, Vec::<String>::new());
    let fact = found.0.expect("a description");
    (fact.title(), fact.sandbox, fact.stop_signal.map(|signal| signal.to_string()))
}

fn expected(title: &str, sandbox: bool, stop: Option<&str>) -> (String, bool, Option<String>) {
    (title.to_owned(), sandbox, stop.map(str::to_owned))
}

const TASKS: &str = "run/containerd/io.containerd.runtime.v2.task";
const STORAGE: &str = "var/lib/containers/storage/overlay-containers";

#[test]
fn the_bundle_of_containerd_in_any_namespace() {
    let found = describe(
        TASKS,
        &[("default/11/config.json", "{}"), ("k8s.io/ID/config.json", CONTAINERD)],
        false,
    );
    assert_eq!(
        titles(found),
        expected("checkout (image registry.example:5000/shop:1.4)", false, None)
    );
    let found = describe(TASKS, &[("k8s.io/ID/config.json", SANDBOX)], false);
    assert_eq!(titles(found), expected("3f1c0d4e5a6b", true, None));
}

#[test]
fn the_bundle_of_crio() {
    let found = describe(STORAGE, &[("ID/userdata/config.json", CRIO)], false);
    assert_eq!(
        titles(found),
        expected("checkout (image registry.example/shop:1.4)", false, Some("SIGQUIT"))
    );
    let of_no_image = CRIO.replace("org.opencontainers.image.stopSignal", "org.example.other");
    let found = describe(STORAGE, &[("ID/userdata/config.json", &of_no_image)], false);
    assert_eq!(titles(found).2.as_deref(), Some("SIGTERM"));
}

#[test]
fn podmans_bundle_and_its_list() {
    let of = expected("checkout (image docker.io/library/shop:1.4)", false, Some("SIGQUIT"));
    for list in ["containers.json", "volatile-containers.json"] {
        let files = [("ID/userdata/config.json", PODMAN), (list, LIST)];
        assert_eq!(titles(describe(STORAGE, &files, false)), of, "{list}");
    }
    let renamed = LIST.replace(r#""names":["checkout"]"#, r#""names":["payment"]"#);
    let files = [("ID/userdata/config.json", PODMAN), ("containers.json", &renamed)];
    let (title, ..) = titles(describe(STORAGE, &files, false));
    assert_eq!(title, "payment (image docker.io/library/shop:1.4)");
    // Not in the list (yet).
    let files = [("ID/userdata/config.json", PODMAN), ("containers.json", "[]")];
    assert_eq!(
        titles(describe(STORAGE, &files, false)),
        expected("3f1c0d4e5a6b", false, Some("SIGQUIT"))
    );
}

#[test]
fn the_state_of_docker() {
    const CONTAINERS: &str = "data/docker/containers";
    let found = describe(CONTAINERS, &[("ID/config.v2.json", DOCKER)], false);
    assert_eq!(titles(found), expected("checkout (image shop:1.4)", false, Some("SIGQUIT")));
    let found = describe(CONTAINERS, &[("ID/config.v2.json", CRI_DOCKERD)], false);
    assert_eq!(titles(found), expected("POD (image pause:3.10)", true, Some("SIGTERM")));
}

/// dockerd writes the bundles of its containers itself, without annotations.
#[test]
fn docker_above_a_containerd() {
    const BUNDLE: &str =
        r#"{"ociVersion":"1.2.0","process":{"args":["handles"]},"root":{"path":"rootfs"},"hostname":"3f1c0d4e5a6b"}"#;
    let root = tempfile::tempdir().unwrap();
    let directories = [TASKS, "var/lib/docker/containers"].map(|directory| root.path().join(directory));
    let describe = |directories: &[PathBuf]| {
        Files::new(directories, false)
            .describe(&id(), |error| panic!("{error}"))
            .map(|fact| (fact.title(), fact.stop_signal.map(|signal| signal.to_string())))
    };
    write(&directories[0].join("moby").join(ID).join("config.json"), BUNDLE);
    assert_eq!(describe(&directories), Some(("3f1c0d4e5a6b".to_owned(), None)));
    write(&directories[1].join(ID).join("config.v2.json"), DOCKER);
    let named = Some(("checkout (image shop:1.4)".to_owned(), Some("SIGQUIT".to_owned())));
    assert_eq!(describe(&directories), named);
    assert_eq!(describe(&[directories[1].clone(), directories[0].clone()]), named);
}

#[test]
fn arguments_only_if_configured_and_the_environment_never() {
    for (directory, file, text) in [
        (TASKS, "k8s.io/ID/config.json", CONTAINERD),
        ("var/lib/docker/containers", "ID/config.v2.json", DOCKER),
    ] {
        let without = describe(directory, &[(file, text)], false).0.unwrap();
        assert_eq!(without.command, Vec::<String>::new());
        let with = describe(directory, &[(file, text)], true).0.unwrap();
        assert_eq!(with.command, ["nginx", "-g", "daemon off;"]);
        assert!(!format!("{with:?}").contains("secret"), "{with:?}");
    }
}

#[test]
fn text_is_bounded_and_escaped() {
    let long = "x".repeat(10_000);
    let arguments: Vec<&str> = vec![&long; 100];
    let text = serde_json::json!({
        "process": {"args": arguments},
        "annotations": {"io.kubernetes.cri.container-name": format!("a\u{1b}[2J\n{long}"), "io.kubernetes.cri.image-name": long},
    });
    let fact = describe(TASKS, &[("moby/ID/config.json", &text.to_string())], true)
        .0
        .unwrap();
    assert!(
        fact.name
            .as_deref()
            .is_some_and(|name| name.starts_with("a\\u{1b}[2J\\u{a}xx")),
        "{fact:?}"
    );
    assert!(fact.bytes() < 6_000, "{}", fact.bytes());
}

#[test]
fn every_form_of_a_stop_signal() {
    let of = |text: &str| {
        let text = serde_json::json!({"annotations": {"org.opencontainers.image.stopSignal": text}});
        let fact = layout::bundle(text.to_string().as_bytes(), &id()).unwrap();
        fact.stop_signal.map(|signal| signal.number())
    };
    let all = [
        "SIGTERM",
        "term",
        "15",
        "SIGRTMIN+3",
        "RTMIN+3",
        "37",
        "0",
        "65",
        "SIGNOTHING",
        "",
    ]
    .map(of);
    let term = Some(15);
    let real_time = Some(37);
    assert_eq!(
        all,
        [term, term, term, real_time, real_time, real_time, None, None, None, None]
    );
}

/// A container can mount what it likes below its bundle.
#[test]
fn no_link_leads_out_of_the_directory() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join(TASKS);
    let outside = root.path().join("outside");
    write(&outside.join("config.json"), CONTAINERD);
    fs::create_dir_all(directory.join("k8s.io")).unwrap();
    symlink(&outside, directory.join("k8s.io").join(ID)).unwrap();
    let (fact, problems) = described(&directory, root.path(), false);
    assert_eq!(fact, None);
    let of_link = format!("cannot read /{TASKS}/k8s.io/{ID}/config.json: Too many levels of symbolic links (os error 40)");
    assert_eq!(problems, std::slice::from_ref(&of_link));

    fs::remove_file(directory.join("k8s.io").join(ID)).unwrap();
    fs::create_dir(directory.join("k8s.io").join(ID)).unwrap();
    symlink(
        outside.join("config.json"),
        directory.join("k8s.io").join(ID).join("config.json"),
    )
    .unwrap();
    assert_eq!(described(&directory, root.path(), false), (None, vec![of_link]));
    let opened = Directory::open(&directory).unwrap().unwrap();
    let absolute = outside.join("config.json");
    for below in [
        Path::new("../../../outside/config.json"),
        Path::new("k8s.io/../k8s.io"),
        &absolute,
    ] {
        let error = opened.read(below, MOST).unwrap_err();
        assert!(error.to_string().contains("os error 18"), "{error}");
    }
    // A person's own link to the directory is followed.
    fs::remove_dir_all(directory.join("k8s.io")).unwrap();
    write(&directory.join("k8s.io").join(ID).join("config.json"), CONTAINERD);
    let linked = root.path().join("io.containerd.runtime.v2.task");
    symlink(&directory, &linked).unwrap();
    assert!(described(&linked, root.path(), false).0.is_some());
}

#[test]
fn what_is_no_small_ordinary_file_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("containers");
    let file = directory.join(ID).join("config.v2.json");
    write(&file, &format!("{{\"Name\":\"{}\"}}", "x".repeat(MOST as usize)));
    let problem = |what: &str| vec![format!("/containers/{ID}/config.v2.json {what}")];
    assert_eq!(
        described(&directory, root.path(), false),
        (None, problem("has more than 1048576 bytes"))
    );
    fs::remove_file(&file).unwrap();
    // A FIFO that nobody writes to.
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        described(&directory, root.path(), false),
        (None, problem("is not an ordinary file"))
    );
    fs::remove_file(&file).unwrap();
    fs::write(&file, "{\"Name\":1}").unwrap();
    let (fact, problems) = described(&directory, root.path(), false);
    assert!(
        fact.is_none() && problems[0].contains("is not what the runtime writes: invalid type"),
        "{problems:?}"
    );
}

#[test]
fn a_runtime_that_is_not_installed_is_not_a_problem() {
    let nowhere = PathBuf::from("/nonexistent/containers");
    assert_eq!(described(&nowhere, Path::new("/x"), false), (None, Vec::new()));
    let known = [
        "/run/k3s/containerd/io.containerd.runtime.v2.task",
        "/var/lib/containers/storage/vfs-containers",
    ];
    assert!(known.iter().all(|path| is_known(Path::new(path))));
    let unknown = [
        "/run/containerd",
        "/var/lib/docker",
        "containers",
        "/",
        "/data/../run/containers",
    ];
    assert!(!unknown.iter().any(|path| is_known(Path::new(path))));
    assert!(DIRECTORIES.iter().all(|path| is_known(Path::new(path))));
}

/// The volume of a secret may be called `containers`.
#[test]
fn nothing_of_the_kubelet_is_read() {
    for path in [
        "/var/lib/kubelet",
        "/var/lib/kubelet/containers",
        "/var/lib/kubelet/pods/UID/containers",
        "/var/lib/kubelet/pods/UID/volumes/kubernetes.io~secret/containers/",
        "//var//lib/./kubelet//containers",
        "/var/lib/docker/../kubelet/pods/UID/containers",
        "/var/lib/k0s/kubelet/pods/UID/containers",
    ] {
        let path = Path::new(path);
        assert!(is_of_kubelet(path) && !is_known(path), "{}", path.display());
    }
    assert!(!is_of_kubelet(Path::new("/data/kubelets/containers")));
}

#[tokio::test]
async fn the_thread_answers_what_it_finds() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("containers");
    write(&directory.join(ID).join("config.v2.json"), DOCKER);
    let other = "11".repeat(32);
    write(&directory.join(&other).join("config.v2.json"), "no JSON");
    let mut runtimes = Runtimes::start(Files::new(&[directory], false)).unwrap();
    for asked in [&*"22".repeat(32), &other, ID] {
        runtimes.ask(ContainerId(asked.into()));
    }
    let Some(Input::Container(fact)) = runtimes.inputs.recv().await else {
        panic!("no answer")
    };
    assert_eq!(fact.title(), "checkout (image shop:1.4)");
    assert_eq!(
        RuntimesDropReason::ALL.map(|reason| runtimes.counters.dropped(reason)),
        [1, 0]
    );
}
