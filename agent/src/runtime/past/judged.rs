//! The terminations of a recording: its evidence judged again, as `epitaph replay` does.

use std::collections::VecDeque;
use std::io::BufRead;

use epitaph_core::correlate::Correlator;
use epitaph_core::input::Observation;
use epitaph_core::render::json;
use epitaph_core::report::Report;
use epitaph_core::time::Wall;

use super::super::RuntimeError;
use super::super::pipeline::Observations;
use super::super::replay::Recorded;

/// Reads a recording once. Holds what the core holds, and the reports of one input.
pub struct Judged {
    recorded: Recorded<Box<dyn BufRead>>,
    core: Correlator,
    observations: Observations,
    ready: VecDeque<String>,
}

impl Judged {
    /// `name`: of the file, for people.
    pub fn new(file: Box<dyn BufRead>, name: &str, core: Correlator) -> Result<Judged, RuntimeError> {
        let recorded = Recorded::new(file, &name)?;
        Ok(Judged {
            observations: Observations::new(recorded.observation().clone()),
            recorded,
            core,
            ready: VecDeque::new(),
        })
    }

    /// When the observation began.
    pub fn since(&self) -> Wall {
        let observation = self.recorded.observation();
        observation.wall_offset.wall(observation.since)
    }

    /// The next termination, as `epitaph replay --output json` prints it.
    pub fn next_object(&mut self) -> Option<String> {
        while self.ready.is_empty() {
            let (now, input) = self.recorded.next()?;
            self.observations.take(&input);
            let answers = self.core.handle(now, input);
            let objects = answers
                .reports
                .iter()
                .filter_map(|report| object(report, self.observations.of(report)));
            self.ready.extend(objects);
        }
        self.ready.pop_front()
    }

    /// Pieces of evidence so far.
    pub fn inputs(&self) -> u64 {
        self.recorded.report().inputs
    }

    pub fn recorded(&self) -> &Recorded<Box<dyn BufRead>> {
        &self.recorded
    }
}

fn object(report: &Report, observation: &Observation) -> Option<String> {
    match report {
        Report::Terminated(t) => Some(json::line(&json::termination(t, observation))),
        Report::PodTerminated(p) => Some(json::line(&json::pod_termination(p, observation))),
        Report::NodeShutdown(s) => Some(json::line(&json::node_shutdown(s))),
        Report::NodeDown(d) => Some(json::line(&json::node_down(d))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use epitaph_core::correlate::Limits;
    use epitaph_core::fixtures::script;
    use epitaph_core::fixtures::terminations::observation;
    use epitaph_core::input::Input;
    use epitaph_core::time::Boot;
    use expect_test::expect;

    use super::*;
    use crate::recording::Writer;

    fn ticks(count: u64) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
        (1..=count).for_each(|second| writer.input(Boot(second * 1_000_000_000), &Input::Tick).unwrap());
        writer.into_inner()
    }

    /// What is wrong with a file, and the notes about it.
    fn read(file: Vec<u8>) -> (String, Vec<String>) {
        let file = Box::new(std::io::Cursor::new(file));
        let mut judged = Judged::new(file, "test", Correlator::new(Limits::default())).unwrap();
        while judged.next_object().is_some() {}
        let error = judged.recorded().not_whole("FILE").map(|error| crate::error::lines(&error));
        (error.unwrap_or_default(), judged.recorded().notes("FILE"))
    }

    /// By cutting whole frames out of a recording.
    #[test]
    fn records_that_are_missing_in_the_middle_are_named_with_their_times() {
        let (file, at) = (ticks(9), |count| ticks(count).len());
        let (error, _) = read([&file[..at(2)], &file[at(4)..at(6)], &file[at(7)..]].concat());
        expect![[r#"
            FILE is not whole: 2 missing records between 2023-11-14 22:13:22 and 2023-11-14 22:13:25 UTC, 1 missing record between 2023-11-14 22:13:26 and 2023-11-14 22:13:28 UTC; verdicts that may depend on the missing part are unknown, and counts are minimum numbers
            remedy: copy or export the file again; the evidence that a recorder did not finish to write is lost"#]]
        .assert_eq(&error);
    }

    #[test]
    fn records_that_are_there_twice_are_named() {
        let (file, at) = (ticks(6), |count| ticks(count).len());
        let (error, notes) = read([&file[..at(4)], &file[at(2)..]].concat());
        assert_eq!(error, "");
        assert_eq!(notes[0], "FILE has 2 records twice: each was used once");
    }

    #[test]
    fn a_second_recording_in_a_file_is_named_with_where_it_begins() {
        let (first, observation) = (ticks(2), observation());
        let at = first.len();
        let (error, _) = read([first, ticks(3)].concat());
        let begun = epitaph_story::story::moment(observation.wall_offset.wall(observation.since));
        assert_eq!(
            error,
            format!(
                "FILE has another recording (of {}, begun at {begun} UTC) behind the first one, from byte {at} on: it was not read\n\
                 remedy: give one recording at a time: `tail -c +{} FILE` prints FILE without the first one",
                observation.host,
                at + 1
            )
        );
    }

    #[test]
    fn a_shutdown_of_the_node_in_a_recording_is_shown() {
        let script = "-10 node bus connected\n+1 node prepare true by=:1.42\n+100 tick\n+101 end";
        let mut writer = Writer::new(Vec::new(), &observation()).unwrap();
        for (at, input) in script::parse(script).inputs {
            writer.input(at, &input).unwrap();
        }
        let file = Box::new(std::io::Cursor::new(writer.into_inner()));
        let mut judged = Judged::new(file, "test", Correlator::new(Limits::default())).unwrap();
        let shown: Vec<String> = std::iter::from_fn(|| judged.next_object()).collect();
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(
            shown[0].contains(r#""type":"node-shutdown""#) && shown[0].contains("spoofed"),
            "{shown:?}"
        );
    }
}
