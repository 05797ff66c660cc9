//! The first scan, right after the probes are attached. Until the core takes facts, the agent opens its journal and may wait for its
//! predecessor: what ends meanwhile is in the probes' records, and only this scan knows its name.

use std::collections::HashMap;

use epitaph_core::ids::{CgroupId, Pid};
use epitaph_core::input::{CgroupFact, Input, ProcessFact};
use epitaph_core::time::Boot;

use super::process::Known;
use super::{Procfs, ProcfsError, is_subject};

/// Bytes that are kept, of a machine with thousands of containers.
const KEPT: usize = 4 << 20;
/// Processes of which the next scan need not read again what never changes.
const MOST_KNOWN: usize = 1 << 16;

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Cgroup(CgroupId),
    Process(Pid, Boot),
}

impl Procfs {
    /// Shows each cgroup of a subject to `watch`, and keeps what exists for [`Procfs::scan_after_first`].
    pub fn first_scan(&mut self, mut watch: impl FnMut(CgroupId)) -> Result<(), ProcfsError> {
        let (mut first, mut bytes, mut known) = (Vec::new(), 0, HashMap::new());
        self.scan(|input| {
            match &input {
                Input::Cgroup(CgroupFact {
                    cgroup, path: Ok(path), ..
                }) if is_subject(path) => watch(*cgroup),
                Input::Cgroup(_) => return Ok(()),
                Input::Process(fact) if known.len() < MOST_KNOWN => drop(known.insert(fact.tgid, Known::of(fact))),
                _ => {}
            }
            bytes += bytes_of(&input);
            if bytes <= KEPT {
                first.push(input);
            }
            Ok::<(), ProcfsError>(())
        })?;
        (self.first, self.known) = (first, known);
        Ok(())
    }

    /// As [`Procfs::scan`], and then what only the first scan has shown.
    pub fn scan_after_first<E: From<ProcfsError>>(&mut self, mut each: impl FnMut(Input) -> Result<(), E>) -> Result<(), E> {
        let mut first: Vec<Option<Input>> = std::mem::take(&mut self.first).into_iter().map(Some).collect();
        let places = first.iter().flatten().filter_map(key).zip(0..);
        let places: HashMap<Key, usize> = places.collect();
        self.scan(|input| {
            if let Some(place) = key(&input).and_then(|key| places.get(&key)) {
                first[*place] = None;
            }
            each(input)
        })?;
        self.known = HashMap::new();
        first.into_iter().flatten().try_for_each(each)
    }
}

impl Known {
    fn of(fact: &ProcessFact) -> Known {
        Known {
            start: fact.start,
            ns_level: fact.ns_level,
            ns_pid: fact.ns_pid,
        }
    }
}

fn key(input: &Input) -> Option<Key> {
    match input {
        Input::Cgroup(fact) => Some(Key::Cgroup(fact.cgroup)),
        Input::Process(fact) => Some(Key::Process(fact.tgid, fact.start)),
        _ => None,
    }
}

fn bytes_of(input: &Input) -> usize {
    let texts = match input {
        Input::Cgroup(CgroupFact { path: Ok(path), .. }) => path.len(),
        Input::Process(ProcessFact { cgroups, .. }) => cgroups.iter().map(|(id, path)| size_of_val(id) + path.len()).sum(),
        _ => 0,
    };
    size_of::<Input>() + texts
}
