//! The figures of the review, sections 4.1 to 4.3, as published.

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The network: `ornl-lbl`, `ornl-cern`, `nistnet` or `nistnet-loss`.
    pub path: &'static str,
    /// Disk to disk; else memory to memory.
    pub file: bool,
    /// `best` or `worst` where tests went over the Internet.
    pub case: &'static str,
    /// The program.
    pub application: &'static str,
    /// Bits a second, as the program reported them.
    pub bits_per_second: u64,
    /// Packets lost, as the program counted.
    pub lost: Option<u64>,
    /// Packets sent again.
    pub resent: Option<u64>,
    /// Packets sent, those sent again among them.
    pub sent: Option<u64>,
    /// Packets that arrived.
    pub received: Option<u64>,
    /// Packets that arrived again.
    pub duplicates: Option<u64>,
    /// Further remarks of the review.
    pub note: &'static str,
}

/// Every row, in the review's order.
pub fn rows() -> Vec<Row> {
    include_str!("ornl_review.csv").lines().skip(1).filter_map(Row::parse).collect()
}

impl Row {
    fn parse(line: &'static str) -> Option<Self> {
        let cells: Vec<&str> = line.split(',').collect();
        let count = |at: usize| cells.get(at)?.parse::<u64>().ok();
        let (resent, new) = (count(6), count(7));
        Some(Self {
            path: cells.first()?,
            file: *cells.get(1)? == "file",
            case: cells.get(2)?,
            application: cells.get(3)?,
            bits_per_second: megabits(cells.get(4)?)?,
            lost: count(5),
            resent,
            // Some tables have packets of new data in place of those sent again.
            sent: count(8).or(new.filter(|_| resent.is_some())),
            received: count(9),
            duplicates: count(10),
            note: cells.get(11)?,
        })
    }

    /// Whether it was measured on the network that is modelled: ORNL's own, with a host in the
    /// middle that delayed and dropped packets ("NISTNET", section 4.3).
    pub fn is_modelled(&self) -> bool {
        self.path.starts_with("nistnet")
    }

    /// Whether packets were dropped there.
    pub fn has_loss(&self) -> bool {
        self.path == "nistnet-loss"
    }
}

/// `87.1` as bits a second.
fn megabits(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part: u64 = format!("{part:0<6}").get(..6)?.parse().ok()?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_as_it_stands() {
        let rows = rows();
        let modelled = rows.iter().filter(|row| row.is_modelled());
        assert_eq!((rows.len(), modelled.count()), (42, 15));
        let row = rows.iter().find(|row| row.path == "nistnet" && row.application == "sabul");
        let row = row.expect("a row");
        assert_eq!(
            (row.bits_per_second, row.lost, row.resent),
            (87_100_000, Some(37_480), Some(17_843))
        );
        assert_eq!((row.sent, row.received, row.duplicates), (Some(157_823), None, Some(2832)));
        let file: Vec<_> = rows.iter().filter(|row| row.file && row.is_modelled()).collect();
        assert_eq!(
            file.iter().map(|row| row.bits_per_second).collect::<Vec<_>>(),
            [71_400_000, 87_200_000, 33_200_000]
        );
    }
}
