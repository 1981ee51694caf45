//! The two ends of a world.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Index, IndexMut};

/// One of the two ends of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The end that opens the connection.
    Active,
    /// The end that waits to be opened.
    Passive,
}

impl Side {
    /// Both ends, in the order in which a world serves them.
    pub const BOTH: [Self; 2] = [Self::Active, Self::Passive];

    /// The opposite end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }

    /// Its address at first: each is alone in a documentation network of its own.
    pub const fn address(self) -> SocketAddr {
        self.address_after(0)
    }

    /// Its address after so many moves.
    pub const fn address_after(self, moves: u16) -> SocketAddr {
        let ip = match self {
            Self::Active => Ipv4Addr::new(192, 0, 2, 1),
            Self::Passive => Ipv4Addr::new(198, 51, 100, 1),
        };
        SocketAddr::new(IpAddr::V4(ip), 998 + moves)
    }

    /// Whether it is or was ever at that address.
    pub fn may_be_at(self, address: SocketAddr) -> bool {
        address.ip() == self.address().ip()
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Active => "active",
            Self::Passive => "passive",
        })
    }
}

/// One value for each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair<T>(pub [T; 2]);

impl<T> Index<Side> for Pair<T> {
    type Output = T;
    fn index(&self, side: Side) -> &T {
        &self.0[side as usize]
    }
}

impl<T> IndexMut<Side> for Pair<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        &mut self.0[side as usize]
    }
}
