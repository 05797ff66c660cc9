//! All that was measured: a row per kernel, each compared with the committed page, and the totals.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;

use super::{
    page::{self, Page, RUNNING},
    row::{Played, Row},
};

#[derive(Debug, Default)]
pub struct Total {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// One kernel's run.
#[derive(Debug)]
pub struct Measured {
    /// As in the page: `6.12`, `running`, `6.12-arm64`.
    pub name: String,
    pub total: Total,
    pub row: Row,
}

/// Prints the rows and the totals, the closing line last. With `update` the rows
/// without a failure become the expectation.
///
/// # Errors
/// `docs/kernels.md` cannot be read or written.
pub fn verdict(mut measured: Vec<Measured>, played: Played, update: bool) -> Result<ExitCode> {
    let page = Page::read()?;
    if measured.iter().any(|kernel| kernel.row.complete) {
        println!();
        print_rows(&measured, &page);
    }
    println!();
    let mut next = page.clone();
    for kernel in measured.iter_mut().filter(|kernel| kernel.row.complete) {
        match (update, kernel.total.failed) {
            (false, _) => judge(kernel, &page, played),
            (true, 0) => next.insert(&kernel.name, kernel.row.clone()),
            (true, _) => println!("row {}: not written, because a test failed", kernel.name),
        }
    }
    if next != page {
        next.write()?;
        println!("docs/kernels.md is updated");
    }
    for kernel in &measured {
        let Total { passed, failed, skipped } = kernel.total;
        println!(
            "kernel {} ({}): {passed} passed, {failed} failed, {skipped} skipped",
            kernel.name, kernel.row.release
        );
    }
    let sum = |part: fn(&Total) -> u32| measured.iter().map(|kernel| part(&kernel.total)).sum::<u32>();
    let (passed, failed) = (sum(|total| total.passed), sum(|total| total.failed));
    println!(
        "kernels: {passed} passed, {failed} failed, {} skipped",
        sum(|total| total.skipped)
    );
    Ok(if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn judge(kernel: &mut Measured, rows: &Page, played: Played) {
    let name = &kernel.name;
    let own = name == RUNNING;
    let remedy = format!(
        "if the result is right, UPDATE_EXPECT=1 {} writes it to docs/kernels.md; else this kernel, or Epitaph, has a bug",
        page::task(name)
    );
    let Some((held_to, expected)) = rows.expected(name, &kernel.row.release) else {
        println!("fail row {name}: docs/kernels.md has no row of this kernel or of an older one; {remedy}");
        kernel.total.failed += 1;
        return;
    };
    if held_to != name {
        println!("note row {name}: docs/kernels.md has no row of this kernel; compared with the row of {held_to}");
    }
    let played = if own && played == Played::All {
        Played::Elsewhere
    } else {
        played
    };
    let differences = kernel.row.differences(expected, played);
    if differences.is_empty() {
        println!("pass row {name}: matches docs/kernels.md for {held_to}");
        kernel.total.passed += 1;
    } else {
        println!("fail row {name}: differs from docs/kernels.md for {held_to}:");
        differences.iter().for_each(|difference| println!("    {difference}"));
        println!("    {remedy}");
        kernel.total.failed += 1;
    }
}

/// A row per kernel, and the stories that most kernels, the page's included, judge differently.
fn print_rows(measured: &[Measured], page: &Page) {
    let mut all = page.clone();
    let complete = || measured.iter().filter(|kernel| kernel.row.complete);
    complete().for_each(|kernel| all.insert(&kernel.name, kernel.row.clone()));
    let common = all.common(|row| &row.stories);
    println!("kernel | probes | stories | records");
    for kernel in complete() {
        println!("{} ({}) | {}", kernel.name, kernel.row.release, kernel.row);
        for (story, verdict) in other(&kernel.row.stories, &common) {
            println!("    different from most kernels: {story}: {verdict}");
        }
    }
}

fn other<'r>(stories: &'r BTreeMap<String, String>, common: &BTreeMap<String, String>) -> Vec<(&'r String, &'r String)> {
    stories
        .iter()
        .filter(|(story, verdict)| common.get(*story) != Some(verdict))
        .collect()
}
