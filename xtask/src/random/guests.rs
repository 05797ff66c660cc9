//! The same draw on other kernels. The clients are in the machine, too: of those outside, QEMU accepts a connection in the guest's place, and no
//! client could see a refusal. `cargo xtask test kernels` has clients outside of the machine.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use pico_args::Arguments;

use crate::{agent::Built, kernels, prove, shell};

/// What starts programs, and can be copied into a guest; scripts cannot.
const STARTERS: [&str; 7] = [
    "tini",
    "dumb-init",
    "runsvdir",
    "runsv",
    "s6-svscan",
    "s6-supervise",
    "setsid",
];
/// How many times slower than a usual machine an emulated one is.
const SLOWER: u32 = 3;
/// What a machine may take: its boot and the agent's start, and each history.
const TO_BEGIN: Duration = Duration::from_secs(300);
const EACH: Duration = Duration::from_secs(30);
const COUNT: u32 = 40;

/// `kernels`: `5.10,6.1`; what `args` still hold is for `random-histories`.
pub fn play(kernels: &str, built: &Built, mut args: Arguments) -> Result<ExitCode> {
    let names: Vec<String> = kernels.split(',').map(str::to_owned).collect();
    // The same on each kernel.
    let seed = match args.opt_value_from_str("--seed")? {
        Some(seed) => seed,
        None => std::process::id(),
    };
    let rest = args.finish();
    let count = rest.iter().find_map(|arg| arg.to_str()?.parse().ok());
    let mut words = vec![
        "/bin/random-histories --epitaph /bin/epitaph".to_owned(),
        format!("--seed {seed} --slow {SLOWER} --no-shrink"),
    ];
    if count.is_none() {
        words.push(COUNT.to_string());
    }
    for arg in &rest {
        words.push(quoted(arg)?);
    }
    let mut programs = vec![built.bin("random-histories")?, built.bin("epitaph")?];
    programs.extend(STARTERS.iter().filter_map(|program| shell::which(program)));
    let deadline = TO_BEGIN + EACH * count.unwrap_or(COUNT);
    let printed = kernels::print(&names, words.join(" "), programs, deadline)?;
    println!();
    let mut totals = Vec::new();
    let mut cut = 0;
    for machine in &printed {
        let total = machine.lines.iter().rev().find_map(|line| prove::closing(line));
        match (&machine.trouble, total) {
            (None, Some(total)) => {
                println!("kernel {}: {total}", machine.kernel);
                totals.push(total);
            }
            (trouble, _) => {
                cut += 1;
                let why = trouble.as_deref().unwrap_or("no closing line");
                println!(
                    "kernel {}: fail the machine runs to the end of the histories: {why}",
                    machine.kernel
                );
            }
        }
    }
    let (sum, is_well) = sum(&totals, cut);
    println!("{sum}");
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The closing lines as one, and whether nothing failed or was not played. A machine that was cut short is one failure.
fn sum(totals: &[String], cut: u64) -> (String, bool) {
    let mut sums: Vec<(String, u64)> = ["passed", "failed", "skipped"].map(|word| (word.to_owned(), 0)).into();
    for part in totals.iter().flat_map(|total| total.split(", ")) {
        // `3 passed`, or `unknown: 3`.
        let named = part
            .split_once(": ")
            .or_else(|| part.split_once(' ').map(|(count, name)| (name, count)));
        let Some((name, Ok(count))) = named.map(|(name, count)| (name, count.parse::<u64>())) else {
            continue;
        };
        match sums.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name.to_owned(), count)),
        }
    }
    sums[1].1 += cut;
    let is_well = sums[0].1 > 0 && sums[1].1 == 0 && sums[2].1 == 0;
    let shown = sums.iter().enumerate().map(|(place, (name, sum))| match place {
        0..3 => format!("{sum} {name}"),
        _ => format!("{name}: {sum}"),
    });
    (shown.collect::<Vec<_>>().join(", "), is_well)
}

/// For the shell of the guest's init.
fn quoted(arg: &OsString) -> Result<String> {
    let text = arg.to_str().with_context(|| format!("{} is not UTF-8", arg.display()))?;
    ensure!(!text.contains('\''), "a quotation mark in {text}");
    Ok(format!("'{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_are_added_up() {
        let totals = [
            "20 passed, 0 failed, 0 skipped, unknown: 1, known: 0",
            "19 passed, 1 failed, 0 skipped, unknown: 2, known: 0",
        ];
        let all = sum(&totals.map(str::to_owned), 0);
        assert_eq!(
            all,
            ("39 passed, 1 failed, 0 skipped, unknown: 3, known: 0".to_owned(), false)
        );
        assert!(prove::closing(&all.0).is_some());
        assert!(sum(&[totals[0].to_owned()], 0).1);
        // A machine that stopped in the middle, alone or not.
        assert!(!sum(&[totals[0].to_owned()], 1).1);
        assert_eq!(sum(&[], 1), ("0 passed, 1 failed, 0 skipped".to_owned(), false));
    }

    #[test]
    fn the_shell_of_the_guest_gets_each_word_whole() -> Result<()> {
        assert_eq!(quoted(&r#"{"a": "b c"}"#.into())?, r#"'{"a": "b c"}'"#);
        assert!(quoted(&"it's".into()).is_err());
        Ok(())
    }
}
