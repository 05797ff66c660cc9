//! Reads the source's inputs, keeps them, and waits for those that must come.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use epitaph::source::pods::{PodSource, PodsCounters};
use epitaph_core::input::Input;
use epitaph_core::pod::{PodFact, PodGone, PodsState};
use epitaph_tests::timeout::{holds, until};
use tokio::time::{Instant, timeout_at};

/// Longer than any pause between two requests: an input that has not come by then does not come.
const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Listener {
    pods: PodSource,
    seen: Vec<Input>,
    /// Inputs that were read for the states waited for.
    states: usize,
}

impl Listener {
    pub fn new(pods: PodSource) -> Listener {
        Listener {
            pods,
            seen: Vec::new(),
            states: 0,
        }
    }

    pub fn seen(&self) -> &[Input] {
        &self.seen
    }

    pub fn counters(&self) -> Arc<PodsCounters> {
        self.pods.counters.clone()
    }

    /// The newest version of the last pod of that name.
    pub fn last(&self, name: &str) -> Option<Arc<PodFact>> {
        self.seen.iter().rev().find_map(|input| match input {
            Input::Pod(pod) if pod.pod.name == name => Some(pod.clone()),
            _ => None,
        })
    }

    /// As the core's command has it.
    pub fn list_events(&mut self, pod: &PodFact) {
        self.seen.extend(self.pods.list_events(pod.pod.clone()));
    }

    /// A version of the pod for which `is` holds.
    pub async fn pod(&mut self, name: &str, is: impl Fn(&PodFact) -> bool) -> anyhow::Result<Arc<PodFact>> {
        self.until(&format!("pod {name}"), |input| match input {
            Input::Pod(pod) if pod.pod.name == name && is(pod) => Some(pod.clone()),
            _ => None,
        })
        .await
    }

    pub async fn gone(&mut self, name: &str) -> anyhow::Result<PodGone> {
        let uid = self
            .last(name)
            .with_context(|| format!("{name} was never reported"))?
            .pod
            .uid
            .clone();
        self.until(&format!("the deletion of {name}"), |input| match input {
            Input::PodGone(gone) if gone.uid == uid => Some(gone.clone()),
            _ => None,
        })
        .await
    }

    /// The next `Synced`.
    pub async fn synced(&mut self) -> anyhow::Result<()> {
        self.state("synced", |state| (*state == PodsState::Synced).then_some(()))
            .await
    }

    /// The next `Away`, with its reason.
    pub async fn away(&mut self) -> anyhow::Result<String> {
        self.state("away", |state| match state {
            PodsState::Away { reason } => reason.clone(),
            PodsState::Synced => None,
        })
        .await
    }

    async fn state<T>(&mut self, what: &str, is: impl Fn(&PodsState) -> Option<T>) -> anyhow::Result<T> {
        let mut from = self.states;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            for place in from..self.seen.len() {
                if let Input::Pods(state) = &self.seen[place]
                    && let Some(found) = is(state)
                {
                    self.states = place + 1;
                    return Ok(found);
                }
            }
            from = self.seen.len();
            self.next(what, deadline).await?;
        }
    }

    /// What `is` finds in the inputs so far, or in those to come.
    pub async fn until<T>(&mut self, what: &str, is: impl Fn(&Input) -> Option<T>) -> anyhow::Result<T> {
        let mut from = 0;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = self.seen[from..].iter().find_map(&is) {
                return Ok(found);
            }
            from = self.seen.len();
            self.next(what, deadline).await?;
        }
    }

    /// Waits until the queue of inputs is full.
    pub fn full(&self) -> anyhow::Result<()> {
        let inputs = &self.pods.inputs;
        tokio::task::block_in_place(|| {
            until("a full queue", || {
                Ok(holds(inputs.capacity() == 0, || format!("room for {}", inputs.capacity())))
            })
        })
    }

    async fn next(&mut self, what: &str, deadline: Instant) -> anyhow::Result<()> {
        match timeout_at(deadline, self.pods.inputs.recv()).await {
            Ok(Some(input)) => {
                self.seen.push(input);
                Ok(())
            }
            Ok(None) => bail!("the source ended before {what} came"),
            Err(_) => bail!("{what} did not come; the last that did: {:#?}", self.seen.last()),
        }
    }
}
