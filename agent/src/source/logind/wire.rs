//! What the role and the agent write to each other: frames, each a length of four bytes (little endian) and JSON.
//!
//! Each side parses the other's bytes as those of a stranger: nothing is trusted beyond [`MAX_FRAME`].

use epitaph_core::node::NodeEvent;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bounds;

/// Raised when a message changes its meaning. The two sides are the same binary, but in a rollout not always the same version.
pub(super) const PROTOCOL: u32 = 1;

/// Largest message, bytes. The longest is a list of [`bounds::LOCKS`] locks with texts of escapes.
pub(super) const MAX_FRAME: usize = 512 << 10;

const LENGTH: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(super) enum FromRole {
    /// The first message.
    Hello {
        protocol: u32,
        version: String,
    },
    Event {
        node: NodeEvent,
    },
    /// Nothing has happened for a while.
    Alive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(super) enum FromAgent {
    /// The first message: the role is welcome. `stays`: in a shutdown of the node the agent observes on after its stop signal, and the
    /// role has to do the same. Otherwise the role ends first.
    Hello {
        protocol: u32,
        #[serde(default)]
        stays: bool,
    },
    /// Let the delay lock go: the evidence is safe.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// The bytes after it have no known begin.
    #[error("a message of {0} bytes is longer than {MAX_FRAME}")]
    Oversize(usize),
    #[error("a message is not what this version writes")]
    Undecodable,
}

/// The bytes of a message.
pub(super) fn frame(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    // Types of ours, without maps with other keys than text: the only errors that the encoder has.
    serde_json::to_writer(&mut bytes, message).expect("every message has a form in JSON");
    let length = u32::try_from(bytes.len() - LENGTH).unwrap_or(u32::MAX);
    bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Bytes of a stream → messages.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// At most [`MAX_FRAME`] bytes and one read wait here, if every complete message is taken before the next read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message, with its bytes; None: more must be read.
    pub fn take<T: DeserializeOwned>(&mut self) -> Option<Result<(T, usize), FrameError>> {
        let length = u32::from_le_bytes(*self.bytes.first_chunk()?) as usize;
        if length > MAX_FRAME {
            return Some(Err(FrameError::Oversize(length)));
        }
        let end = LENGTH + length;
        let message = serde_json::from_slice(self.bytes.get(LENGTH..end)?);
        self.bytes.drain(..end);
        Some(message.map(|message| (message, end)).map_err(|_| FrameError::Undecodable))
    }
}

/// The message as far as the role may say it, bounded.
pub(super) fn admitted(message: FromRole) -> Result<FromRole, FrameError> {
    Ok(match message {
        FromRole::Hello { protocol, version } => FromRole::Hello {
            protocol,
            version: crate::source::bounded(&version, 64),
        },
        FromRole::Event { node } => FromRole::Event {
            node: bounds::event(node).ok_or(FrameError::Undecodable)?,
        },
        FromRole::Alive => FromRole::Alive,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use epitaph_core::node::BusState;

    use super::*;

    fn all(frames: &mut Frames) -> Vec<Result<FromRole, FrameError>> {
        let mut all = Vec::new();
        while let Some(next) = frames.take() {
            let is_lost = matches!(next, Err(FrameError::Oversize(_)));
            all.push(next.map(|(message, _)| message));
            if is_lost {
                break;
            }
        }
        all
    }

    #[test]
    fn messages_survive_any_cut() {
        let messages = [
            FromRole::Hello {
                protocol: PROTOCOL,
                version: "1".to_owned(),
            },
            FromRole::Event {
                node: NodeEvent::DelayLimit {
                    limit: Duration::from_secs(30),
                },
            },
            FromRole::Alive,
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(frame).collect();
        for cut in 0..=bytes.len() {
            let mut frames = Frames::default();
            frames.push(&bytes[..cut]);
            let mut read = all(&mut frames);
            frames.push(&bytes[cut..]);
            read.extend(all(&mut frames));
            assert_eq!(read, messages.clone().map(Ok), "cut at {cut}");
        }
    }

    #[test]
    fn garbage_is_one_message_and_an_oversize_is_the_end() {
        let mut frames = Frames::default();
        frames.push(&[2, 0, 0, 0, b'{', b'}', 0, 0, 0, 0]);
        frames.push(&frame(&FromRole::Alive));
        let garbage = Err(FrameError::Undecodable);
        assert_eq!(all(&mut frames), [garbage.clone(), garbage, Ok(FromRole::Alive)]);
        frames.push(&u32::MAX.to_le_bytes());
        assert_eq!(all(&mut frames), [Err(FrameError::Oversize(u32::MAX as usize))]);
    }

    #[test]
    fn the_role_speaks_neither_for_the_kubelet_nor_for_the_agent() {
        let of = |node| admitted(FromRole::Event { node });
        let kubelet = NodeEvent::KubeletState {
            state: Err(String::new()),
        };
        assert_eq!(of(kubelet), Err(FrameError::Undecodable));
        let off = NodeEvent::Bus { state: BusState::Off };
        assert_eq!(of(off), Err(FrameError::Undecodable));
        let reason = String::new();
        let unavailable = NodeEvent::Bus {
            state: BusState::Unavailable { reason },
        };
        assert!(of(unavailable).is_ok());
    }
}
