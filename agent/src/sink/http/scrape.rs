//! The text of `/metrics`: rendered for all scrapers, never at the same time, and kept in memory a bounded number of times.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use epitaph_core::time::Boot;
use tokio::sync::Mutex;

use crate::sink::metrics::Metrics;

/// A rendering is shared for so long: any number of scrapers costs ten renderings a second.
const FRESH: Duration = Duration::from_millis(100);

/// Most older renderings that clients still read. With so many, the newest stays the newest until one of the clients has read its
/// answer or runs out of time.
const OLDER: usize = 3;

pub struct Scrapes {
    metrics: Arc<Metrics>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    newest: Option<(Boot, Bytes)>,
    older: Vec<Bytes>,
}

impl Scrapes {
    pub fn new(metrics: Arc<Metrics>) -> Scrapes {
        Scrapes {
            metrics,
            kept: Mutex::default(),
        }
    }

    /// # Errors
    /// The encoder's errors, which no value of ours causes.
    pub async fn text(&self, now: Boot) -> Result<Bytes, prometheus::Error> {
        let mut kept = self.kept.lock().await;
        // A rendering that nobody else holds is read.
        kept.older.retain(|text| !text.is_unique());
        if let Some((at, text)) = &kept.newest
            && (now.since(*at) < FRESH || kept.older.len() >= OLDER)
        {
            return Ok(text.clone());
        }
        let text = Bytes::from(self.metrics.text()?);
        if let Some((_, replaced)) = kept.newest.replace((now, text.clone())) {
            kept.older.push(replaced);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::Resource;

    use super::*;

    const START: Boot = Boot(1_000_000_000);

    fn later(milliseconds: u64) -> Boot {
        Boot(START.0 + milliseconds * 1_000_000)
    }

    fn scrapes() -> Scrapes {
        let push = None::<(crate::sink::metrics::push::Push, Duration)>;
        Scrapes::new(Arc::new(Metrics::new(Resource::builder_empty().build(), push, 10).unwrap()))
    }

    #[tokio::test]
    async fn scrapers_share_a_rendering() {
        let scrapes = scrapes();
        let first = scrapes.text(START).await.unwrap();
        scrapes.metrics.neighbours(3);
        let same = scrapes.text(later(99)).await.unwrap();
        assert_eq!(first.as_ptr(), same.as_ptr());
        let next = scrapes.text(later(100)).await.unwrap();
        assert!(String::from_utf8_lossy(&next).contains("epitaph_agent_neighbours 3"));
    }

    #[tokio::test]
    async fn clients_that_read_slowly_keep_few_renderings() {
        let scrapes = scrapes();
        let mut reading = Vec::new();
        for i in 0..20 {
            reading.push(scrapes.text(later(i * 200)).await.unwrap());
        }
        let mut texts: Vec<_> = reading.iter().map(|text| text.as_ptr()).collect();
        texts.dedup();
        assert_eq!(texts.len(), OLDER + 1);
        // One client has read its answer: the next scrape is fresh again.
        let newest = reading.last().unwrap().as_ptr();
        reading.remove(0);
        assert_ne!(scrapes.text(later(5_000)).await.unwrap().as_ptr(), newest);
    }
}
