//! What was measured, what was wanted, what was reached before, and on what a machine.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use epitaph_tests::measured::Earlier;

pub struct Table {
    rows: Vec<[String; 4]>,
    notes: Vec<String>,
    load: String,
    earlier: Earlier,
}

const NOT_MEASURED: &str = "not measured";

impl Table {
    pub fn new() -> anyhow::Result<Table> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cost/results.tsv");
        let earlier = Earlier::read(&file, &machine()?).context("read the results of earlier runs")?;
        Ok(Table {
            rows: Vec::new(),
            notes: Vec::new(),
            load: load()?,
            earlier,
        })
    }

    /// A number without a goal.
    pub fn fact(&mut self, what: &str, reached: String) {
        self.rows.push([what.to_owned(), String::new(), reached, String::new()]);
    }

    /// `met` may be false; it is then marked.
    pub fn goal(&mut self, what: &str, goal: &str, reached: String, met: bool) {
        let mark = if met { "yes" } else { "NO" };
        self.rows.push([what.to_owned(), goal.to_owned(), reached, mark.to_owned()]);
    }

    /// What could not be measured here, and why.
    pub fn skip(&mut self, what: &str, goal: &str, reason: &str) {
        self.rows
            .push([what.to_owned(), goal.to_owned(), NOT_MEASURED.to_owned(), String::new()]);
        self.note(format!("{what}: not measured: {reason}"));
    }

    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// `record`: adds the results to those of earlier runs, under this commit.
    pub fn print(self, record: Option<&str>) -> anyhow::Result<()> {
        println!(
            "{}; load average {} at the start, {} at the end\n",
            machine()?,
            self.load,
            load()?
        );
        let head = ["measured", "goal", "reached", "met", "before"].map(str::to_owned);
        let shown = self.rows.iter().map(|[what, goal, reached, met]| {
            let before = self.earlier.last(what).join(", ");
            [what.clone(), goal.clone(), reached.clone(), met.clone(), before]
        });
        let shown: Vec<_> = std::iter::once(head).chain(shown).collect();
        let mut widths = [0; 5];
        for row in &shown {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for (index, row) in shown.iter().enumerate() {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("| {} |", cells.join(" | "));
            if index == 0 {
                println!("|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
            }
        }
        println!();
        for note in &self.notes {
            println!("{note}");
        }
        for [what, goal, reached, _] in &self.rows {
            if let Some(by) = self.earlier.worse(what, goal, reached) {
                println!("worse than before by {by:.0} %: {what}");
            }
        }
        if let Some(commit) = record {
            let measured = self.rows.iter().filter(|row| row[2] != NOT_MEASURED);
            let results = measured.map(|[what, _, reached, _]| (&**what, &**reached));
            self.earlier
                .add(commit, results)
                .context("add the results to those of earlier runs")?;
        }
        Ok(())
    }
}

/// `Linux 6.18, AMD EPYC, 2 CPUs`: kernels of one series compare.
fn machine() -> anyhow::Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
    let series: Vec<&str> = kernel.split(['.', '-', '\n']).take(2).collect();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(format!("Linux {}, {}, {cpus} CPUs", series.join("."), cpu()))
}

/// Of the last one, five and fifteen minutes.
fn load() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("read the load average")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}
