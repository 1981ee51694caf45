//! The end that sends the last packet never knows whether it arrived. In some worlds that excuses a
//! sender that does not know of its success, and in others it does not.

use std::time::Duration;

use netblt_path::{Change, LinkOptions, Outage};
use netblt_proto::api::CloseReason;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_sim::check::kind;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::swarm;
use netblt_sim::world::{Tamper, World};

/// An outage that a round trip makes longer than the death timer; paths too narrow for a verdict
/// while outages come and go; runs of losses where a word takes four round trips to be said again.
#[test]
fn a_last_packet_lost_by_the_path_is_no_fault() {
    for seed in [1_002_801, 1_004_014, 1_017_626, 1_021_670, 1_022_061, 1_014_595, 1_025_476] {
        let outcome = swarm::replay(seed, None);
        assert_eq!(outcome.problem(), None, "{seed}\n{outcome}");
    }
}

/// A receiver that falls silent with its verdict, on a path that is dead for no more than half of
/// the death timer.
#[test]
fn a_last_packet_never_sent_is_a_fault() {
    for wire in [Wire::Rfc998, Wire::Sealed] {
        let outcome = World::new(world(wire))
            .tamper(|sight| {
                let over = sight.judged || sight.filled >= 4;
                let its_own = matches!(sight.clear.kind, kind::CONTROL | kind::KEEPALIVE);
                if over && its_own { Tamper::Drop } else { Tamper::Pass }
            })
            .run();
        assert_eq!(outcome.finding, None, "{outcome}");
        assert_eq!(outcome.sender().closed, Some(CloseReason::DeathTimer), "{outcome}");
        assert!(!outcome.is_orphaned() && failed(&outcome), "{outcome}");
    }
}

fn failed(outcome: &Outcome) -> bool {
    outcome.problem().is_some_and(|problem| problem.contains("did not succeed"))
}

/// Four buffers over a path that is dead for five seconds, long after they came.
fn world(wire: Wire) -> Setup {
    let host = |role| {
        let mut config = Config::new(wire, role);
        config.secret = Some(Secret([7; 32]));
        config.buffer_bytes = 1 << 18;
        config.death_timer = Duration::from_secs(10);
        HostOptions::new(config)
    };
    let mut setup = Setup::new(1, 1 << 20, host(Role::Sender), host(Role::Receiver));
    let link = LinkOptions { delay: Duration::from_millis(20), ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    let change = |at, outage| Change {
        at: Duration::from_secs(at),
        outage: Some(outage),
        ..Change::default()
    };
    setup.back.schedule = vec![change(100, Outage::Drop), change(105, Outage::None)];
    setup.deadline = Duration::from_secs(400);
    setup
}
