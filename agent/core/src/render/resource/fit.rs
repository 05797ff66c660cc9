//! The size of the resource, and its text.

use serde::Serialize;

use super::{EpitaphReport, POD, TERMINATIONS};
use crate::text::{bounded, escape, head};

/// Most bytes of the object as JSON, without what the API server adds. etcd holds ten thousand of them in 40 MB.
pub const MOST_BYTES: usize = 4096;
/// Of these, for the observer's field, which the agent does not know when it writes.
pub(super) const OBSERVERS: usize = 1024;

/// Longest sentence and remedy, bytes as JSON, before anything is cut because of the whole.
const SENTENCE: usize = 1024;
const REMEDY: usize = 640;
/// The same where the object is still too large: names in Kubernetes may have 253 characters.
const SHORT_SENTENCE: usize = 384;
const SHORT_REMEDY: usize = 256;
/// Most entries of `gaps`.
pub(super) const GAPS: usize = 5;
/// Most entries of `advice`: two of the pod, and some of containers.
const ADVICE: usize = 8;

/// A name or a word from outside: safe for a terminal, and at most so many bytes as JSON.
pub(super) fn word(text: &str, most: usize) -> String {
    cut(&bounded(text, most), most)
}

impl EpitaphReport {
    /// Cut until the whole fits into [`MOST_BYTES`], of a pod that is gone beside the observer's field, with `around` for the bytes of the rest of the object: first the oldest container
    /// terminations but the last three, then the texts, then what is left of the lists. What is in a column of `kubectl get` stays.
    #[must_use]
    pub(super) fn fitted(mut self, around: usize) -> EpitaphReport {
        // The observer adds nothing while the pod lives on.
        let observers = if self.terminated == POD { OBSERVERS } else { 0 };
        let most = (MOST_BYTES - observers).saturating_sub(around);
        self.sentence = cut(&escape(&self.sentence), SENTENCE);
        self.remedy = self.remedy.map(|remedy| cut(&escape(&remedy), REMEDY));
        self.gaps.truncate(GAPS);
        self.advice.truncate(ADVICE);
        let surplus = self.containers.len().saturating_sub(TERMINATIONS);
        self.containers.drain(..surplus);
        while bytes(&self) > most && self.containers.len() > 3 {
            self.containers.remove(0);
        }
        if bytes(&self) > most {
            self.sentence = cut(&self.sentence, SHORT_SENTENCE);
            self.remedy = self.remedy.map(|remedy| cut(&remedy, SHORT_REMEDY));
        }
        while bytes(&self) > most && !self.containers.is_empty() {
            self.containers.remove(0);
        }
        while bytes(&self) > most && self.gaps.pop().is_some() {}
        while bytes(&self) > most && self.advice.pop().is_some() {}
        if bytes(&self) > most {
            self.remedy = None;
        }
        // Of names with as many characters as Kubernetes allows.
        let over = bytes(&self).saturating_sub(most);
        if over > 0 {
            let length = bytes(&self.sentence) - 2;
            self.sentence = cut(&self.sentence, length.saturating_sub(over));
        }
        self
    }
}

/// As JSON.
pub(super) fn bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

/// At most so many bytes as JSON, where a quotation mark takes two.
pub(super) fn cut(text: &str, most: usize) -> String {
    if bytes(&text) <= most + 2 {
        return text.to_owned();
    }
    let mut end = most;
    loop {
        let short = head(text, end);
        if short.is_empty() || bytes(&short) + '…'.len_utf8() <= most + 2 {
            return format!("{short}…");
        }
        let over = bytes(&short) + '…'.len_utf8() - most - 2;
        // A character takes six bytes at most.
        end = short.len() - over.div_ceil(6).min(short.len());
    }
}
