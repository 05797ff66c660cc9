//! A buffer of which the test is the kernel.

use std::collections::VecDeque;
use std::fs::File;

use proptest::prelude::*;

use super::*;

const PAGE: usize = 4096;
const SIZE: usize = 4096;

/// The kernel's side, in the same file.
struct Kernel {
    consumer: Mapping,
    producer: Mapping,
}

impl Kernel {
    fn new() -> (Kernel, Reader) {
        let file = tempfile::tempfile().unwrap();
        file.set_len((2 * PAGE + SIZE) as u64).unwrap();
        let kernel = Kernel {
            consumer: mapping(&file, 0, PAGE),
            producer: mapping(&file, PAGE, PAGE + SIZE),
        };
        let reader = Reader::new(mapping(&file, 0, PAGE), mapping(&file, PAGE, PAGE + SIZE), PAGE);
        (kernel, reader)
    }

    /// The place of a new record, which is not finished; None if there is no room.
    fn reserve(&self, length: usize) -> Option<usize> {
        let (read, written) = (self.consumer.position(), self.producer.position());
        let begin = written.load(Ordering::SeqCst);
        let end = begin + (HEADER + length).next_multiple_of(8);
        if end - read.load(Ordering::SeqCst) > SIZE {
            return None;
        }
        self.header(begin).store(length as u32 | BUSY, Ordering::SeqCst);
        written.store(end, Ordering::SeqCst);
        Some(begin)
    }

    fn finish(&self, begin: usize, bytes: &[u8], discard: bool) {
        for (i, byte) in bytes.iter().enumerate() {
            let at = PAGE + (begin + HEADER + i) % SIZE;
            // SAFETY: within the mapping; the record is not finished, so that nobody reads it.
            unsafe { self.producer.start.cast::<u8>().add(at).write(*byte) };
        }
        let header = bytes.len() as u32 | if discard { DISCARD } else { 0 };
        self.header(begin).store(header, Ordering::SeqCst);
    }

    fn header(&self, begin: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, and aligned.
        unsafe { self.producer.start.byte_add(PAGE + begin % SIZE).cast().as_ref() }
    }
}

fn mapping(file: &File, offset: usize, bytes: usize) -> Mapping {
    Mapping::new(file.as_fd(), offset, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(usize),
    /// The oldest record that is not finished, or a later one.
    Finish {
        place: usize,
        discard: bool,
    },
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_usize..900).prop_map(Step::Reserve),
        (0_usize..4, any::<bool>()).prop_map(|(place, discard)| Step::Finish { place, discard }),
        Just(Step::Read),
    ]
}

/// As a map of the order: None while a record is not finished, Some(None) once it is discarded.
type Expected = VecDeque<(usize, Vec<u8>, Option<bool>)>;

fn read_one(reader: &mut Reader, expected: &mut Expected) {
    while let Some((_, _, Some(true))) = expected.front() {
        expected.pop_front();
    }
    let bytes = reader.next().map(|record| record.to_vec());
    match expected.front() {
        Some((_, wanted, Some(_))) => assert_eq!(bytes.as_ref(), Some(wanted)),
        Some((_, _, None)) | None => assert_eq!(bytes, None),
    }
    if bytes.is_some() {
        expected.pop_front();
    }
}

proptest! {
    /// In the order of reservation, whole, once, and none before it is finished, however often they cross the end.
    #[test]
    fn records_are_read_as_they_were_written(steps in prop::collection::vec(step(), 1..400)) {
        let (kernel, mut reader) = Kernel::new();
        let mut expected = Expected::new();
        let mut number = 0_u8;
        for step in steps {
            match step {
                Step::Reserve(length) => {
                    let Some(begin) = kernel.reserve(length) else { continue };
                    number = number.wrapping_add(1);
                    let bytes = (0..length).map(|i| number.wrapping_mul(31).wrapping_add(i as u8)).collect();
                    expected.push_back((begin, bytes, None));
                }
                Step::Finish { place, discard } => {
                    let mut open = expected.iter_mut().filter(|(_, _, state)| state.is_none());
                    if let Some((begin, bytes, state)) = open.nth(place) {
                        kernel.finish(*begin, bytes, discard);
                        *state = Some(discard);
                    }
                }
                Step::Read => read_one(&mut reader, &mut expected),
            }
        }
        for (begin, bytes, state) in &mut expected {
            if state.is_none() {
                kernel.finish(*begin, bytes, false);
                *state = Some(false);
            }
        }
        while !expected.is_empty() {
            read_one(&mut reader, &mut expected);
        }
        prop_assert!(reader.next().is_none());
        prop_assert_eq!(kernel.consumer.position().load(Ordering::SeqCst), kernel.producer.position().load(Ordering::SeqCst));
    }
}
