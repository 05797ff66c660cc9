//! Files of container runtimes: whoever creates a container chooses their texts.

use epitaph_core::ids::ContainerId;

use super::layout;
use super::tests::{CONTAINERD, CRI_DOCKERD, CRIO, DOCKER, LIST, PODMAN, SANDBOX};
use crate::fuzz::{outcome, run};

#[test]
fn container_file() {
    let seeds = [CONTAINERD, SANDBOX, CRIO, PODMAN, LIST, DOCKER, CRI_DOCKERD].map(|seed| seed.as_bytes().to_vec());
    let id = ContainerId("3f1c0d4e5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f".into());
    run("container_file", seeds.into(), |bytes| {
        let found = [
            layout::bundle(bytes, &id).ok(),
            layout::docker(bytes, &id).ok(),
            layout::storage(bytes, &id).ok().flatten(),
        ];
        for fact in found.iter().flatten() {
            assert!(fact.id == id && fact.bytes() < 10_000, "{fact:?}");
            let texts = fact.name.iter().chain(&fact.image).chain(&fact.command);
            assert!(texts.into_iter().all(|text| !text.contains(char::is_control)), "{fact:?}");
        }
        outcome(found.map(|fact| fact.map(|fact| (fact.name.is_some(), fact.image.is_some(), fact.sandbox, fact.stop_signal))))
    });
}
