//! How a server's rate is divided: alike among all who can use it, and what some leave goes to the
//! others.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

use super::guest::Guest;

/// From one division to the next.
pub(super) const SPELL: Duration = Duration::from_millis(250);
/// Who uses less than this part of what it may have is held up by something else,
const USED: f64 = 0.9;
/// and keeps so much more than it uses, to grow into.
const SPARE: f64 = 1.25;
/// The least that anybody is given, in bytes a second: a share of nothing would end a transfer.
const LEAST: f64 = 1000.0;

/// `total` divided by these demands: nobody has more than he demands, and nobody could have more
/// without somebody having less who has no more than he.
pub(super) fn divide(total: f64, demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    let demand = |at: usize| demands.get(at).copied().unwrap_or(0.0);
    order.sort_by(|a, b| demand(*a).total_cmp(&demand(*b)));
    let (mut shares, mut left) = (vec![0.0; demands.len()], total);
    for (place, at) in order.iter().enumerate() {
        let even = left / (demands.len() - place) as f64;
        let own = demand(*at).min(even);
        left -= own;
        if let Some(share) = shares.get_mut(*at) {
            *share = own;
        }
    }
    shares
}

/// The same, and what nobody demands goes to those who may grow, for whoever comes to need it.
fn spread(total: f64, demands: &[f64], may_grow: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut shares = divide(total, demands);
    let left = total - shares.iter().sum::<f64>();
    let growing: Vec<usize> = (0..shares.len()).filter(|at| may_grow(*at)).collect();
    let more = left.max(0.0) / growing.len().max(1) as f64;
    for at in growing {
        shares.iter_mut().skip(at).take(1).for_each(|share| *share += more);
    }
    shares
}

/// Divides a server's rate anew among its guests, after a spell of this length, and the rate of a
/// grant among those whom it is for. All that is asked in one session has one share.
pub(super) fn allot<'a>(
    total: Option<Rate>,
    spell: Duration,
    now: Instant,
    guests: impl Iterator<Item = &'a mut Guest>,
) {
    let mut guests: Vec<&mut Guest> = guests.collect();
    if total.is_none() && guests.iter().all(|guest| guest.grant.max_rate.is_none()) {
        return;
    }
    let demands: Vec<f64> = guests.iter_mut().map(|guest| demand(guest, spell, now)).collect();
    let parties = parties(guests.iter().map(|guest| guest.session));
    let of = |party: &[usize]| -> Vec<f64> {
        party.iter().filter_map(|at| demands.get(*at).copied()).collect()
    };
    let joint: Vec<f64> = parties.iter().map(|party| of(party).iter().sum()).collect();
    let heads: Vec<&Guest> =
        parties.iter().filter_map(|party| guests.get(*party.first()?).map(|of| &**of)).collect();
    let joint = of_parties(total, joint, &heads);
    let mut shares = vec![0.0; guests.len()];
    for (party, joint) in parties.iter().zip(joint) {
        for (at, share) in party.iter().zip(spread(joint, &of(party), |_| true)) {
            shares.iter_mut().skip(*at).take(1).for_each(|place| *place = share);
        }
    }
    for (guest, most) in guests.iter_mut().zip(shares) {
        let most = most.max(LEAST);
        guest.share.most = Some(most);
        let rate = most.is_finite().then(|| Rate::from_bytes_per_second(most as u64));
        guest.control.set_rate(rate);
    }
}

/// Who has one share: each by himself, or all of one session.
fn parties(sessions: impl Iterator<Item = Option<u32>>) -> Vec<Vec<usize>> {
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut parties: Vec<Vec<usize>> = Vec::new();
    for (at, session) in sessions.enumerate() {
        let new = parties.len();
        let place = session.map_or(new, |id| *places.entry(id).or_insert(new));
        match parties.get_mut(place) {
            Some(party) => party.push(at),
            None => parties.push(vec![at]),
        }
    }
    parties
}

/// The shares of parties with these demands; what a grant has, `heads` say, one of each.
fn of_parties(total: Option<Rate>, mut demands: Vec<f64>, heads: &[&Guest]) -> Vec<f64> {
    for (at, head) in heads.iter().enumerate() {
        let Some(most) = head.grant.max_rate else { continue };
        let is_own = |of: &Guest| of.who == head.who && of.grant.max_rate.is_some();
        let same = |place: &usize| heads.get(*place).is_some_and(|of| is_own(of));
        let group: Vec<usize> = (0..heads.len()).filter(same).collect();
        // Once for each group.
        if group.first() == Some(&at) {
            let own: Vec<f64> = group.iter().filter_map(|at| demands.get(*at).copied()).collect();
            for (place, share) in group.iter().zip(spread(bytes(most), &own, |_| true)) {
                if let Some(demand) = demands.get_mut(*place) {
                    *demand = share;
                }
            }
        }
    }
    match total {
        Some(total) => {
            let free = |at: usize| heads.get(at).is_some_and(|of| of.grant.max_rate.is_none());
            spread(bytes(total), &demands, free)
        }
        None => demands,
    }
}

fn bytes(rate: Rate) -> f64 {
    rate.bits_per_second() as f64 / 8.0
}

/// What a guest can use, as far as that is seen.
fn demand(guest: &mut Guest, spell: Duration, now: Instant) -> f64 {
    let bytes = guest.seen.bytes.load(Ordering::Relaxed);
    let moved = bytes.saturating_sub(std::mem::replace(&mut guest.share.bytes, bytes));
    let used = moved as f64 / spell.as_secs_f64().max(1e-3);
    // Whoever has just come has shown nothing yet.
    let new = now.since(guest.opened) < 4 * SPELL;
    match guest.share.most {
        Some(most) if !new && used < USED * most => (used * SPARE).max(LEAST),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_divided_alike() {
        let all = f64::INFINITY;
        assert_eq!(divide(90.0, &[all, all, all]), [30.0, 30.0, 30.0]);
        assert_eq!(divide(90.0, &[all, 10.0, all]), [40.0, 10.0, 40.0]);
        assert_eq!(divide(90.0, &[5.0, 10.0, 20.0]), [5.0, 10.0, 20.0]);
        assert_eq!(divide(90.0, &[40.0, 10.0, 60.0]), [40.0, 10.0, 40.0]);
        assert_eq!(divide(90.0, &[]), [0.0; 0]);
    }

    #[test]
    fn what_is_left_goes_to_those_who_may_grow() {
        assert_eq!(spread(90.0, &[10.0, 20.0], |_| true), [40.0, 50.0]);
        assert_eq!(spread(90.0, &[10.0, 20.0], |at| at == 1), [10.0, 80.0]);
        assert_eq!(spread(90.0, &[10.0, 20.0], |_| false), [10.0, 20.0]);
        assert_eq!(spread(20.0, &[f64::INFINITY, 20.0], |_| true), [10.0, 10.0]);
    }

    #[test]
    fn all_of_a_session_are_one_party() {
        let sessions = [None, Some(7), Some(9), Some(7), None];
        let expected = [vec![0], vec![1, 3], vec![2], vec![4]];
        assert_eq!(parties(sessions.into_iter()), expected);
    }

    #[test]
    fn never_more_than_there_is() {
        for count in 1..20u32 {
            let demands: Vec<f64> = (0..count).map(|n| f64::from(n * 7 % 11)).collect();
            let shares = divide(30.0, &demands);
            assert!(shares.iter().sum::<f64>() <= 30.0 + 1e-9);
            assert!(shares.iter().zip(&demands).all(|(share, demand)| share <= demand));
        }
    }
}
