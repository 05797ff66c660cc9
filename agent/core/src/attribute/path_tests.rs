use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const A: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";
const B: &str = "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0";
const UID: &str = "8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b";
const UID_: &str = "8b7c1f9a_52d1_4a47_9f0e_0c1d2e3f4a5b";
const STATIC: &str = "f0e1d2c3b4a5968778695a4b3c2d1e0f";

/// Rows of paths, with `{A}` and the like filled in, and what each is: short forms, and the own cgroup where it is not the
/// path itself.
fn check(paths: &[&str], expected: Expect) {
    check_where(Nodes::Machine, paths, expected);
}

fn check_where(nodes: Nodes, paths: &[&str], expected: Expect) {
    let fill = |text: &str| {
        [("{A}", A), ("{B}", B), ("{UID}", UID), ("{UID_}", UID_), ("{STATIC}", STATIC)]
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let unfill = |text: &str| {
        [(A, "{A}"), (B, "{B}"), (UID, "{UID}"), (UID_, "{UID_}"), (STATIC, "{STATIC}")]
            .iter()
            .fold(text.to_owned(), |text, (value, name)| text.replace(value, name))
    };
    let rows = paths.iter().map(|row| {
        let path = fill(row);
        let found = match parse(&path, nodes) {
            Err(error) => format!("error: {error}"),
            Ok(Place::Host) => "host".to_owned(),
            Ok(Place::Subject(subject, own)) => {
                let subject = match subject {
                    Subject::Unit { name } => format!("unit {name}"),
                    Subject::Container { id, runtime, pod } => {
                        let pod = pod.map(|pod| format!(" of pod {}", pod.0)).unwrap_or_default();
                        format!("{runtime:?} {}{pod}", id.0)
                    }
                };
                let own = if own == path { String::new() } else { format!(", own {own}") };
                subject + &own
            }
        };
        format!("{row:?}\n    {}\n", unfill(&found))
    });
    expected.assert_eq(&rows.collect::<String>());
}

#[test]
fn pods() {
    check(
        &[
            "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{A}.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{A}.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/docker-{A}.scope",
            "/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{A}.scope",
            "/kubepods/pod{UID}/{A}",
            "/kubepods/burstable/pod{UID}/{A}",
            "/kubepods/besteffort/pod{UID}/crio-{A}",
            "/kubepods/burstable/pod{STATIC}/{A}",
        ],
        expect![[r#"
            "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope"
                Containerd {A} of pod {UID}
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{A}.scope"
                Containerd {A} of pod {UID}
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{A}.scope"
                CriO {A} of pod {UID}
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/docker-{A}.scope"
                Docker {A} of pod {UID}
            "/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{A}.scope"
                Containerd {A} of pod {STATIC}
            "/kubepods/pod{UID}/{A}"
                Unnamed {A} of pod {UID}
            "/kubepods/burstable/pod{UID}/{A}"
                Unnamed {A} of pod {UID}
            "/kubepods/besteffort/pod{UID}/crio-{A}"
                CriO {A} of pod {UID}
            "/kubepods/burstable/pod{STATIC}/{A}"
                Unnamed {A} of pod {STATIC}
        "#]],
    );
}

#[test]
fn nested() {
    check(
        &[
            // crun; a systemd and a Docker inside a pod's container
            "/kubepods.slice/kubepods-pod{UID_}.slice/crio-{A}.scope/container",
            "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope/system.slice/nginx.service",
            "/kubepods/pod{UID}/{A}/docker/{B}",
            // a kubelet with a slice of its own
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{A}.scope",
            "/system.slice/docker-{A}.scope/init",
            "/docker/{A}/docker/{B}",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container",
        ],
        expect![[r#"
            "/kubepods.slice/kubepods-pod{UID_}.slice/crio-{A}.scope/container"
                CriO {A} of pod {UID}, own /kubepods.slice/kubepods-pod{UID_}.slice/crio-{A}.scope
            "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope/system.slice/nginx.service"
                Containerd {A} of pod {UID}, own /kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope
            "/kubepods/pod{UID}/{A}/docker/{B}"
                Unnamed {A} of pod {UID}, own /kubepods/pod{UID}/{A}
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{A}.scope"
                Containerd {A} of pod {UID}
            "/system.slice/docker-{A}.scope/init"
                Docker {A}, own /system.slice/docker-{A}.scope
            "/docker/{A}/docker/{B}"
                Docker {B}
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container"
                Podman {A}, own /user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope
        "#]],
    );
}

/// Any container with a writable cgroup tree, and any user, can make these: what is below counts for the owner.
#[test]
fn forged_pods() {
    check(
        FORGED,
        expect![[r#"
        "/kubepods/pod{UID}/{B}/kubepods/burstable/pod{STATIC}/{A}/sub"
            Unnamed {B} of pod {UID}, own /kubepods/pod{UID}/{B}
        "/kubepods/pod{UID}/{B}/kubepods/burstable/pod{STATIC}"
            Unnamed {B} of pod {UID}, own /kubepods/pod{UID}/{B}
        "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{B}.scope/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{A}.scope"
            Containerd {B} of pod {UID}, own /kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{B}.scope
        "/docker/{B}/kubelet/kubepods/burstable/pod{UID}/{A}"
            Docker {B}, own /docker/{B}
        "/system.slice/docker-{B}.scope/kubepods.slice/kubepods-pod{UID_}.slice/docker-{A}.scope"
            Docker {B}, own /system.slice/docker-{B}.scope
        "/docker/{B}/kubepods.slice/kubepods-pod{UID_}.slice"
            Docker {B}, own /docker/{B}
        "/docker/{B}/system.slice/containerd.service"
            Docker {B}, own /docker/{B}
        "/docker/{B}/init/kubepods/pod{UID}/{A}/docker/{B}"
            Docker {B}, own /docker/{B}
        "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope"
            unit user@1000.service, own /user.slice/user-1000.slice/user@1000.service
        "/user.slice/user-1000.slice/session-1.scope/kubepods/pod{UID}/{A}"
            host
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{B}.scope/kubelet/kubepods/pod{UID}/{A}"
            Podman {B}, own /user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{B}.scope
    "#]],
    );
}

/// The setting for kind and minikube. A pod's container can forge no other pod's there, either.
#[test]
fn nodes_in_containers() {
    check_where(
        Nodes::Containers,
        FORGED,
        expect![[r#"
        "/kubepods/pod{UID}/{B}/kubepods/burstable/pod{STATIC}/{A}/sub"
            Unnamed {B} of pod {UID}, own /kubepods/pod{UID}/{B}
        "/kubepods/pod{UID}/{B}/kubepods/burstable/pod{STATIC}"
            Unnamed {B} of pod {UID}, own /kubepods/pod{UID}/{B}
        "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{B}.scope/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{A}.scope"
            Containerd {B} of pod {UID}, own /kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{B}.scope
        "/docker/{B}/kubelet/kubepods/burstable/pod{UID}/{A}"
            Unnamed {A} of pod {UID}
        "/system.slice/docker-{B}.scope/kubepods.slice/kubepods-pod{UID_}.slice/docker-{A}.scope"
            Docker {A} of pod {UID}
        "/docker/{B}/kubepods.slice/kubepods-pod{UID_}.slice"
            Docker {B}, own /docker/{B}
        "/docker/{B}/system.slice/containerd.service"
            Docker {B}, own /docker/{B}
        "/docker/{B}/init/kubepods/pod{UID}/{A}/docker/{B}"
            Unnamed {A} of pod {UID}, own /docker/{B}/init/kubepods/pod{UID}/{A}
        "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope"
            Containerd {A} of pod {UID}
        "/user.slice/user-1000.slice/session-1.scope/kubepods/pod{UID}/{A}"
            Unnamed {A} of pod {UID}
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{B}.scope/kubelet/kubepods/pod{UID}/{A}"
            Unnamed {A} of pod {UID}
    "#]],
    );
}

const FORGED: &[&str] = &[
    // in a container of a pod
    "/kubepods/pod{UID}/{B}/kubepods/burstable/pod{STATIC}/{A}/sub",
    "/kubepods/pod{UID}/{B}/kubepods/burstable/pod{STATIC}",
    "/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{B}.scope/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{A}.scope",
    // in a container without a pod, which is a node of kind or minikube where the setting says so
    "/docker/{B}/kubelet/kubepods/burstable/pod{UID}/{A}",
    "/system.slice/docker-{B}.scope/kubepods.slice/kubepods-pod{UID_}.slice/docker-{A}.scope",
    "/docker/{B}/kubepods.slice/kubepods-pod{UID_}.slice",
    "/docker/{B}/system.slice/containerd.service",
    "/docker/{B}/init/kubepods/pod{UID}/{A}/docker/{B}",
    // of a user: rootless Kubernetes has this form, too
    "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{A}.scope",
    "/user.slice/user-1000.slice/session-1.scope/kubepods/pod{UID}/{A}",
    "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{B}.scope/kubelet/kubepods/pod{UID}/{A}",
];

#[test]
fn containers() {
    check(
        &[
            "/system.slice/docker-{A}.scope",
            "/docker/{A}",
            "/system.slice/cri-containerd-{A}.scope",
            "/system.slice/nerdctl-{A}.scope",
            "/default/{A}",
            "/k8s.io/{A}",
            "/machine.slice/libpod-{A}.scope",
            "/machine.slice/libpod-{A}.scope/container",
            "/libpod_parent/libpod-{A}",
            "/system.slice/web.service/libpod-payload-{A}",
            "/system.slice/crio-{A}.scope",
        ],
        expect![[r#"
            "/system.slice/docker-{A}.scope"
                Docker {A}
            "/docker/{A}"
                Docker {A}
            "/system.slice/cri-containerd-{A}.scope"
                Containerd {A}
            "/system.slice/nerdctl-{A}.scope"
                Containerd {A}
            "/default/{A}"
                Containerd {A}
            "/k8s.io/{A}"
                Containerd {A}
            "/machine.slice/libpod-{A}.scope"
                Podman {A}
            "/machine.slice/libpod-{A}.scope/container"
                Podman {A}, own /machine.slice/libpod-{A}.scope
            "/libpod_parent/libpod-{A}"
                Podman {A}
            "/system.slice/web.service/libpod-payload-{A}"
                Podman {A}
            "/system.slice/crio-{A}.scope"
                CriO {A}
        "#]],
    );
}

#[test]
fn monitors_are_no_containers() {
    check(
        &[
            "/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{A}.scope",
            "/system.slice/crio-conmon-{A}.scope",
            "/machine.slice/libpod-conmon-{A}.scope",
            "/kubepods/pod{UID}/crio-conmon-{A}",
            "/libpod_parent/conmon",
            "/system.slice/web.service/libpod-payload",
            "/system.slice/web.service/runtime",
        ],
        expect![[r#"
            "/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{A}.scope"
                host
            "/system.slice/crio-conmon-{A}.scope"
                host
            "/machine.slice/libpod-conmon-{A}.scope"
                host
            "/kubepods/pod{UID}/crio-conmon-{A}"
                host
            "/libpod_parent/conmon"
                host
            "/system.slice/web.service/libpod-payload"
                unit web.service, own /system.slice/web.service
            "/system.slice/web.service/runtime"
                unit web.service, own /system.slice/web.service
        "#]],
    );
}

#[test]
fn units_and_host() {
    check(
        &[
            "/system.slice/nginx.service",
            "/system.slice/nginx.service/worker/1",
            "/system.slice/system-getty.slice/getty@tty1.service",
            "/system.slice/_cpu.service",
            r"/system.slice/dev-disk-by\x2duuid.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope",
            "/user.slice/user-1000.slice/user@1000.service",
            "/user.slice/user-1000.slice/user@1000.service/init.scope",
            "/system.slice/run-r1.scope",
            "/user.slice/user-1000.slice/session-1.scope",
            "/user.slice/user-1000.slice/session-c12.scope/below",
            "/system.slice/session-1.scope",
            "/",
            "/init.scope",
            "/system.slice",
            "/user.slice/user-1000.slice",
            "/system.slice/dev-hugepages.mount",
            "/process_api/6f54d87c9653f9bce4d1b6a440e9876e",
        ],
        expect![[r#"
            "/system.slice/nginx.service"
                unit nginx.service
            "/system.slice/nginx.service/worker/1"
                unit nginx.service, own /system.slice/nginx.service
            "/system.slice/system-getty.slice/getty@tty1.service"
                unit getty@tty1.service
            "/system.slice/_cpu.service"
                unit cpu.service
            "/system.slice/dev-disk-by\\x2duuid.service"
                unit dev-disk-by\x2duuid.service
            "/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service"
                unit foo.service
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope"
                unit vte-spawn-1.scope
            "/user.slice/user-1000.slice/user@1000.service"
                unit user@1000.service
            "/user.slice/user-1000.slice/user@1000.service/init.scope"
                unit user@1000.service, own /user.slice/user-1000.slice/user@1000.service
            "/system.slice/run-r1.scope"
                unit run-r1.scope
            "/user.slice/user-1000.slice/session-1.scope"
                host
            "/user.slice/user-1000.slice/session-c12.scope/below"
                host
            "/system.slice/session-1.scope"
                unit session-1.scope
            "/"
                host
            "/init.scope"
                host
            "/system.slice"
                host
            "/user.slice/user-1000.slice"
                host
            "/system.slice/dev-hugepages.mount"
                host
            "/process_api/6f54d87c9653f9bce4d1b6a440e9876e"
                host
        "#]],
    );
}

#[test]
fn near_misses() {
    let (short, long, upper) = (&A[1..], format!("{A}0"), A.to_uppercase());
    let rows: Vec<String> = vec![
        format!("/docker/{short}"),
        format!("/docker/{long}"),
        format!("/docker/{upper}"),
        format!("/system.slice/docker-{short}.scope"),
        format!("/kubepods/pod{UID}/{short}"),
        format!("/kubepods/pod{UID}/{upper}"),
        format!("/kubepods.slice/kubepods-pod{UID}.slice/{A}"),
        format!("/kubepods/pod{UID_}/{A}"),
        format!("/kubepods/pod{UID}x/{A}"),
        format!("/pod{UID}/{A}"),
        format!("/burstable/pod{UID}/{A}"),
        format!("/{A}"),
        format!("/foo/default/{A}"),
        format!("/buildkit/{A}"),
        format!("/docker/buildkit/{A}"),
        format!("/docker/xdocker-{A}.scope"),
        format!("/kubepods-pod{UID_}.slice"),
        format!("/mykubepodsx-pod{UID_}.slice/cri-containerd-{A}.scope"),
        "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/foo.service".to_owned(),
        "/user.slice/kubepods.slice".to_owned(),
        "/system.slice/.service".to_owned(),
        "/system.slice/nginx.service.d".to_owned(),
        "/system.slice/session-1.scope".to_owned(),
        "/user.slice/user-1000.slice/session-.scope".to_owned(),
        String::new(),
        "kubepods".to_owned(),
        format!("/docker/{A}/../{B}"),
        "/system.slice/./nginx.service".to_owned(),
        "//docker//{A}//".to_owned(),
        // /proc/PID/cgroup, read from a cgroup namespace
        "/..".to_owned(),
        "/../..".to_owned(),
        "/../foo".to_owned(),
        "/../../kubepods/pod{UID}/{A}".to_owned(),
        "/../nginx.service".to_owned(),
    ];
    check(
        &rows.iter().map(String::as_str).collect::<Vec<_>>(),
        expect![[r#"
        "/docker/a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/docker/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
            host
        "/docker/0A1B2C3D4E5F60718293A4B5C6D7E8F90A1B2C3D4E5F60718293A4B5C6D7E8F9"
            host
        "/system.slice/docker-a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.scope"
            unit docker-a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.scope
        "/kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/0A1B2C3D4E5F60718293A4B5C6D7E8F90A1B2C3D4E5F60718293A4B5C6D7E8F9"
            host
        "/kubepods.slice/kubepods-pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b.slice/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/kubepods/pod8b7c1f9a_52d1_4a47_9f0e_0c1d2e3f4a5b/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/kubepods/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5bx/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/burstable/pod8b7c1f9a-52d1-4a47-9f0e-0c1d2e3f4a5b/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/foo/default/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/buildkit/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/docker/buildkit/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
            host
        "/docker/xdocker-0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.scope"
            unit xdocker-{A}.scope
        "/kubepods-pod8b7c1f9a_52d1_4a47_9f0e_0c1d2e3f4a5b.slice"
            host
        "/mykubepodsx-pod8b7c1f9a_52d1_4a47_9f0e_0c1d2e3f4a5b.slice/cri-containerd-0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.scope"
            Containerd {A}
        "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/foo.service"
            unit foo.service
        "/user.slice/kubepods.slice"
            host
        "/system.slice/.service"
            host
        "/system.slice/nginx.service.d"
            host
        "/system.slice/session-1.scope"
            unit session-1.scope
        "/user.slice/user-1000.slice/session-.scope"
            unit session-.scope
        ""
            error: cgroup path does not begin at its hierarchy's root
        "kubepods"
            error: cgroup path does not begin at its hierarchy's root
        "/docker/0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9/../b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0"
            error: cgroup path has a segment that no cgroup can have
        "/system.slice/./nginx.service"
            error: cgroup path has a segment that no cgroup can have
        "//docker//{A}//"
            Docker {A}, own //docker//{A}
        "/.."
            error: cgroup path is outside the reader's cgroup namespace; run the agent in the host's cgroup namespace
        "/../.."
            error: cgroup path is outside the reader's cgroup namespace; run the agent in the host's cgroup namespace
        "/../foo"
            error: cgroup path is outside the reader's cgroup namespace; run the agent in the host's cgroup namespace
        "/../../kubepods/pod{UID}/{A}"
            Unnamed {A} of pod {UID}
        "/../nginx.service"
            unit nginx.service
    "#]],
    );
}

#[test]
fn very_long() {
    let name = "x".repeat(255);
    assert_eq!(parse(&format!("/{name}"), Nodes::Machine), Ok(Place::Host));
    assert_eq!(
        parse(&format!("/{name}x/docker/{A}"), Nodes::Machine),
        Err(PathError::Malformed)
    );
    let path = format!("/{}/docker/{A}", vec!["d"; 2012].join("/"));
    assert_eq!(path.len(), 4096);
    assert!(matches!(
        parse(&path, Nodes::Machine),
        Ok(Place::Subject(Subject::Container { .. }, _))
    ));
    assert_eq!(parse(&format!("{path}x"), Nodes::Machine), Err(PathError::Malformed));
}

#[test]
fn names_are_shown_safely() {
    let row = |path: &str| match parse(path, Nodes::Machine) {
        Ok(Place::Subject(Subject::Unit { name }, _)) => format!("{name}\n"),
        other => format!("{other:?}\n"),
    };
    let long = format!("{}.service", "ü".repeat(123));
    assert_eq!(row(&format!("/{long}")).chars().count(), 132);
    expect![[r#"
        a\u{1b}[31mred\u{7}.service
        a\u{202e}b\u{200b}.service
        a\x2db.service
        über.service
        …yyyy"#]]
    .assert_eq(
        &[
            row("/a\x1b[31mred\x07.service"),
            row("/a\u{202e}b\u{200b}.service"),
            row(r"/a\x2db.service"),
            row("/über.service"),
            shown(&format!("/{}", "y".repeat(2000)))
                .chars()
                .rev()
                .take(5)
                .collect::<String>(),
        ]
        .concat(),
    );
}

proptest! {
    #[test]
    fn any_text_is_parsed(path in ".{0,300}") {
        let _ = (parse(&path, Nodes::Machine), parse(&path, Nodes::Containers));
    }

    /// Made of relevant pieces: for any result, the own cgroup is a prefix that ends at a segment's end, says the
    /// same of itself, and its name is safe.
    #[test]
    fn own_cgroup_stands_for_its_subject(pieces in prop::collection::vec(prop::sample::select(vec![
        "kubepods".to_owned(), "burstable".to_owned(), format!("pod{UID}"), "kubepods.slice".to_owned(),
        format!("kubepods-pod{UID_}.slice"), A.to_owned(), B.to_owned(), format!("docker-{A}.scope"),
        format!("crio-conmon-{A}.scope"), "docker".to_owned(), "user-1.slice".to_owned(), "session-1.scope".to_owned(),
        "user.slice".to_owned(), "init.scope".to_owned(), "a\x1b.service".to_owned(), "container".to_owned(), "..".to_owned(),
    ]), 0..8)) {
        let path = format!("/{}", pieces.join("/"));
        for nodes in [Nodes::Machine, Nodes::Containers] {
            if let Ok(Place::Subject(subject, own)) = parse(&path, nodes) {
                prop_assert!(path == own || path.strip_prefix(own).is_some_and(|below| below.starts_with('/')));
                prop_assert_eq!(parse(own, nodes), Ok(Place::Subject(subject.clone(), own)));
                prop_assert!(subject.to_string().chars().all(|c| !c.is_control()));
            }
        }
    }
}
