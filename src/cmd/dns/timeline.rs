//! The picture of a trace: a bar for each vantage point, on one axis of time.

use crate::decide::trace::{Seen, Spell};
use crate::types::time::Tick;
use std::fmt::Write;
use std::time::Duration;

const LEFT: f64 = 230.0;
const WIDTH: f64 = 720.0;
const RIGHT: f64 = 110.0;
const ROW: f64 = 26.0;
const TOP: f64 = 58.0;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// What it is of.
    pub(super) label: String,
    pub(super) spells: Vec<Spell>,
    /// From the zero to the first new answer.
    pub(super) took: Option<Duration>,
}

/// Draws SVG 1.1 by itself: no script, no font and no file besides.
///
/// `zero` is where the axis counts from, `end` the end of the last spell of each bar.
pub(super) fn draw(title: &str, bars: &[Bar], zero: Tick, end: Tick) -> String {
    let first = bars.iter().filter_map(|bar| bar.spells.first()).map(|spell| spell.from).min().unwrap_or(zero);
    // What was before the fault is shown for a tenth of the whole at most.
    let whole = seconds(end.since(zero)).max(0.1);
    let before = seconds(zero.since(first)).min(whole / 10.0);
    let scale = WIDTH / (whole + before);
    // Seconds from the zero, negative before it.
    let place = |at: Tick| {
        let from_zero = if at >= zero { seconds(at.since(zero)) } else { -seconds(zero.since(at)) };
        LEFT + (from_zero.clamp(-before, whole) + before) * scale
    };
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + ROW * rows(bars) + 46.0);
    let bottom = TOP + ROW * rows(bars);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (number, (name, colour)) in
        [("old answer", OLD), ("new answer", NEW), ("no answer", NOTHING)].into_iter().enumerate()
    {
        #[allow(clippy::cast_precision_loss)] // one of three
        let x = LEFT + 120.0 * number as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"34\" width=\"14\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"45\">{name}</text>",
            x + 20.0
        );
    }
    let step = step(whole);
    let mut at = 0.0;
    while at <= whole + step / 1000.0 {
        let x = LEFT + (at + before) * scale;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#dee2e6\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#495057\">{} s</text>",
            bottom + 18.0,
            number(at)
        );
        at += step;
    }
    for (row, bar) in bars.iter().enumerate() {
        #[allow(clippy::cast_precision_loss)] // vantage points are few
        let y = TOP + ROW * row as f64 + 5.0;
        let _ = writeln!(svg, "<text x=\"12\" y=\"{}\">{}</text>", y + 13.0, escaped(&bar.label));
        for (spell, next) in
            bar.spells.iter().zip(bar.spells.iter().skip(1).map(|next| next.from).chain(std::iter::once(end)))
        {
            let (from, to) = (place(spell.from), place(next));
            if to > from {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"16\" fill=\"{}\"/>",
                    to - from,
                    colour(spell.seen)
                );
            }
        }
        let took = bar.took.map_or("still old".to_owned(), |took| format!("{:.2} s", seconds(took)));
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{took}</text>", LEFT + WIDTH + 8.0, y + 13.0);
    }
    let x = place(zero);
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#c92a2a\" stroke-width=\"2\"/>\n</svg>",
        TOP - 4.0
    );
    svg
}

const OLD: &str = "#e8590c";
const NEW: &str = "#2b8a3e";
const NOTHING: &str = "#ced4da";

fn colour(seen: Seen) -> &'static str {
    match seen {
        Seen::Old => OLD,
        Seen::New => NEW,
        Seen::Nothing => NOTHING,
    }
}

fn rows(bars: &[Bar]) -> f64 {
    #[allow(clippy::cast_precision_loss)] // vantage points are few
    let rows = bars.len() as f64;
    rows.max(1.0)
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

/// From mark to mark of the axis: 1, 2 or 5 of a power of ten, eight of them at most.
fn step(whole: f64) -> f64 {
    let power = 10_f64.powf((whole / 8.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|one| one * power).find(|step| whole / step <= 8.0).unwrap_or(whole)
}

/// Without the error of its sums.
fn number(at: f64) -> String {
    let text = format!("{at:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_stands_where_its_time_is() {
        let at = |seconds| Tick(Duration::from_secs(seconds));
        let spells = vec![Spell { seen: Seen::Old, from: at(90) }, Spell { seen: Seen::New, from: at(112) }];
        let bar = Bar { label: "resolver <a&b>".to_owned(), spells, took: Some(Duration::from_secs(12)) };
        let svg = draw("www.example.org", &[bar], at(100), at(120));
        // 20 s after the fault and 2 s of what was before, over 720 units: 12 s is at 230 + 14 / 22 * 720.
        assert!(svg.contains("<rect x=\"230.0\" y=\"63\" width=\"458.2\" height=\"16\" fill=\"#e8590c\"/>"), "{svg}");
        assert!(svg.contains("<rect x=\"688.2\" y=\"63\" width=\"261.8\" height=\"16\" fill=\"#2b8a3e\"/>"), "{svg}");
        assert!(svg.contains("resolver &lt;a&amp;b&gt;") && svg.contains("12.00 s") && svg.contains(">5 s<"), "{svg}");
    }

    #[test]
    fn an_axis_has_round_marks_and_few_of_them() {
        for (whole, wanted) in [(20.0, "5"), (8.0, "1"), (0.1, "0.02"), (3600.0, "500")] {
            assert_eq!(number(step(whole)), wanted, "{whole}");
        }
    }
}
