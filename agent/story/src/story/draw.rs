//! The timeline as text: a row for each moment or duration, all on one axis.

use epitaph_core::render::text::{Paint, Style};
use epitaph_core::time::Wall;
use epitaph_core::verdict::Severity;

use super::timeline::{Mark, Part, Row};
use super::words::{between, hanging, paragraph, short};

/// `  `, the time of day, ` `, the offset, ` |`, the axis, `| `, the label.
const INDENT: usize = 2;
const CLOCK: usize = 12;
const OFFSET: usize = 8;
const FRAME: usize = 5;

/// Rows that are drawn; the rest is counted. A pod of many containers has more.
const MOST: usize = 48;

/// Lines of at most `width` columns.
pub fn draw(parts: &[Part], width: usize, style: Style) -> String {
    let rows = || parts.iter().flat_map(|part| &part.rows);
    let (Some(begin), Some(end)) = (
        rows().map(|row| row.at).min(),
        rows().map(|row| row.until.unwrap_or(row.at).max(row.at)).max(),
    ) else {
        return String::new();
    };
    let rest = width.max(60) - INDENT - CLOCK - OFFSET - FRAME;
    let axis = Axis {
        begin,
        end,
        cells: rest * 4 / 9,
    };
    let drawing = Drawing {
        paint: Paint(style),
        label: rest - axis.cells,
        axis,
    };
    let mut out = drawing.head();
    let mut left = MOST;
    for part in parts {
        if left == 0 {
            break;
        }
        if let Some(heading) = &part.heading {
            out.push_str(&paragraph(heading, width, "  "));
        }
        for row in part.rows.iter().take(left) {
            out.push_str(&drawing.row(row));
        }
        left -= part.rows.len().min(left);
    }
    let all = rows().count();
    if all > MOST {
        out.push_str(&format!("  … and {} more; --output json has all of them\n", all - MOST));
    }
    out
}

/// Linear, from the first moment to the last.
struct Axis {
    begin: Wall,
    end: Wall,
    cells: usize,
}

impl Axis {
    fn cell(&self, at: Wall) -> usize {
        let whole = u128::from(self.end.0.saturating_sub(self.begin.0));
        let part = u128::from(at.0.saturating_sub(self.begin.0));
        let last = self.cells - 1;
        if whole == 0 {
            return 0;
        }
        usize::try_from((part * last as u128 + whole / 2) / whole)
            .unwrap_or(last)
            .min(last)
    }
}

struct Drawing {
    paint: Paint,
    axis: Axis,
    label: usize,
}

impl Drawing {
    fn head(&self) -> String {
        let Axis { begin, end, cells } = self.axis;
        let date = &begin.rfc3339_millis()[..10];
        let whole = short(between(begin, end));
        let line = format!("  {date} UTC  after |0{whole:>width$}|", width = cells - 1);
        format!("{}\n", self.paint.dim(&line))
    }

    fn row(&self, row: &Row) -> String {
        let clock = &row.at.rfc3339_millis()[11..23];
        let offset = short(between(self.axis.begin, row.at));
        let mut out = String::new();
        for (n, line) in hanging(&row.label, self.label, "  ").iter().enumerate() {
            if n == 0 {
                let bar = self.tone(row.mark, &self.bar(row));
                out.push_str(&format!(
                    "  {clock} {offset:>OFFSET$} |{bar}| {}\n",
                    self.label(row.mark, line)
                ));
            } else {
                let blank = " ".repeat(INDENT + CLOCK + 1 + OFFSET + 1);
                let empty = " ".repeat(self.axis.cells);
                out.push_str(&format!("{blank}|{empty}| {}\n", self.label(row.mark, line)));
            }
        }
        out
    }

    fn bar(&self, row: &Row) -> String {
        let from = self.axis.cell(row.at);
        let to = row.until.map_or(from, |until| self.axis.cell(until)).max(from);
        let (first, fill) = match row.mark {
            Mark::Event => ('*', '.'),
            Mark::Plain => ('*', '*'),
            Mark::Run => ('=', '='),
            Mark::Served => ('+', '+'),
            Mark::Lost => ('x', 'x'),
            Mark::Kill => ('#', '#'),
        };
        let cell = |at: usize| match at {
            _ if at == from => first,
            _ if from < at && at <= to => fill,
            _ => ' ',
        };
        (0..self.axis.cells).map(cell).collect()
    }

    fn tone(&self, mark: Mark, text: &str) -> String {
        match mark {
            Mark::Kill => self.paint.severity(Severity::Critical, text),
            Mark::Lost => self.paint.severity(Severity::Warning, text),
            Mark::Run | Mark::Served => self.paint.severity(Severity::Info, text),
            Mark::Event | Mark::Plain => text.to_owned(),
        }
    }

    fn label(&self, mark: Mark, text: &str) -> String {
        match mark {
            Mark::Kill | Mark::Lost => self.tone(mark, text),
            _ => text.to_owned(),
        }
    }
}
