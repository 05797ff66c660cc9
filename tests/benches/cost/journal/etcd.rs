//! A real etcd with its data on the measured disk, and what it says of its own fsyncs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use epitaph_tests::cluster::Tools;
use epitaph_tests::http::{free_port, get};

const STEP: Duration = Duration::from_millis(100);
const STEPS: u32 = 300;
const HISTOGRAM: &str = "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"";

/// Killed when dropped.
pub struct Etcd {
    child: Child,
    port: u16,
    connection: Option<BufReader<TcpStream>>,
}

impl Etcd {
    pub fn start(tools: &Tools, directory: &Path) -> anyhow::Result<Etcd> {
        let port = free_port()?;
        let client = format!("http://127.0.0.1:{port}");
        let child = Command::new(tools.program("etcd"))
            .arg("--data-dir")
            .arg(directory.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            // The only member never calls itself.
            .args(["--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start etcd")?;
        let mut etcd = Etcd {
            child,
            port,
            connection: None,
        };
        for _ in 0..STEPS {
            if get(port, "/health").is_ok_and(|(status, _)| status == 200) {
                return Ok(etcd);
            }
            if let Some(status) = etcd.child.try_wait()? {
                bail!("etcd ended with {status}");
            }
            sleep(STEP);
        }
        bail!("etcd does not get healthy")
    }

    /// Writes a key: etcd answers once its log is on the disk.
    pub fn put(&mut self, value: &[u8]) -> anyhow::Result<()> {
        let body = format!(
            r#"{{"key": "{}", "value": "{}"}}"#,
            STANDARD.encode("epitaph"),
            STANDARD.encode(value)
        );
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?)),
        };
        let request = format!(
            "POST /v3/kv/put HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        ensure!(line.contains(" 200 "), "etcd answered {line:?}");
        let mut length = None;
        loop {
            line.clear();
            connection.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length.context("etcd's answer has no length")?];
        Ok(connection.read_exact(&mut answer)?)
    }

    pub fn fsyncs(&self) -> anyhow::Result<Fsyncs> {
        let (status, body) = get(self.port, "/metrics")?;
        ensure!(status == 200, "etcd's /metrics answered {status}");
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(HISTOGRAM)?.split_once("\"} ")?;
            // The last one is `+Inf`.
            Some((bound.parse().ok()?, count.trim().parse().ok()?))
        };
        let buckets: Vec<(f64, f64)> = body.lines().filter_map(bucket).collect();
        ensure!(!buckets.is_empty(), "etcd has no histogram of its fsyncs");
        Ok(Fsyncs { buckets })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Upper bounds, seconds, and how many fsyncs took no longer.
#[derive(Clone, Debug, Default)]
pub struct Fsyncs {
    buckets: Vec<(f64, f64)>,
}

impl Fsyncs {
    /// What came between `before` and `after`.
    pub fn add(&mut self, after: &Fsyncs, before: &Fsyncs) {
        self.buckets.resize(after.buckets.len(), (0.0, 0.0));
        for ((sum, after), before) in self.buckets.iter_mut().zip(&after.buckets).zip(&before.buckets) {
            *sum = (after.0, sum.1 + after.1 - before.1);
        }
    }

    /// Nanoseconds, as Prometheus' `histogram_quantile`: linear within a bucket.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let all = self.buckets.last().map_or(0.0, |(_, count)| *count);
        let rank = quantile * all;
        let (mut from, mut below) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= rank {
                let within = if *count > below {
                    (rank - below) / (count - below)
                } else {
                    0.0
                };
                let to = if bound.is_finite() { *bound } else { from };
                return (from + (to - from) * within) * 1e9;
            }
            (from, below) = (*bound, *count);
        }
        f64::NAN
    }
}
