//! What was measured, what was wanted, and on what a machine.

use std::fs;

use anyhow::Context as _;

pub struct Table {
    rows: Vec<[String; 4]>,
    notes: Vec<String>,
    load: String,
}

impl Table {
    pub fn new() -> anyhow::Result<Table> {
        Ok(Table {
            rows: Vec::new(),
            notes: Vec::new(),
            load: load()?,
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
            .push([what.to_owned(), goal.to_owned(), "not measured".to_owned(), String::new()]);
        self.note(format!("{what}: not measured: {reason}"));
    }

    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub fn print(mut self) -> anyhow::Result<()> {
        let head = ["measured", "goal", "reached", "met"].map(str::to_owned);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        println!(
            "Linux {}, {}, {cpus} CPUs; load average {} at the start, {} at the end\n",
            kernel.trim(),
            cpu(),
            self.load,
            load()?
        );
        self.rows.insert(0, head);
        let mut widths = [0; 4];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for (index, row) in self.rows.iter().enumerate() {
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
        Ok(())
    }
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
