//! Messages of the role: whoever controls the role chooses them.

use epitaph_core::node::NodeEvent;

use super::wire::{self, FrameError, Frames, FromAgent, FromRole};
use crate::fuzz::{outcome, run, shape};

#[test]
fn logind_frame() {
    let seeds = super::tests::of_all_kinds()
        .into_iter()
        .map(|node| wire::frame(&FromRole::Event { node }));
    let mut seeds: Vec<Vec<u8>> = seeds.collect();
    let protocol = wire::PROTOCOL;
    let version = "1".to_owned();
    let both = [FromRole::Hello { protocol, version }, FromRole::Alive]
        .iter()
        .flat_map(wire::frame)
        .collect();
    seeds.extend([
        both,
        wire::frame(&FromAgent::Hello { protocol, stays: true }),
        wire::frame(&FromAgent::Release),
    ]);
    run("logind_frame", seeds, |bytes| {
        let of_agent = read::<FromAgent>(bytes).len();
        let mut shapes = Vec::new();
        for message in read::<FromRole>(bytes) {
            let admitted = message.and_then(wire::admitted);
            if let Ok(FromRole::Event { node }) = &admitted {
                check(node);
                // Through the agent's own recording, too.
                let again = serde_json::to_vec(node).expect("JSON");
                assert_eq!(serde_json::from_slice::<NodeEvent>(&again).expect("the same"), *node);
            }
            shapes.push(match &admitted {
                Ok(FromRole::Event { node }) => shape(node),
                other => shape(other),
            });
        }
        outcome((of_agent, shapes))
    });
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Vec<Result<T, FrameError>> {
    let mut frames = Frames::default();
    let mut all = Vec::new();
    for part in bytes.chunks(1_000) {
        frames.push(part);
        while let Some(next) = frames.take() {
            let is_end = matches!(next, Err(FrameError::Oversize(_)));
            all.push(next.map(|(message, _)| message));
            if is_end {
                return all;
            }
        }
    }
    all
}

fn check(node: &NodeEvent) {
    let text = serde_json::to_string(node).expect("JSON");
    assert!(text.len() < wire::MAX_FRAME, "{} bytes", text.len());
    assert!(!text.contains("\\u00"), "a control character: {text}");
    assert!(!matches!(node, NodeEvent::Kubelet { .. } | NodeEvent::KubeletState { .. }));
}
