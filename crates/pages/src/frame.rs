//! A plot's frame in SVG: axes, their marks and names. Colours are classes of the page's style
//! sheet, so that a plot reads on light and dark paper.

use std::fmt::Write as _;

/// Room on the left of the plot for marks, in pixels.
pub const LEFT: f64 = 48.0;
/// The same on the left where there are names of lanes, which no mark may cover.
pub const LEFT_OF_LANES: f64 = 150.0;
/// Room on the other sides.
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 42.0;

/// Range of one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// First value.
    pub from: f64,
    /// Last value.
    pub to: f64,
    /// Distance between marks.
    step: f64,
    decimals: usize,
}

impl Axis {
    /// Marks at round figures, at most `marks` of them, around everything from `from` to `to`.
    pub fn around(from: f64, to: f64, marks: u32) -> Self {
        let steps = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let fits = |step: &&f64| (to / **step).ceil() - (from / **step).floor() < f64::from(marks);
        let step = *steps.iter().find(fits).unwrap_or(&200.0);
        let decimals = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
        Self { from: (from / step).floor() * step, to: (to / step).ceil() * step, step, decimals }
    }

    /// From zero to `to` exactly.
    pub fn until(to: f64, step: f64) -> Self {
        Self { from: 0.0, to, step, decimals: 0 }
    }

    /// Where the axis begins, if that is not zero: lengths along it are not proportional then.
    fn cut(&self) -> Option<String> {
        (self.from > 0.0).then(|| self.marks().next()).flatten().map(|(_, mark)| mark)
    }

    fn marks(&self) -> impl Iterator<Item = (f64, String)> {
        let count = ((self.to - self.from) / self.step + 0.01) as u32;
        (0..=count).map(|n| {
            let value = self.from + f64::from(n) * self.step;
            (value, format!("{value:.*}", self.decimals))
        })
    }
}

/// The frame of one plot.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Width and height in pixels, names of axes included.
    pub size: (f64, f64),
    /// Room on the left, in pixels: [`LEFT`], or [`LEFT_OF_LANES`] for names that are not long.
    pub left: f64,
    /// From left to right.
    pub x: Axis,
    /// From the bottom up.
    pub y: Axis,
}

impl Frame {
    /// Where `value` lies from left to right.
    pub fn x(&self, value: f64) -> f64 {
        let part = (value - self.x.from) / (self.x.to - self.x.from);
        self.left + part * (self.size.0 - self.left - RIGHT)
    }

    /// Where `value` lies from top to bottom.
    pub fn y(&self, value: f64) -> f64 {
        let part = (value - self.y.from) / (self.y.to - self.y.from);
        self.size.1 - BOTTOM - part * (self.size.1 - TOP - BOTTOM)
    }

    /// The beginning of the picture called `name`, with axes called `names`, x first.
    pub fn open(&self, name: &str, names: (&str, &str)) -> String {
        let (mut out, left) = (self.begin(name), self.left);
        for (value, mark) in self.y.marks() {
            let y = self.y(value);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
                self.size.0 - RIGHT,
                left - 7.0,
                y + 4.0
            );
        }
        let name = match self.y.cut() {
            Some(from) => format!("{}, cut below {from}", names.1),
            None => names.1.to_owned(),
        };
        let _ = writeln!(out, "<text x=\"6\" y=\"{:.1}\">{name}</text>", TOP - 12.0);
        out += &self.upright();
        self.across(&mut out, names.0);
        out
    }

    /// The beginning of a picture whose y axis names `lanes`, the first below one.
    pub fn open_lanes(&self, name: &str, x_name: &str, lanes: &[String]) -> String {
        let (mut out, left) = (self.begin(name), self.left);
        for (at, lane) in lanes.iter().enumerate() {
            let y = self.y(at as f64 + 0.5) + 4.0;
            let line = self.y(at as f64);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{left} {line:.1}H{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{lane}</text>",
                self.size.0 - RIGHT,
                left - 7.0
            );
        }
        self.across(&mut out, x_name);
        out
    }

    /// The y axis, broken near its foot if it does not begin at zero.
    fn upright(&self) -> String {
        let (bottom, tooth, left) = (self.size.1 - BOTTOM, 4.0, self.left);
        let middle = match self.y.cut() {
            Some(_) => format!("V{:.1}l{tooth} 2l-8 4l8 4l-{tooth} 2", bottom - 17.0),
            None => String::new(),
        };
        format!("<path class=\"axis\" d=\"M{left} {TOP}{middle}V{bottom}\"/>\n")
    }

    fn begin(&self, name: &str) -> String {
        let (width, height) = self.size;
        let label = name.replace("&lt;", "under");
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n\
             <text class=\"name\" x=\"{:.1}\" y=\"14\" text-anchor=\"middle\">{name}</text>\n",
            (self.left + width - RIGHT) / 2.0
        )
    }

    /// The x axis.
    fn across(&self, out: &mut String, name: &str) {
        let (bottom, left) = (self.size.1 - BOTTOM, self.left);
        let _ =
            writeln!(out, "<path class=\"axis\" d=\"M{left} {bottom}H{}\"/>", self.size.0 - RIGHT);
        for (value, mark) in self.x.marks() {
            let x = self.x(value);
            let _ = writeln!(
                out,
                "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>",
                bottom + 18.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            (left + self.size.0 - RIGHT) / 2.0,
            bottom + 36.0
        );
    }
}

/// Millions of bits.
pub fn mbps(bits_per_second: u64) -> f64 {
    bits_per_second as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        let axis = Axis::around(25.0, 45.0, 8);
        let marks: Vec<String> = axis.marks().map(|(_, mark)| mark).collect();
        assert_eq!(marks, ["25", "30", "35", "40", "45"]);
        let marks: Vec<String> = Axis::around(0.892, 1.45, 8).marks().map(|(_, m)| m).collect();
        assert_eq!(marks, ["0.8", "0.9", "1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]);
        assert_eq!(Axis::until(400.0, 50.0).marks().count(), 9);
        assert_eq!(axis.cut().as_deref(), Some("25"));
        assert_eq!(Axis::until(400.0, 50.0).cut(), None);
    }

    #[test]
    fn a_value_lies_between_the_ends_of_its_axis() {
        let frame = Frame {
            size: (400.0, 200.0),
            left: LEFT,
            x: Axis::until(10.0, 1.0),
            y: Axis::until(10.0, 1.0),
        };
        assert_eq!((frame.x(0.0), frame.x(10.0)), (48.0, 386.0));
        assert_eq!((frame.y(0.0), frame.y(10.0)), (158.0, 26.0));
        let lanes = Frame { left: LEFT_OF_LANES, ..frame };
        assert_eq!((lanes.x(0.0), lanes.x(10.0)), (150.0, 386.0));
        // Names end where the plot begins.
        let text = lanes.open_lanes("x", "y", &["a name".to_owned()]);
        assert!(text.contains("x=\"143.0\" y=\"155.4\" text-anchor=\"end\">a name<"), "{text}");
    }
}
