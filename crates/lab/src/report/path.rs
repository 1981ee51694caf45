//! `netblt-lab report trace`: the traffic of an emulated path, from the samples of
//! `netblt-lab emulate`.

use netblt_pages::plot::{Band, Kind, Panel, Picture, Series};
use netblt_pages::rates;
use serde_json::Value;

/// The counters of lost packets, by cause.
const LOSSES: [&str; 5] = ["lost_random", "lost_queue", "lost_policer", "lost_mtu", "lost_outage"];
/// The directions and their colours.
const WAYS: [(&str, usize); 2] = [("up", 0), ("down", 1)];

/// Limit on bins of time in a plot.
const BINS: f64 = 400.0;

/// The plot; `None` if there is nothing to draw. The default title is the network's; `file` is the
/// source.
pub(super) fn picture(text: &str, title: Option<&str>, file: &str) -> Option<Picture> {
    let (mut samples, mut link) = (Vec::new(), Value::Null);
    for line in text.lines() {
        let Ok(mut event) = serde_json::from_str::<Value>(line) else { continue };
        match event["event"].as_str() {
            Some("sample") => samples.push(event["data"].take()),
            Some("emulating") => link = event["data"].take(),
            _ => {}
        }
    }
    let begin = match link["links"]["from"].as_str() {
        Some("first_packet") => first_packet(&samples),
        _ => 0.0,
    };
    let series = |field: &str| -> Vec<Series> {
        let of_way = |(way, colour): (&str, usize)| {
            let point =
                |data: &Value| Some((number(&data["seconds"])?, number(&data[way][field])?));
            let points = samples.iter().filter_map(point).collect();
            Series::new(way, Kind::Line, colour, points)
        };
        WAYS.map(of_way).into()
    };
    let end = samples.iter().filter_map(|data| number(&data["seconds"])).fold(0.0, f64::max);
    let rate = |way: &str, colour, kind, totals: &[(f64, f64)]| {
        let points = rates::of(totals, rates::usual_step(totals).max(end / BINS));
        Series::new(way, kind, colour, points)
    };
    let throughput =
        WAYS.map(|(way, colour)| rate(way, colour, Kind::Line, &delivered(&samples, way)));
    let mut panels = vec![
        Panel::new("throughput, Mbit/s", [throughput.to_vec(), limits(&link, begin)].concat()),
        Panel::new("queue delay, ms", series("queue_ms")),
    ];
    // Limits without measurements make no plot.
    if panels.iter().flat_map(|panel| &panel.series).all(|series| series.kind == Kind::Limit) {
        return None;
    }
    let losses = WAYS.map(|(way, colour)| rate(way, colour, Kind::Strokes, &lost(&samples, way)));
    if losses.iter().flat_map(|series| &series.points).any(|point| point.1 > 0.0) {
        panels.push(Panel::new("lost, packets/s", losses.into()));
    }
    let mut bands = outages(&link, begin);
    bands.retain(|band| band.from < end);
    let name = link["scenario"].as_str().filter(|name| !name.is_empty());
    let network = name.map(|name| format!("network: {name}, seed {}", link["seed"]));
    let notes = network.into_iter().chain([format!("trace: {file}")]).collect();
    let title = match (title, name) {
        (Some(title), _) => title.to_owned(),
        (None, Some(name)) => format!("What the network {name} carried"),
        (None, None) => "What an emulated network carried".to_owned(),
    };
    Some(Picture { title, notes, panels, bands, end })
}

/// Megabits delivered up to each sample. A sample has bytes, or the rate since the one before.
fn delivered(samples: &[Value], way: &str) -> Vec<(f64, f64)> {
    let (mut points, mut before) = (Vec::new(), (0.0, 0.0));
    for data in samples {
        let Some(at) = number(&data["seconds"]) else { continue };
        let bytes = number(&data[way]["delivered_bytes"]);
        let rate = number(&data[way]["mbps"]);
        let total = match (bytes, rate) {
            (Some(bytes), _) => bytes * 8.0 / 1e6,
            (None, Some(rate)) => before.1 + rate * (at - before.0).max(0.0),
            (None, None) => continue,
        };
        if at > before.0 {
            points.push((at, total));
            before = (at, total);
        }
    }
    points
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|n| n.is_finite() && *n >= 0.0)
}

/// Two numbers, the second of which may be missing.
fn pair(value: &Value) -> Option<(f64, Option<f64>)> {
    Some((number(&value[0])?, number(&value[1])))
}

/// The rates of the links, from the first event.
fn limits(link: &Value, begin: f64) -> Vec<Series> {
    let of_way = |way: &str| -> Vec<(f64, f64)> {
        let steps = link["links"][way]["mbps"].as_array().map(Vec::as_slice).unwrap_or_default();
        // The first value of the schedule held before it, too.
        let at = |at: f64| if at > 0.0 { begin + at } else { 0.0 };
        steps.iter().filter_map(pair).filter_map(|(from, mbps)| Some((at(from), mbps?))).collect()
    };
    let [up, down] = WAYS.map(|(way, _)| of_way(way));
    if up == down {
        return vec![Series::new("link", Kind::Limit, 2, up)];
    }
    vec![
        Series::new("up, link", Kind::Limit, WAYS[0].1, up),
        Series::new("down, link", Kind::Limit, WAYS[1].1, down),
    ]
}

/// The last sample before the first packet.
fn first_packet(samples: &[Value]) -> f64 {
    let packets = |data: &Value| {
        WAYS.iter().filter_map(|(way, _)| number(&data[way]["entered_packets"])).sum::<f64>()
    };
    let idle = samples.iter().take_while(|data| packets(data) == 0.0);
    idle.last().and_then(|data| number(&data["seconds"])).unwrap_or_default()
}

/// Packets lost up to each sample, for any reason.
fn lost(samples: &[Value], way: &str) -> Vec<(f64, f64)> {
    let total = |data: &Value| LOSSES.iter().filter_map(|name| number(&data[way][name])).sum();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for data in samples {
        let (Some(at), sum): (_, f64) = (number(&data["seconds"]), total(data)) else { continue };
        if at > points.last().map_or(0.0, |point| point.0) {
            points.push((at, sum));
        }
    }
    points
}

/// Outages of either direction.
fn outages(link: &Value, begin: f64) -> Vec<Band> {
    let spans = WAYS.iter().flat_map(|(way, _)| {
        link["links"][way]["outages"].as_array().map(Vec::as_slice).unwrap_or_default()
    });
    let mut bands: Vec<Band> = Vec::new();
    for (from, to) in spans.filter_map(pair) {
        let (from, to) = (begin + from, to.map_or(f64::INFINITY, |to| begin + to));
        let band = Band { from, to, name: "outage" };
        if !bands.contains(&band) {
            bands.push(band);
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "{\"event\":\"emulating\",\"data\":{\"scenario\":\"lte\",\"seed\":1,\
        \"links\":{\"up\":{\"mbps\":[[0,12]],\"outages\":[[1,1.5],[9,null]]},\
        \"down\":{\"mbps\":[[0,null]],\"outages\":[[1,1.5]]}}}}\n";

    #[test]
    fn samples_become_lines_and_losses_strokes() {
        let text = format!(
            "{BEGIN}noise\n\
            {{\"event\":\"sample\",\"data\":{{\"seconds\":1,\"up\":{{\"mbps\":5,\"queue_ms\":1,\
            \"lost_random\":3,\"lost_queue\":1}}}}}}\n\
            {{\"event\":\"sample\",\"data\":{{\"seconds\":2,\"up\":{{\"mbps\":9,\"queue_ms\":0,\
            \"lost_random\":3,\"lost_queue\":11}}}}}}\n"
        );
        let picture = picture(&text, None, "x").expect("a picture");
        assert_eq!(picture.title, "What the network lte carried");
        assert_eq!(picture.panels[0].series[0].points, [(1.0, 5.0), (2.0, 9.0)]);
        assert_eq!(picture.panels.len(), 3);
        assert_eq!(picture.panels[2].series[0].points, [(1.0, 4.0), (2.0, 10.0)]);
        assert_eq!(picture.bands, [Band { from: 1.0, to: 1.5, name: "outage" }]);
        assert_eq!((picture.end, picture.notes.len()), (2.0, 2));
        let svg = picture.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">up, link<") && !svg.contains(">down, link<"), "{svg}");
    }

    #[test]
    fn a_relays_schedule_begins_with_the_first_packet() {
        let begin = BEGIN.replace("\"up\":{\"mbps\"", "\"from\":\"first_packet\",\"up\":{\"mbps\"");
        let sample = |seconds: f64, packets: u32| {
            format!(
                "{{\"event\":\"sample\",\"data\":{{\"seconds\":{seconds},\"up\":{{\"mbps\":1,\
                \"entered_packets\":{packets}}}}}}}\n"
            )
        };
        let text = begin + &sample(0.5, 0) + &sample(0.75, 0) + &sample(1.0, 3) + &sample(3.0, 9);
        let bands = picture(&text, None, "x").expect("a picture").bands;
        assert_eq!(bands, [Band { from: 1.75, to: 2.25, name: "outage" }]);
    }

    #[test]
    fn a_link_of_100_mbit_is_drawn_as_such_where_samples_are_late() {
        let sample = |seconds: f64, bytes: u64, mbps: f64| {
            format!(
                "{{\"event\":\"sample\",\"data\":{{\"seconds\":{seconds},\"up\":{{\"mbps\":{mbps},\
                \"delivered_bytes\":{bytes}}}}}}}\n"
            )
        };
        // 1.25 MB in 100 ms; one sample is 99 ms late, and data of that time are counted after it.
        let text = [
            sample(0.1, 1_250_000, 100.0),
            sample(0.299, 3_640_000, 96.0),
            sample(0.3, 3_750_000, 880.0),
            sample(0.4, 5_000_000, 100.0),
            sample(0.5, 6_250_000, 100.0),
        ];
        let picture = picture(&text.concat(), None, "x").expect("a picture");
        let points = &picture.panels[0].series[0].points;
        assert!(points.iter().all(|(_, mbps)| (85.0..115.0).contains(mbps)), "{points:?}");
    }

    #[test]
    fn a_path_without_samples_is_not_drawn() {
        for text in
            ["", "{}", "{\"event\":\"sample\"}", "{\"event\":\"sample\",\"data\":[1]}", BEGIN]
        {
            assert!(picture(text, None, "").is_none(), "{text}");
        }
    }
}
