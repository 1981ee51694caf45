//! The table.

use super::list::{Scenario, Want};
use super::{Figures, is_met};

pub(crate) fn table(all: &[Scenario], figures: &[Figures]) -> String {
    let mut text = String::from(
        "| path | seed | wanted | seconds | of possible | lost to queue | wire | mean wait |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut part = "";
    for (scenario, f) in all.iter().zip(figures) {
        if scenario.part != part {
            part = scenario.part;
            text += &format!("| **{part}** | | | | | | | |\n");
        }
        let met = if is_met(scenario.want, f) { "" } else { ", **missed**" };
        let want = match scenario.want {
            Want::Share(least) => format!("{least} %{met}"),
            Want::Lost(most) => format!("lost < {most} %{met}"),
        };
        text += &format!(
            "| {} | {} | {want} | {:.1} | {:.1} % | {:.2} % | {:.3} | {:.1} ms |\n",
            scenario.name, scenario.setup.seed, f.seconds, f.share, f.lost, f.wire, f.wait
        );
    }
    text
}
