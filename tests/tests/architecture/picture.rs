//! The two pictures of ARCHITECTURE.md: each box is a room or something outside of the program, and each arrow is an import of the code at
//! one of its ends, or of the code that joins them.

use std::collections::BTreeSet;
use std::fs;

use super::{CRATES, MAP, dependencies, import, module_of, page, paths, root, rows};

/// An arrow of docs/images/architecture.svg, and the file that has this import because of it.
struct Arrow {
    from: &'static str,
    to: &'static str,
    /// Data goes both ways.
    both: bool,
    file: &'static str,
    room: &'static str,
}

const fn arrow(from: &'static str, to: &'static str, file: &'static str, room: &'static str) -> Arrow {
    Arrow {
        from,
        to,
        both: false,
        file,
        room,
    }
}

const fn both(from: &'static str, to: &'static str, file: &'static str, room: &'static str) -> Arrow {
    Arrow {
        both: true,
        ..arrow(from, to, file, room)
    }
}

const OBSERVE: &str = "agent/src/runtime/observe.rs";
const OBSERVER: &str = "agent/src/runtime/observer.rs";

const ARROWS: &[Arrow] = &[
    arrow("kernel", "agent", OBSERVE, "source/kernel"),
    arrow("/proc, cgroups", "agent", OBSERVE, "source/procfs"),
    arrow(
        "system bus",
        "logind container",
        "agent/src/runtime/logind.rs",
        "source/logind",
    ),
    arrow("logind container", "agent", "agent/src/runtime/logind.rs", "source/logind"),
    arrow("agent", "journal", OBSERVE, "journal"),
    both("agent", "API server", OBSERVE, "source/pods"),
    both("observer", "API server", OBSERVER, "source/cluster"),
    arrow("kubectl", "API server", "agent/kubectl/src/commands/list.rs", "cluster"),
    arrow("agent", "collector, Jaeger", OBSERVE, "sink/otlp"),
    arrow("observer", "collector, Jaeger", OBSERVER, "sink/otlp"),
    arrow("Prometheus, Grafana", "agent", OBSERVE, "sink/http"),
    arrow("Prometheus, Grafana", "observer", OBSERVER, "sink/http"),
];

#[test]
fn each_arrow_between_programs_is_an_import() {
    let svg = fs::read_to_string(root().join("docs/images/architecture.svg")).expect("the picture");
    let boxes = boxes(&svg);
    let mut drawn = BTreeSet::new();
    let mut lines: Vec<(Line, String)> = Vec::new();
    for (line, is_both) in arrows(&svg) {
        let [begin, end] = [line[0], line[line.len() - 1]];
        // A branch begins on the line of another arrow, and belongs to its begin.
        let branch = || {
            lines
                .iter()
                .find(|(other, _)| is_on(other, begin))
                .map(|(_, from)| from.clone())
        };
        let from = box_at(&boxes, begin).or_else(branch);
        let from = from.unwrap_or_else(|| panic!("an arrow begins at {begin:?}, where there is no box"));
        let to = box_at(&boxes, end).unwrap_or_else(|| panic!("an arrow ends at {end:?}, where there is no box"));
        lines.push((line, from.clone()));
        drawn.insert((from, to, is_both));
    }
    let known = ARROWS
        .iter()
        .map(|arrow| (arrow.from.to_owned(), arrow.to.to_owned(), arrow.both));
    assert_eq!(drawn, known.collect(), "drawn, and known to this test");
    let named: BTreeSet<&str> = ARROWS.iter().flat_map(|arrow| [arrow.from, arrow.to]).collect();
    assert_eq!(
        boxes.iter().map(|found| &*found.name).collect::<BTreeSet<_>>(),
        named,
        "a box without an arrow"
    );
    for Arrow {
        from, to, file, room, ..
    } in ARROWS
    {
        assert!(
            imports(file).contains(*room),
            "{from} → {to}: {file} does not import `{room}`"
        );
    }
}

/// What the picture of an observation's way draws, and where the code is: a file, and a room that it imports because of the arrow to it.
const WAY: &[(&str, &str, &str)] = &[
    ("kernel ──ring buffer──▶ decode", "agent/src/runtime/live.rs", "decode"),
    ("decode ─▶ Input", "agent/src/runtime/live.rs", "input"),
    ("/proc, cgroups", "agent/src/source/procfs/mod.rs", "input"),
    ("Kubernetes ───▶ Input", "agent/src/source/pods/mod.rs", "input"),
    (
        "a recording (replay) ─────────▶ Input",
        "agent/src/recording/reader.rs",
        "input",
    ),
    ("attribution → subjects", "agent/core/src/correlate/mod.rs", "attribute"),
    (
        "subjects → facts",
        "agent/core/src/correlate/subjects/finish.rs",
        "termination",
    ),
    ("facts → pods", "agent/core/src/correlate/pods/mod.rs", "termination"),
    ("pods → judge", "agent/core/src/report.rs", "verdict"),
    ("judge → report", "agent/core/src/correlate/mod.rs", "report"),
    ("source/kernel", "agent/src/runtime/live.rs", "source/kernel"),
    ("source/pods", "agent/src/runtime/live.rs", "source/pods"),
    ("render ─▶ sinks", "agent/src/runtime/sinks.rs", "render"),
    ("OTLP", "agent/src/runtime/sinks.rs", "sink/otlp"),
    ("/metrics", "agent/src/runtime/sinks.rs", "sink/metrics"),
    ("Events", "agent/src/runtime/sinks.rs", "sink/kubernetes_events"),
    ("terminal", "agent/src/runtime/sinks.rs", "sink/terminal"),
];

/// Words beside them.
const BESIDE: &str = "epitaph-core pure commands: watch, forget, list events reports BPF maps";

#[test]
fn each_step_of_an_observation_is_an_import() {
    let page = page(MAP);
    let picture = page.split("```").nth(1).expect("a picture");
    let mut wrong = Vec::new();
    for (drawn, file, room) in WAY {
        if !picture.contains(drawn) {
            wrong.push(format!("`{drawn}` is not drawn"));
        }
        if !imports(file).contains(*room) {
            wrong.push(format!("`{drawn}`: {file} does not import `{room}`"));
        }
    }
    let words = |text: &str| -> BTreeSet<String> {
        let words = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .map(str::to_owned);
        words
            .filter(|word| word.contains(|c: char| c.is_ascii_alphabetic()))
            .collect()
    };
    let known: BTreeSet<String> = WAY.iter().flat_map(|(drawn, ..)| words(drawn)).chain(words(BESIDE)).collect();
    let unknown: Vec<_> = words(picture).difference(&known).cloned().collect();
    if !unknown.is_empty() {
        wrong.push(format!("not known to this test: {unknown:?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rooms that a file imports, of its own crate and of others.
fn imports(file: &str) -> BTreeSet<String> {
    let (krate, dir) = *CRATES
        .iter()
        .find(|(_, dir)| file.starts_with(&format!("{dir}/src/")))
        .unwrap_or_else(|| panic!("{file} is of no crate with rooms"));
    let rows = rows();
    let dependencies = dependencies(&root().join(dir).join("Cargo.toml"));
    let path = root().join(file);
    let module = module_of(&root().join(dir).join("src"), &path);
    let all = paths(&path, &module);
    all.iter()
        .filter_map(|path| import(path, krate, &rows, &dependencies))
        .collect()
}

type Point = (f64, f64);
type Line = Vec<Point>;

struct Drawn {
    name: String,
    at: Point,
    size: Point,
}

/// Boxes with a name, not the frame around those of a node.
fn boxes(svg: &str) -> Vec<Drawn> {
    let names: Vec<(Point, &str)> = svg
        .split("<text ")
        .skip(1)
        .filter_map(|text| {
            let (attributes, rest) = text.split_once('>')?;
            let is_name = attributes.contains("font-weight=\"bold\"");
            is_name.then_some(((number(attributes, "x")?, number(attributes, "y")?), rest.split('<').next()?))
        })
        .collect();
    let rects = svg.split("<rect ").skip(1).filter_map(|rect| {
        let attributes = rect.split_once('>')?.0;
        let value = |name| number(attributes, name);
        let (at, size) = ((value("x")?, value("y")?), (value("width")?, value("height")?));
        let is_within = |(x, y): Point| (at.0..at.0 + size.0).contains(&x) && (at.1..at.1 + size.1).contains(&y);
        let mut within = names.iter().filter(|(place, _)| is_within(*place));
        let name = within.next()?.1.to_owned();
        within.next().is_none().then_some(Drawn { name, at, size })
    });
    rects.collect()
}

fn number(attributes: &str, name: &str) -> Option<f64> {
    let value = attributes
        .split_once(&format!(" {name}=\""))
        .or_else(|| attributes.split_once(&format!("{name}=\"")))?;
    value.1.split('"').next()?.parse().ok()
}

/// Each arrow's line, and whether it has a head at both ends.
fn arrows(svg: &str) -> Vec<(Line, bool)> {
    let lines = svg.split("<path d=\"").skip(1).filter_map(|path| {
        let (line, attributes) = path.split_once('"')?;
        let attributes = attributes.split('>').next()?;
        attributes
            .contains("marker-end")
            .then(|| (points(line), attributes.contains("marker-start")))
    });
    lines.collect()
}

/// `M228 106 L262 106`
fn points(line: &str) -> Line {
    let numbers: Vec<f64> = line
        .split([' ', 'M', 'L'])
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap_or_else(|_| panic!("a line of other parts: {line}")))
        .collect();
    numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// A head ends a little before its box.
const NEAR: f64 = 3.0;

fn box_at(boxes: &[Drawn], (x, y): Point) -> Option<String> {
    let touches = |found: &&Drawn| {
        let (left, top) = found.at;
        let (right, bottom) = (left + found.size.0, top + found.size.1);
        let is_near = |value: f64, edge: f64| (value - edge).abs() <= NEAR;
        let at_side = (is_near(x, left) || is_near(x, right)) && (top..=bottom).contains(&y);
        let at_end = (is_near(y, top) || is_near(y, bottom)) && (left..=right).contains(&x);
        at_side || at_end
    };
    boxes.iter().find(touches).map(|found| found.name.clone())
}

fn is_on(line: &Line, (x, y): Point) -> bool {
    let between = |value: f64, a: f64, b: f64| (a.min(b)..=a.max(b)).contains(&value);
    line.windows(2).any(|ends| {
        let [a, b] = [ends[0], ends[1]];
        let is_flat = a.0 == b.0 || a.1 == b.1;
        is_flat && between(x, a.0, b.0) && between(y, a.1, b.1)
    })
}
