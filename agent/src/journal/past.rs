//! What the journal holds from earlier runs: finished reports, those that the collector has not answered, and evidence.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;

use bytes::Bytes;
use epitaph_core::decode::decode;
use epitaph_core::input::{Input, Observation};
use epitaph_core::time::{Boot, Wall};
use serde::Deserialize;

use super::beginning::read_beginning;
use super::directory::Directory;
use super::files::Disk;
use super::format::{
    FileKind, Finished, RESOURCE, ReportId, TAG_ANSWERED, TAG_ANSWERED_IN_PART, TAG_REPORT, TAG_RESOURCE, newer_name,
    read_answered, read_answered_in_part, read_resource, segment_name,
};
use super::reader::{Place, Skipped};
use super::store::on_disk;
use crate::recording::frames::{Frames, Next, Numbers, PREFIX, stamped};
use crate::recording::{Header, ReadError, Reader};

/// Place, body and kind of a frame → the reports that it finishes.
type Take<'a> = dyn FnMut(Place, &[u8], u8) -> Option<Vec<ReportId>> + 'a;

/// A finished report that the collector has not answered.
#[derive(Clone, Debug)]
pub struct Pending {
    pub id: ReportId,
    pub spans: u64,
    /// The verdict's headline. None: a report without one, such as a node's time without power.
    pub verdict: Option<String>,
    /// The signals that the collector has answered; a bit each.
    pub answered: u8,
    pub(crate) place: Place,
}

/// Most custom resources of earlier runs, 4 KiB each: as many as wait for the API server in one run.
const RESOURCES: usize = 512;

/// Custom resources that the API server has not got, the oldest first.
#[derive(Debug, Default)]
pub struct Resources {
    waiting: BTreeMap<u64, (ReportId, Vec<u8>)>,
    places: HashMap<ReportId, u64>,
    next: u64,
    /// How many more there are, which are not held.
    pub over: u64,
}

impl Resources {
    pub fn iter(&self) -> impl Iterator<Item = (ReportId, &[u8])> {
        self.waiting.values().map(|(id, resource)| (*id, resource.as_slice()))
    }

    fn add(&mut self, id: ReportId, resource: &[u8]) {
        self.answered(id);
        self.places.insert(id, self.next);
        self.waiting.insert(self.next, (id, resource.to_vec()));
        self.next += 1;
        if self.waiting.len() > RESOURCES
            && let Some((_, (oldest, _))) = self.waiting.pop_first()
        {
            self.places.remove(&oldest);
            self.over += 1;
        }
    }

    fn answered(&mut self, id: ReportId) {
        if let Some(place) = self.places.remove(&id) {
            self.waiting.remove(&place);
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Past {
    /// All finished reports that the journal knows.
    pub finished: HashSet<ReportId>,
    /// In the order of the terminations' ends.
    pub pending: Vec<Pending>,
    pub resources: Resources,
    pub skipped: Skipped,
    /// Number and bytes of each segment, the oldest first.
    pub(super) segments: Vec<(u64, u64)>,
    /// Number of the next segment: above all that are there, those of a newer version, too.
    pub(super) next: u64,
    directory: Option<Arc<Directory>>,
}

impl Past {
    /// Reads the journal before its writer begins: keeps segments of a newer version aside, and cuts torn ends.
    /// `alive` is called whenever the disk has answered.
    pub(super) fn read(disk: &Disk, alive: &dyn Fn()) -> io::Result<Past> {
        let mut past = Past {
            directory: Some(disk.directory.clone()),
            ..Past::default()
        };
        let mut pending: Vec<Option<Pending>> = Vec::new();
        // The same static pod may end twice within a boot, under one id.
        let mut places: HashMap<ReportId, Vec<(Wall, usize)>> = HashMap::new();
        let mut resources = Resources::default();
        let segments = past.tidy(disk)?;
        let newest = segments.last().copied();
        for number in segments {
            alive();
            // A killed agent's last frames may be in memory only. What is delivered from here on must outlive a power cut.
            let file = match disk.directory.read(&segment_name(number)) {
                Ok(file) => file,
                // Another user's, or a damaged place of the disk: the others tell what they have.
                Err(error) => {
                    past.skipped.unreadable(&error);
                    past.segments.push((number, 0));
                    continue;
                }
            };
            let synced = file.sync_data();
            past.scan(
                disk,
                (number, file),
                newest == Some(number),
                &mut |place, body, tag| match tag {
                    TAG_REPORT => {
                        let report = Finished::read(body)?;
                        let known = places.entry(report.id).or_default();
                        if !report.request.is_empty() && known.iter().all(|(end, _)| *end != report.wall) {
                            known.push((report.wall, pending.len()));
                            pending.push(Some(Pending {
                                id: report.id,
                                spans: report.spans.into(),
                                verdict: None,
                                answered: 0,
                                place,
                            }));
                        }
                        Some(vec![report.id])
                    }
                    TAG_RESOURCE => {
                        let (id, resource) = read_resource(body)?;
                        resources.add(id, resource);
                        Some(Vec::new())
                    }
                    TAG_ANSWERED_IN_PART => {
                        let (signals, ids) = read_answered_in_part(body)?;
                        if signals == RESOURCE {
                            ids.for_each(|id| resources.answered(id));
                            return Some(Vec::new());
                        }
                        let ids: Vec<ReportId> = ids.collect();
                        for known in ids.iter().filter_map(|id| places.get(id)) {
                            // In the order of their ends, as they are sent.
                            let is_open =
                                |place: &usize| pending[*place].as_ref().is_some_and(|report| report.answered & signals == 0);
                            let first = known.iter().map(|(_, place)| *place).find(is_open);
                            if let Some(report) = first.and_then(|place| pending[place].as_mut()) {
                                report.answered |= signals;
                            }
                        }
                        Some(ids)
                    }
                    _ => {
                        let ids: Vec<ReportId> = read_answered(body).collect();
                        for known in ids.iter().filter_map(|id| places.get(id)) {
                            // In the order of their ends, as they are sent.
                            let first = known.iter().find(|(_, place)| pending[*place].is_some());
                            if let Some((_, place)) = first {
                                pending[*place] = None;
                            }
                        }
                        Some(ids)
                    }
                },
            );
            if let Err(error) = synced {
                past.skipped.unreadable(&error);
            }
        }
        past.resources = resources;
        past.segments.sort_unstable();
        for report in pending.into_iter().flatten() {
            alive();
            let verdict = read_report(&disk.directory, report.place, |report| verdict(report.json));
            past.pending.push(Pending {
                // Not readable now: the exporter tries again.
                verdict: verdict.unwrap_or_else(|_| Some(UNKNOWN.to_owned())),
                ..report
            });
        }
        Ok(past)
    }

    /// The segments of this version, in order.
    fn tidy(&mut self, disk: &Disk) -> io::Result<Vec<u64>> {
        let mut segments = Vec::new();
        for file in disk.directory.files()? {
            let (number, name) = (file.number(), file.name());
            self.next = self.next.max(number + 1);
            let opened = disk.directory.read(&name);
            if Directory::is_foreign(&opened) {
                self.skipped.unreadable(&ReadError::NotARecording);
                continue;
            }
            let mut length = 0;
            let is_newer = match opened {
                Ok(file) => {
                    length = file.metadata().map_or(0, |metadata| metadata.len());
                    matches!(read_beginning(&mut Frames::new(file)), Err(ReadError::Newer { .. }))
                }
                Err(_) => matches!(file, FileKind::Newer(_)),
            };
            match (file, is_newer) {
                (FileKind::Segment(_), true) => disk.rename(&name, &newer_name(number))?,
                // Written by the newer version before an older one was installed for a while.
                (FileKind::Newer(_), false) => disk.rename(&name, &segment_name(number))?,
                _ => {}
            }
            if is_newer {
                self.skipped.newer.push(newer_name(number));
                // Within the journal's bound like any other.
                self.segments.push((number, length));
            } else {
                segments.push(number);
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    /// Reads the reports and answers of a segment: `take` returns the finished ones. A torn end is cut from the newest one only: what an
    /// older one has lost, [`Past::replay`] states.
    fn scan(&mut self, disk: &Disk, (number, file): (u64, File), is_newest: bool, take: &mut Take<'_>) {
        let metadata = file.metadata().ok();
        let mut length = metadata.as_ref().map_or(0, |metadata| metadata.len());
        if metadata
            .as_ref()
            .is_some_and(|metadata| metadata.blocks() * 512 > on_disk(length))
        {
            // What an agent that was killed had reserved. Not needed for anything else: on a read-only disk it stays.
            let _ = disk.cut(number, length);
        }
        let mut frames = Frames::new(file);
        let beginning = match read_beginning(&mut frames) {
            Ok(beginning) => beginning,
            Err(error) => {
                self.skipped.unreadable(&error);
                self.segments.push((number, length));
                return;
            }
        };
        self.skipped.damaged(beginning.damaged);
        let mut is_segment = beginning.header.is_some();
        loop {
            match frames.next() {
                Next::Frame {
                    skipped,
                    missing,
                    at,
                    length,
                } => {
                    self.skipped.before(skipped, missing);
                    is_segment = true;
                    let of_number = frames.bytes_of_number();
                    let place = Place {
                        segment: number,
                        offset: frames.offset() - (PREFIX + of_number + length) as u64,
                        length: of_number + length,
                        is_numbered: of_number > 0,
                    };
                    let (_, tag, body) = stamped(frames.payload(at, length));
                    if matches!(tag, TAG_REPORT | TAG_ANSWERED | TAG_ANSWERED_IN_PART | TAG_RESOURCE) {
                        match take(place, body, tag) {
                            Some(ids) => self.finished.extend(ids),
                            None => self.skipped.unknown += 1,
                        }
                    }
                }
                Next::End { error: Some(error), .. } => {
                    self.skipped.unreadable(&error);
                    break;
                }
                // Nothing of it is the journal's: left as it is.
                Next::End { .. } if !is_segment => {
                    self.skipped.unreadable(&ReadError::NotARecording);
                    break;
                }
                Next::End { tail, error: None } => {
                    if tail > 0 {
                        self.skipped.torn += 1;
                        self.skipped.torn_bytes += tail;
                        let whole = length.saturating_sub(tail);
                        // A disk that does not write keeps it, and nothing is appended to it.
                        if is_newest && metadata.is_some() && frames.repeated() == 0 && disk.cut(number, whole).is_ok() {
                            length = whole;
                        }
                    }
                    break;
                }
            }
        }
        self.segments.push((number, length));
    }

    /// Feeds the evidence of earlier runs, as the core got it. What is missing is fed as lost. Nothing fails: a segment that cannot be
    /// read is missing.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn replay<E>(&self, mut take: impl FnMut(Boot, Input) -> Result<(), E>) -> Result<(), E> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut run: Option<Observation> = None;
        let mut last = Boot(0);
        let mut expected = None;
        let mut numbers = Numbers::None;
        // What is missing after the last frame: known to be before the next one.
        let mut missing: Option<fn(Boot) -> Vec<Input>> = None;
        for (number, _) in &self.segments {
            let Ok(file) = directory.read(&segment_name(*number)) else {
                continue;
            };
            let mut frames = Frames::new(file);
            let beginning = read_beginning(&mut frames).ok();
            let Some(header) = beginning.and_then(|beginning| beginning.header) else {
                // Its evidence may be of the same run, after what is known.
                missing = missing.or(run.as_ref().map(|_| Input::part_missing as _));
                continue;
            };
            let (epitaph, observation) = (header.epitaph.clone(), header.observation.clone());
            let mut reader = Reader::after(frames, Header { epitaph, observation }, decode);
            if !run.as_ref().is_some_and(|run| header.is_of(run)) {
                lose(&mut missing, last, last, &mut take)?;
                let observation = header.observation;
                last = observation.since;
                // The oldest segments are removed when the directory is full.
                missing = (!header.first).then_some(Input::none_recorded as _);
                take(last, Input::Start(observation.clone()))?;
                run = Some(observation);
            } else if expected != Some(*number) || numbers.missing_before(header.number) != Some(0) {
                // Segments before are removed or damaged, or the last one lacks its end.
                missing = missing.or(Some(Input::part_missing));
            }
            for (now, input) in reader.by_ref() {
                lose(&mut missing, last, last.max(now), &mut take)?;
                last = last.max(now);
                // A run is begun by its header.
                if !matches!(input, Input::Start(_)) {
                    take(now, input)?;
                }
            }
            let report = reader.report();
            if report.tail_bytes > 0 || report.error.is_some() {
                missing = missing.or(Some(Input::part_missing));
            }
            expected = Some(number + 1);
            numbers = reader.numbers();
        }
        lose(&mut missing, last, last, &mut take)
    }
}

/// Feeds what is missing between the two, once.
fn lose<E>(
    missing: &mut Option<fn(Boot) -> Vec<Input>>,
    since: Boot,
    now: Boot,
    take: &mut impl FnMut(Boot, Input) -> Result<(), E>,
) -> Result<(), E> {
    let lost = missing.take().map(|missing| missing(since));
    lost.into_iter().flatten().try_for_each(|lost| take(now, lost))
}

/// For a report that cannot be read.
const UNKNOWN: &str = "unknown";

fn verdict(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Judged {
        verdict: Option<String>,
    }
    let judged: Result<Judged, _> = serde_json::from_slice(json);
    judged.map_or_else(|_| Some(UNKNOWN.to_owned()), |judged| judged.verdict)
}

/// Reads a finished report again. Its checksum is checked: a request that changed on the disk is not sent.
fn read_report<T>(directory: &Directory, place: Place, of: impl FnOnce(&Finished<'_>) -> T) -> io::Result<T> {
    let file: File = directory.read(&segment_name(place.segment))?;
    let mut bytes = vec![0; PREFIX + place.length];
    file.read_exact_at(&mut bytes, place.offset)?;
    let mut frames = Frames::new(bytes.as_slice());
    if place.is_numbered {
        frames.set_numbers(Numbers::Any);
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the report is damaged");
    match frames.next() {
        Next::Frame {
            skipped: 0, at, length, ..
        } => {
            let (_, tag, body) = stamped(frames.payload(at, length));
            let report = Some(body).filter(|_| tag == TAG_REPORT).and_then(Finished::read);
            report.as_ref().map(of).ok_or_else(damaged)
        }
        _ => Err(damaged()),
    }
}

pub(super) fn read_request(directory: &Directory, place: Place) -> io::Result<Bytes> {
    read_report(directory, place, |report| Bytes::copy_from_slice(report.request))
}
