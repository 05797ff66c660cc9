//! The kubelet's files: whoever can write them is root, and can still make them anything.

use super::config::Merged;
use super::flags::Flags;
use super::unit::Service;
use super::{period, state};
use crate::fuzz::{outcome, run, shape};
use crate::source::files::Directory;

#[test]
fn kubelet_configuration() {
    let seeds = [
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nshutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 30s\n",
        "{\"kind\":\"KubeletConfiguration\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"featureGates\":{\"GracefulNodeShutdown\":false}}",
        "shutdownGracePeriodByPodPriority:\n- priority: 100000\n  shutdownGracePeriodSeconds: 10\n- {priority: 0, shutdownGracePeriodSeconds: 60}\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nshutdownGracePeriod: 1m30s\n<<: {featureGates: null}\n",
        "{\"startTime\":\"2026-11-21T12:44:10.123456789+01:00\",\"endTime\":\"0001-01-01T00:00:00Z\"}",
        "[Service]\nEnvironment=\"A=--config=/a\" B=b\nEnvironmentFile=-/e\nExecStart=\nExecStart=-/usr/bin/kubelet $A '--config-dir=${B}' $$ \\\n--v=2\n",
        "{\"kubeletconfig\":{\"shutdownGracePeriod\":\"1m0s\",\"featureGates\":{\"GracefulNodeShutdown\":true}}}",
        "--config=/a --config-dir /b --feature_gates=A=true --root-dir=${SNAP_DATA}/x",
    ];
    let directory = tempfile::tempdir().unwrap();
    let root = Directory::root(directory.path()).unwrap().unwrap();
    run(
        "kubelet_configuration",
        seeds.map(|seed| seed.as_bytes().to_vec()).into(),
        |bytes| {
            let mut merged = Merged::default();
            let first = merged.merge(bytes, false);
            let second = merged.merge(bytes, true);
            let shutdown = merged.shutdown();
            if let Ok(shutdown) = &shutdown {
                let protection = shutdown.protection("a file");
                assert!(protection.phases().len() <= 64 && protection.needed().as_secs() < 64 * 366 * 86_400);
            }
            let mut service = Service::default();
            service.read(bytes);
            let text = String::from_utf8_lossy(bytes);
            let flags = Flags::parse_file(&text, std::path::Path::new("/snap"));
            let answered = super::configz::parse(bytes);
            outcome((
                answered.map(|shutdown| shutdown.refused).map_err(|error| shape(&error)),
                first.map_err(|error| shape(&error)),
                second.map_err(|error| shape(&error)),
                shutdown.map(|shutdown| shutdown.refused).map_err(|error| shape(&error)),
                state::parse(bytes)
                    .map(|state| (state.started.is_some(), state.ended.is_some()))
                    .is_ok(),
                period::parse(&text).is_some(),
                (
                    flags.config.is_some(),
                    flags.config_directory.is_some(),
                    flags.feature_gates.is_some(),
                ),
                service
                    .flags(&root)
                    .map(|flags| (flags.config.is_some(), flags.config_directory.is_some()))
                    .map_err(|reason| reason.split(' ').next().map(str::len)),
            ))
        },
    );
}
