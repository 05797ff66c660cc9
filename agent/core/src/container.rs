//! A container as the files of its runtime describe it: names for people, not evidence.

use serde::{Deserialize, Serialize};

use crate::ids::{ContainerId, Signal};

/// Every text is bounded and safe to print. A container without any of these is one that no file describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFact {
    pub id: ContainerId,
    /// The name that people gave the container; in a pod the container's name in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The image as the container was created from it, with tag or digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The arguments of the first process, the program first. Empty unless configured: arguments can be secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The pod's sandbox (pause) container, by the runtime's own annotation.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sandbox: bool,
    /// The stop signal of the image or the container, where the runtime writes it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<Signal>,
}

impl ContainerFact {
    pub const fn unknown(id: ContainerId) -> ContainerFact {
        ContainerFact {
            id,
            name: None,
            image: None,
            command: Vec::new(),
            sandbox: false,
            stop_signal: None,
        }
    }

    /// The name for people: `checkout (image shop:1.4)`, without a name the short id.
    pub fn title(&self) -> String {
        let name = self.name.as_deref().unwrap_or_else(|| self.id.short());
        match &self.image {
            Some(image) => format!("{name} (image {image})"),
            None => name.to_owned(),
        }
    }

    /// Bytes beyond its own size.
    pub fn bytes(&self) -> usize {
        let texts = [&self.name, &self.image].into_iter().flatten().chain(&self.command);
        self.command.capacity() * size_of::<String>() + texts.map(String::capacity).sum::<usize>()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}
